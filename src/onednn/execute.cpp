// Executing compiled partitions.
#include "graph/tensors.hpp"
#include "onednn/compiled.hpp"
#include "op/message.hpp"

namespace convgrad::onednn {
namespace {

[[noreturn]] void refuse(const std::string &text) {
    throw error(error_code::invalid_argument, ops::cat("invalid argument: ", text));
}

/// The tensor at a place of the client's list. One that says of itself that it is not the tensor of
/// the compile call is refused: it may have less memory.
const client_tensor &tensor_of(std::span<const client_tensor *const> list, std::size_t place,
    const logical_tensor &compiled, std::string_view what) {
    if (place >= list.size())
        refuse(ops::cat(
            list.size(), " ", what, "s are given; the compile call had at least ", place + 1));
    if (list[place] == nullptr) refuse(ops::cat(what, " ", place, " is null"));
    if (compiled.is_known() && !fits(list[place]->lt, compiled))
        refuse(ops::cat(what, " ", place,
            " is not the tensor that was compiled: ", describe(compiled), " was"));
    return *list[place];
}

dims packed_strides(const dims &shape) {
    dims strides(shape.size());
    dim packed = 1;
    for (std::size_t i = shape.size(); i-- > 0; packed *= shape[i]) strides[i] = packed;
    return strides;
}

/// Copies elements to all places that they stand for: `from_strides` is 0 along axes that the small
/// tensor does not have. `to` is packed.
template <typename Element>
struct spreader {
    const dims &shape, &from_strides;
    Element *to;

    void run(const Element *from, std::size_t axis) {
        const dim stride = from_strides[axis];
        if (axis + 1 < shape.size()) {
            for (dim i = 0; i < shape[axis]; ++i) run(from + i * stride, axis + 1);
            return;
        }
        for (dim i = 0; i < shape[axis]; ++i) *to++ = from[i * stride];
    }
};

void spread_out(const broadcast &spread, const void *from, void *to) {
    const dims &shape = *spread.to.shape, &small = *spread.from.shape;
    if (is_empty(shape)) return;
    const dims strides = spread.from.strides.empty() ? packed_strides(small) : spread.from.strides;
    dims from_strides(shape.size(), 0);
    const std::size_t missing = shape.size() - small.size();
    for (std::size_t i = 0; i < small.size(); ++i)
        if (small[i] != 1) from_strides[missing + i] = strides[i];
    const auto run = [&]<typename Element>(Element *target) {
        spreader<Element>{shape, from_strides, target}.run(static_cast<const Element *>(from), 0);
    };
    if (size_of(spread.to.type) == sizeof(std::uint16_t))
        run(static_cast<std::uint16_t *>(to));
    else
        run(static_cast<std::uint32_t *>(to));
}

/// The tensor as compiled; where that left the shape open, as the client has it now.
tensor output_at(const client_tensor &given, const logical_tensor &compiled) {
    if (compiled.is_known()) return tensor_at(given.data, compiled);
    return tensor_at(given.data, output_of(given.lt, false));
}

}  // namespace

void compiled_body::execute(std::span<const client_tensor *const> inputs,
    std::span<const client_tensor *const> outputs, void *scratch_memory) const {
    std::vector<tensor> in, out;
    for (std::size_t i = 0; i < input_places.size(); ++i) {
        const logical_tensor &compiled = library.inputs()[i];
        const logical_tensor &given = spread && spread->input == i ? spread->from : compiled;
        in.push_back(tensor_at(tensor_of(inputs, input_places[i], given, "input").data, compiled));
    }
    for (std::size_t i = 0; i < output_places.size(); ++i) {
        const logical_tensor &compiled = library.outputs()[i];
        out.push_back(
            output_at(tensor_of(outputs, output_places[i], compiled, "output"), compiled));
    }
    if (spread) {
        auto *large = static_cast<std::byte *>(scratch_memory) + spread_offset;
        if (in[spread->input].data == nullptr) refuse("the tensor to add has null data");
        spread_out(*spread, in[spread->input].data, large);
        in[spread->input].data = large;
    }
    library.execute(stream(engine_for(source->fpmath)), in, out,
        library.workspace_size() == 0 ? nullptr : scratch_memory);
}

}  // namespace convgrad::onednn

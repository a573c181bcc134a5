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
const tensor_view &tensor_of(std::span<const tensor_view> list, std::size_t place,
    const logical_tensor &compiled, std::string_view what) {
    if (place >= list.size())
        refuse(ops::cat(
            list.size(), " ", what, "s are given; the compile call had at least ", place + 1));
    if (compiled.is_known() && list[place].lt && !fits(*list[place].lt, compiled))
        refuse(ops::cat(what, " ", place,
            " is not the tensor that was compiled: ", describe(compiled), " was"));
    return list[place];
}

/// The tensor as compiled; where that left the shape open, as the client has it now.
tensor output_at(const tensor_view &given, const logical_tensor &compiled) {
    if (compiled.is_known()) return tensor_at(given.data, compiled);
    if (!given.lt) refuse("the shape of an output is known neither from compiling nor from it");
    return tensor_at(given.data, output_of(*given.lt, false));
}

}  // namespace

void compiled_body::execute(std::span<const tensor_view> inputs,
    std::span<const tensor_view> outputs, void *scratch_memory) const {
    std::vector<tensor> in, out;
    for (std::size_t i = 0; i < input_places.size(); ++i) {
        const logical_tensor &compiled = library.inputs()[i];
        in.push_back(
            tensor_at(tensor_of(inputs, input_places[i], compiled, "input").data, compiled));
    }
    for (std::size_t i = 0; i < output_places.size(); ++i) {
        const logical_tensor &compiled = library.outputs()[i];
        out.push_back(
            output_at(tensor_of(outputs, output_places[i], compiled, "output"), compiled));
    }
    library.execute(stream(engine_for(source->settings.fpmath)), in, out,
        library.workspace_size() == 0 ? nullptr : scratch_memory);
}

}  // namespace convgrad::onednn

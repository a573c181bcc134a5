#include "fuzz/layer.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "conv/convert.hpp"
#include "support/random.hpp"

namespace convgrad::fuzz {
namespace {

constexpr data_type float_types[] = {data_type::f32, data_type::bf16, data_type::f16};

constexpr std::size_t most_elements = 20000;

dims data_shape(const layer &l, dim mb, dim channels, const dims &space) {
    dims shape = {mb};
    shape.insert(shape.end(), space.begin(), space.end());
    shape.insert(l.data_format == "NCX" ? shape.begin() + 1 : shape.end(), channels);
    return shape;
}

void draw_axes(input &in, layer &l, dims &space, dims &kernel) {
    attributes &a = l.attrs;
    for (std::size_t d = 0; d < l.axes; ++d) {
        space.push_back(in.between(1, l.axes == 3 ? 5 : 9));
        kernel.push_back(in.between(1, 4));
        a.strides.push_back(in.between(1, 3));
        a.dilations.push_back(in.between(1, 3));
        a.pads_begin.push_back(in.between(0, 3));
        a.pads_end.push_back(in.between(0, 3));
        if (l.transposed)
            a.output_padding.push_back(in.byte() % std::max(a.strides.back(), a.dilations.back()));
    }
}

dims draw_weights(input &in, const layer &l, dim ic, const dims &kernel) {
    const dim groups = l.attrs.groups;
    // Grouped weights of a transposed convolution may have either channel axis divided.
    const bool divides_i = !l.transposed || in.chance(2);
    const dim i = divides_i ? ic / groups : ic;
    const dim o = divides_i ? l.channels_out : l.channels_out / groups;
    const bool i_first = l.weights_format == "XIO" || l.weights_format == "IOX";
    dims shape = kernel;
    const dim first = i_first ? i : o, second = i_first ? o : i;
    if (l.weights_format.front() == 'X')
        shape.insert(shape.end(), {first, second});
    else
        shape.insert(shape.begin(), {first, second});
    return shape;
}

/// Whole numbers from -3 to 3 in the elements, and NaN between them.
void fill(std::byte *data, std::size_t span, const logical_tensor &t) {
    test::rng random(span);
    const std::size_t size = size_of(t.type), rank = t.shape ? t.shape->size() : 0;
    std::fill_n(data, span * size, std::byte{0xff});
    dims at(rank, 0);
    for (bool more = span > 0; more;) {
        std::size_t i = 0, packed = 1;
        for (std::size_t d = rank; d-- > 0; packed *= static_cast<std::size_t>((*t.shape)[d]))
            i += static_cast<std::size_t>(at[d])
                 * (t.strides.empty() ? packed : static_cast<std::size_t>(t.strides[d]));
        std::size_t d = rank;
        while (d > 0 && ++at[d - 1] == (*t.shape)[d - 1]) at[--d] = 0;
        more = d > 0;
        const auto value = static_cast<double>(random.between(-3, 3));
        const auto put = [&](auto element) { std::memcpy(data + i * size, &element, size); };
        switch (t.type) {
        case data_type::f32:
            put(conv::round_to<float>(value));
            break;
        case data_type::bf16:
            put(conv::round_to<bf16>(value));
            break;
        case data_type::f16:
            put(conv::round_to<f16>(value));
            break;
        default:
            std::memset(data + i * size, 0, size);
        }
    }
}

}  // namespace

void draw_layer(input &in, layer &made) {
    static constexpr const char *pads[] = {"none", "none", "same_upper", "same_lower", "valid"};
    made.transposed = in.chance(2);
    made.axes = static_cast<std::size_t>(in.between(1, 3));
    made.type = in.pick(float_types);
    made.auto_pad = in.pick(pads);
    made.data_format = in.chance(2) ? "NCX" : "NXC";
    const bool space_first = in.chance(2);
    made.weights_format =
        made.transposed ? (space_first ? "XOI" : "IOX") : (space_first ? "XIO" : "OIX");
    made.attrs = {};
    made.attrs.groups = in.pick({dim{1}, dim{1}, dim{2}, dim{3}, dim{16}});
    const dim mb = in.between(0, 3);
    dim ic = made.attrs.groups * in.between(1, 5);
    made.channels_out = made.attrs.groups * in.between(1, 5);
    if (in.chance(8)) made.channels_out *= 7;
    dims space, kernel;
    draw_axes(in, made, space, kernel);
    if (in.chance(32)) (in.chance(2) ? ic : made.channels_out) = 0;
    made.src = data_shape(made, mb, ic, space);
    made.weights = draw_weights(in, made, ic, kernel);
    made.attrs.auto_pad = made.auto_pad;
    made.attrs.data_format = made.data_format;
    made.attrs.weights_format = made.weights_format;
    succeeds([&] { made.dst = infer_shape(made.forward(), made.src, made.weights, made.attrs); });
}

void spoil(input &in, dims &list) {
    switch (in.byte() % 4) {
    case 0:
        if (!list.empty()) list.pop_back();
        break;
    case 1:
        list.push_back(in.number());
        break;
    case 2:
        list = in.numbers(list.size());
        break;
    default:
        if (!list.empty()) list[in.byte() % list.size()] = in.number();
    }
}

void spoil(input &in, layer &made) {
    attributes &a = made.attrs;
    dims *const lists[] = {&a.strides, &a.pads_begin, &a.pads_end, &a.dilations, &a.output_padding,
        &made.src, &made.weights, &made.dst};
    const std::uint8_t what = in.byte() % 12;
    switch (what) {
    case 8:
        a.groups = in.number();
        break;
    case 9:
        made.auto_pad = in.text(16);
        break;
    case 10:
        made.data_format = in.text(4);
        break;
    case 11:
        made.weights_format = in.text(4);
        break;
    default:
        spoil(in, *lists[what]);
    }
    succeeds([&] { a.auto_pad = made.auto_pad; });
    succeeds([&] { a.data_format = made.data_format; });
    succeeds([&] { a.weights_format = made.weights_format; });
}

std::optional<std::size_t> small_span(const dims &shape, const dims &strides) {
    if (std::ranges::find(shape, 0) != shape.end()) return 0;
    if (!strides.empty() && strides.size() != shape.size()) return std::nullopt;
    std::size_t last = 0, packed = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        const dim stride = strides.empty() ? static_cast<dim>(packed) : strides[i];
        const bool moves = shape[i] > 1;
        if (shape[i] < 0 || shape[i] > dim{most_elements}) return std::nullopt;
        if (moves && (stride < 0 || stride > dim{most_elements})) return std::nullopt;
        const auto length = static_cast<std::size_t>(shape[i]);
        if (moves) last += (length - 1) * static_cast<std::size_t>(stride);
        packed *= length;
        if (last >= most_elements || packed > most_elements) return std::nullopt;
    }
    return last + 1;
}

tensor tensor_memory::make(const logical_tensor &described) {
    tensor made(static_cast<void *>(nullptr), described.type, described.shape.value_or(dims{}),
        described.strides);
    const auto span = described.shape ? small_span(*described.shape, described.strides)
                                      : std::optional<std::size_t>(0);
    if (!span) {
        has_refused_ = true;
        return made;
    }
    const std::size_t bytes = *span * size_of(described.type);
    auto block = std::make_unique<std::byte[]>(bytes);
    fill(block.get(), *span, described);
    if (described.value)
        for (std::size_t i = 0; i < described.value->size() && (i + 1) * 4 <= bytes; ++i) {
            const auto value = static_cast<std::int32_t>((*described.value)[i]);
            std::memcpy(block.get() + i * 4, &value, 4);
        }
    made.data = block.get();
    blocks_.push_back(std::move(block));
    const auto elements = static_cast<double>(*span);
    if (elements > largest_)
        second_ = std::exchange(largest_, elements);
    else
        second_ = std::max(second_, elements);
    return made;
}

const engine &draw_engine(input &in) {
    static constexpr std::size_t workspaces[] = {
        std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max(), 4096, 0};
    static std::map<std::array<int, 4>, engine> made;
    const int threads = static_cast<int>(in.between(1, 2));
    const auto set = in.pick({isa::avx512_bf16, isa::avx512, isa::avx2, isa::portable});
    const auto math = in.pick({math_mode::accurate, math_mode::strict, math_mode::fast});
    const int workspace = in.byte() % 4;
    const std::array<int, 4> key = {
        threads, static_cast<int>(set), static_cast<int>(math), workspace};
    const auto found = made.find(key);
    if (found != made.end()) return found->second;
    return made
        .emplace(key, engine({.threads = threads,
                          .max_isa = set,
                          .math = math,
                          .workspace_limit = workspaces[workspace]}))
        .first->second;
}

}  // namespace convgrad::fuzz

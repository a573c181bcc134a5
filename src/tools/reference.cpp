#include "tools/reference.hpp"

#include <cmath>
#include <cstddef>
#include <optional>

#include "conv/convert.hpp"

// Every output element is evaluated on its own, by gathering the terms of its sum. Products of two
// f32 values are exact in f64, so the only rounding before the last one is that of the f64 sum.

namespace convgrad::conv {
namespace {

struct sum {
    double value = 0, magnitude = 0;
    dim terms = 0;

    void add(double v) {
        value += v;
        magnitude += std::fabs(v);
    }
    void add_product(double a, double b) {
        add(a * b);
        ++terms;
    }
};

/// Typed read access to a buffer by element offset.
template <typename T>
class reader {
public:
    explicit reader(const void *data) : data_(static_cast<const T *>(data)) {}
    double operator[](dim offset) const { return to_float(data_[offset]); }

private:
    const T *data_;
};

using index = std::array<dim, 3>;

template <typename Body>
void for_each(const index &lengths, Body &&body) {
    index i{};
    for (i[0] = 0; i[0] < lengths[0]; ++i[0])
        for (i[1] = 0; i[1] < lengths[1]; ++i[1])
            for (i[2] = 0; i[2] < lengths[2]; ++i[2]) body(i);
}

index src_lengths(const problem &p) {
    return {p.x[0].src, p.x[1].src, p.x[2].src};
}
index dst_lengths(const problem &p) {
    return {p.x[0].dst, p.x[1].dst, p.x[2].dst};
}
index kernel_lengths(const problem &p) {
    return {p.x[0].kernel, p.x[1].kernel, p.x[2].kernel};
}

dim offset_of(const data_strides &s, dim n, dim c, const index &x) {
    return n * s.n + c * s.c + x[0] * s.x[0] + x[1] * s.x[1] + x[2] * s.x[2];
}
dim offset_of(const weights_strides &s, dim g, dim o, dim i, const index &k) {
    return g * s.g + o * s.o + i * s.i + k[0] * s.k[0] + k[1] * s.k[1] + k[2] * s.k[2];
}

/// The src position that output y reads through tap k; nothing where that is padding.
std::optional<index> src_position(const problem &p, const index &y, const index &k) {
    index x{};
    for (std::size_t d = 0; d < 3; ++d) {
        const axis &a = p.x[d];
        x[d] = y[d] * a.stride + k[d] * a.dilation - a.pad;
        if (x[d] < 0 || x[d] >= a.src) return std::nullopt;
    }
    return x;
}

/// The dst position that reads src position x through tap k; nothing where there is none.
std::optional<index> dst_position(const problem &p, const index &x, const index &k) {
    index y{};
    for (std::size_t d = 0; d < 3; ++d) {
        const axis &a = p.x[d];
        const dim from_start = x[d] + a.pad - k[d] * a.dilation;
        if (from_start < 0 || from_start % a.stride != 0) return std::nullopt;
        y[d] = from_start / a.stride;
        if (y[d] >= a.dst) return std::nullopt;
    }
    return y;
}

/// Σ src · weights for dst[n, channel, y].
template <typename T>
sum sum_forward(const problem &p, const buffers &data, dim n, dim channel, const index &y) {
    const reader<T> src(data.src), weights(data.weights);
    const dim g = channel / p.oc, o = channel % p.oc;
    sum s;
    for_each(kernel_lengths(p), [&](const index &k) {
        const auto x = src_position(p, y, k);
        if (!x) return;
        for (dim i = 0; i < p.ic; ++i)
            s.add_product(src[offset_of(p.src, n, g * p.ic + i, *x)],
                weights[offset_of(p.weights, g, o, i, k)]);
    });
    return s;
}

/// Σ dst · weights for src[n, channel, x].
template <typename T>
sum sum_backward_data(const problem &p, const buffers &data, dim n, dim channel, const index &x) {
    const reader<T> dst(data.dst), weights(data.weights);
    const dim g = channel / p.ic, i = channel % p.ic;
    sum s;
    for_each(kernel_lengths(p), [&](const index &k) {
        const auto y = dst_position(p, x, k);
        if (!y) return;
        for (dim o = 0; o < p.oc; ++o)
            s.add_product(dst[offset_of(p.dst, n, g * p.oc + o, *y)],
                weights[offset_of(p.weights, g, o, i, k)]);
    });
    return s;
}

/// Σ src · dst for weights[channel, i, k].
template <typename T>
sum sum_backward_weights(
    const problem &p, const buffers &data, dim channel, dim i, const index &k) {
    const reader<T> src(data.src), dst(data.dst);
    const dim g = channel / p.oc;
    sum s;
    for_each(dst_lengths(p), [&](const index &y) {
        const auto x = src_position(p, y, k);
        if (!x) return;
        for (dim n = 0; n < p.mb; ++n)
            s.add_product(
                src[offset_of(p.src, n, g * p.ic + i, *x)], dst[offset_of(p.dst, n, channel, y)]);
    });
    return s;
}

/// Σ over batch and space, for one channel of the bias gradient.
template <typename T>
sum sum_channel(const problem &p, const buffers &data, dim channel) {
    const bool from_dst = p.diff_bias == bias_gradient::from_dst;
    const reader<T> in(from_dst ? data.dst : data.src);
    const data_strides &strides = from_dst ? p.dst : p.src;
    sum s;
    for_each(from_dst ? dst_lengths(p) : src_lengths(p), [&](const index &x) {
        for (dim n = 0; n < p.mb; ++n) s.add_product(in[offset_of(strides, n, channel, x)], 1);
    });
    return s;
}

/// Where the element at a point lies in the output.
dim output_offset(const problem &p, const point &at) {
    const index x = {at.x[0], at.x[1], at.x[2]};
    switch (p.what) {
    case pass::forward:
        return offset_of(p.dst, at.a, at.b, x);
    case pass::backward_data:
        return offset_of(p.src, at.a, at.b, x);
    case pass::backward_weights:
        return offset_of(p.weights, at.a / p.oc, at.a % p.oc, at.b, x);
    case pass::backward_bias:
        break;
    }
    return at.a * p.bias_stride;
}

void *output_of(const problem &p, const buffers &data) {
    switch (p.what) {
    case pass::forward:
        return data.dst;
    case pass::backward_data:
        return data.src;
    case pass::backward_weights:
        return data.weights;
    case pass::backward_bias:
        break;
    }
    return data.bias;
}

/// The whole expression for one element: the sum, then bias, add, the previous value, ReLU.
template <typename In, typename Out>
sum evaluate(const problem &p, const buffers &data, const point &at) {
    const index x = {at.x[0], at.x[1], at.x[2]};
    sum s;
    switch (p.what) {
    case pass::forward:
        s = sum_forward<In>(p, data, at.a, at.b, x);
        break;
    case pass::backward_data:
        s = sum_backward_data<In>(p, data, at.a, at.b, x);
        break;
    case pass::backward_weights:
        s = sum_backward_weights<In>(p, data, at.a, at.b, x);
        break;
    case pass::backward_bias:
        s = sum_channel<In>(p, data, at.a);
        break;
    }
    if (p.bias) s.add(reader<In>(data.bias)[at.b * p.bias_stride]);
    if (p.add) s.add(reader<In>(data.add)[offset_of(p.add_strides, at.a, at.b, x)]);
    if (p.accumulate) s.add(reader<Out>(output_of(p, data))[output_offset(p, at)]);
    if (p.relu && !(s.value > 0) && !std::isnan(s.value)) s.value = 0;
    return s;
}

/// One element of the bias gradient.
template <typename In, typename Out>
sum evaluate_bias(const problem &p, const buffers &data, dim channel) {
    sum s = sum_channel<In>(p, data, channel);
    if (p.accumulate) s.add(reader<Out>(data.bias)[channel * p.bias_stride]);
    return s;
}

/// All output points, in order of the coordinates.
template <typename Body>
void for_each_point(const problem &p, Body &&body) {
    const bool weights = p.what == pass::backward_weights;
    const bool forward = p.what == pass::forward;
    if (p.what == pass::backward_bias) {
        for (dim a = 0; a < p.groups * p.oc; ++a) body(point{a, 0, {0, 0, 0}});
        return;
    }
    const dim a_length = weights ? p.groups * p.oc : p.mb;
    const dim b_length = weights ? p.ic : p.groups * (forward ? p.oc : p.ic);
    const index lengths = weights ? kernel_lengths(p) : forward ? dst_lengths(p) : src_lengths(p);
    for (dim a = 0; a < a_length; ++a)
        for (dim b = 0; b < b_length; ++b)
            for_each(lengths, [&](const index &x) { body(point{a, b, {x[0], x[1], x[2]}}); });
}

template <typename In, typename Out>
void compute(const problem &p, const buffers &data) {
    auto *out = static_cast<Out *>(output_of(p, data));
    for_each_point(p, [&](const point &at) {
        out[output_offset(p, at)] = round_to<Out>(evaluate<In, Out>(p, data, at).value);
    });
}

template <typename In, typename Out>
void compute_bias(const problem &p, const buffers &data) {
    auto *out = static_cast<Out *>(data.bias);
    const dim channels = p.groups * (p.diff_bias == bias_gradient::from_dst ? p.oc : p.ic);
    for (dim c = 0; c < channels; ++c)
        out[c * p.bias_stride] = round_to<Out>(evaluate_bias<In, Out>(p, data, c).value);
}

/// Calls body with a value of the C++ type behind `type`.
template <typename Body>
auto with_type(data_type type, Body &&body) {
    switch (type) {
    case data_type::bf16:
        return body(bf16{});
    case data_type::f16:
        return body(f16{});
    default:
        return body(float{});
    }
}

/// Calls body with values of the two C++ types.
template <typename Body>
auto with_types(data_type in, data_type out, Body &&body) {
    return with_type(in, [&](auto in_value) {
        return with_type(out, [&](auto out_value) { return body(in_value, out_value); });
    });
}

reference_value to_value(const sum &s) {
    return {s.value, s.magnitude, s.terms};
}

}  // namespace

void reference(const problem &p, const buffers &data) {
    with_types(p.type, p.out_type,
        [&](auto in, auto out) { compute<decltype(in), decltype(out)>(p, data); });
    if (p.diff_bias == bias_gradient::none || p.what == pass::backward_bias) return;
    with_types(p.type, p.diff_bias_type,
        [&](auto in, auto out) { compute_bias<decltype(in), decltype(out)>(p, data); });
}

reference_value reference_at(const problem &p, const buffers &data, const point &at) {
    return with_types(p.type, p.out_type, [&](auto in, auto out) {
        return to_value(evaluate<decltype(in), decltype(out)>(p, data, at));
    });
}

reference_value reference_bias_at(const problem &p, const buffers &data, dim channel) {
    return with_types(p.type, p.diff_bias_type, [&](auto in, auto out) {
        return to_value(evaluate_bias<decltype(in), decltype(out)>(p, data, channel));
    });
}

}  // namespace convgrad::conv

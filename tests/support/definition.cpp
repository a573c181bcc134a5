#include "support/definition.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace convgrad::test {
namespace {

bool is_transpose(op_kind kind) {
    return kind >= op_kind::conv_transpose;
}

dim value_or(const dims &list, std::size_t axis, dim missing) {
    return list.empty() ? missing : list[axis];
}

/// One spatial axis, in the symbols of the specification.
struct symbols {
    dim S, D, K, E, q, pb, pe;

    symbols(const attributes &attrs, std::size_t axis, dim kernel)
        : S(value_or(attrs.strides, axis, 1)), D(value_or(attrs.dilations, axis, 1)), K(kernel),
          E(D * (K - 1) + 1), q(value_or(attrs.output_padding, axis, 0)),
          pb(value_or(attrs.pads_begin, axis, 0)), pe(value_or(attrs.pads_end, axis, 0)) {}

    /// auto_pad's split of a total.
    void split(dim T, bool upper) {
        pb = upper ? T / 2 : T - T / 2;
        pe = T - pb;
    }
};

dim same_total(op_kind kind, const symbols &s, dim longer, dim shorter) {
    if (kind == op_kind::conv_transpose) return std::max<dim>(0, s.E - s.S);
    if (kind == op_kind::convolution_backward_data)
        return std::max<dim>(0, s.S * (shorter - 1) + s.E - longer + s.q);
    const dim L = is_transpose(kind) ? longer - s.q : longer;
    const dim r = L % s.S == 0 ? s.S : L % s.S;
    return std::max<dim>(0, s.E - r);
}

symbols resolved(
    op_kind kind, const attributes &attrs, std::size_t axis, dim longer, dim shorter, dim kernel) {
    symbols s(attrs, axis, kernel);
    if (attrs.auto_pad == "valid") s.split(0, true);
    if (attrs.auto_pad == "same_upper" || attrs.auto_pad == "same_lower")
        s.split(same_total(kind, s, longer, shorter), attrs.auto_pad == "same_upper");
    return s;
}

std::string format_of(op_kind kind, const attributes &attrs) {
    if (attrs.weights_format) return std::string(to_string(*attrs.weights_format));
    return is_transpose(kind) ? "XOI" : "XIO";
}

/// A position in space; ranks below 3 have trailing unit axes.
using position = std::array<dim, 3>;

template <typename Body>
void for_each_position(const position &lengths, Body &&body) {
    position at{};
    for (at[0] = 0; at[0] < lengths[0]; ++at[0])
        for (at[1] = 0; at[1] < lengths[1]; ++at[1])
            for (at[2] = 0; at[2] < lengths[2]; ++at[2]) body(at);
}

/// Where the axes of a packed tensor are.
struct axes_of {
    position lengths{1, 1, 1}, strides{};
    std::size_t rank;

    /// Space begins at dimension `first`.
    axes_of(const dims &shape, std::size_t first) : rank(shape.size() - 2) {
        for (std::size_t d = 0; d < rank; ++d) {
            lengths[d] = shape[first + d];
            strides[d] = stride(shape, first + d);
        }
    }
    static dim stride(const dims &shape, std::size_t axis) {
        dim s = 1;
        for (std::size_t d = axis + 1; d < shape.size(); ++d) s *= shape[d];
        return s;
    }
    [[nodiscard]] std::size_t offset(const position &x, dim rest) const {
        return static_cast<std::size_t>(
            x[0] * strides[0] + x[1] * strides[1] + x[2] * strides[2] + rest);
    }
};

/// A data tensor in NCX or NXC.
struct data_axes : axes_of {
    dim N, C, n_stride, c_stride;

    data_axes(const dims &shape, const attributes &attrs)
        : axes_of(shape, attrs.data_format == "NCX" ? 2 : 1), N(shape[0]) {
        const std::size_t c = attrs.data_format == "NCX" ? 1 : shape.size() - 1;
        C = shape[c];
        n_stride = stride(shape, 0);
        c_stride = stride(shape, c);
    }
    [[nodiscard]] std::size_t at(dim n, dim c, const position &x) const {
        return offset(x, n * n_stride + c * c_stride);
    }
};

/// A weights tensor in one of the four formats (section 3).
struct weights_axes : axes_of {
    dim I, O, i_stride, o_stride;

    weights_axes(const dims &shape, const std::string &format)
        : axes_of(shape, format.front() == 'X' ? 0 : 2) {
        const std::size_t first = format.front() == 'X' ? shape.size() - 2 : 0;
        const std::size_t i = first + (format.find('I') > format.find('O') ? 1 : 0);
        const std::size_t o = first + (format.find('O') > format.find('I') ? 1 : 0);
        I = shape[i];
        O = shape[o];
        i_stride = stride(shape, i);
        o_stride = stride(shape, o);
    }
    /// Channels over all groups; one of I and O is the number within a group.
    [[nodiscard]] std::size_t at(dim i, dim o, const position &k) const {
        return offset(k, i % I * i_stride + o % O * o_stride);
    }
};

}  // namespace

dense::dense(dims shape_) : shape(std::move(shape_)) {
    dim count = 1;
    for (dim d : shape) count *= d;
    values.assign(static_cast<std::size_t>(count), 0.0);
}

dims defined_convolution_lengths(
    op_kind kind, const attributes &attrs, const dims &longer, const dims &kernel) {
    dims lengths;
    for (std::size_t d = 0; d < kernel.size(); ++d) {
        const symbols s = resolved(kind, attrs, d, longer[d], 0, kernel[d]);
        const dim L = is_transpose(kind) ? longer[d] - s.q : longer[d];
        const dim room = L + s.pb + s.pe - s.E;
        lengths.push_back(room < 0 ? 0 : room / s.S + 1);
    }
    return lengths;
}

dims defined_transpose_lengths(
    op_kind kind, const attributes &attrs, const dims &shorter, const dims &kernel) {
    dims lengths;
    for (std::size_t d = 0; d < kernel.size(); ++d) {
        const symbols s = resolved(kind, attrs, d, 0, shorter[d], kernel[d]);
        lengths.push_back(s.S * (shorter[d] - 1) + s.E + s.q - s.pb - s.pe);
    }
    return lengths;
}

dense defined_result(op_kind kind, const attributes &attrs, const dense &in0, const dense &in1,
    const dense *bias, const dims &output) {
    dense out(output);
    // `longer` is src of the convolution or dst of the transposed one, `shorter` the other one.
    const bool transpose = is_transpose(kind);
    const auto which = (static_cast<int>(kind) - 13) % 3;  // 0 forward, 1 data, 2 weights
    const bool longer_first = transpose == (which == 1);
    const dense &longer = longer_first ? in0 : which == 2 ? in1 : out;
    const dense &shorter = !longer_first ? in0 : which == 2 ? in1 : out;
    const dense &weights = which == 2 ? out : in1;

    const data_axes l(longer.shape, attrs), s(shorter.shape, attrs);
    const weights_axes w(weights.shape, format_of(kind, attrs));
    position S{1, 1, 1}, D{1, 1, 1}, pb{};
    for (std::size_t d = 0; d < w.rank; ++d) {
        const symbols axis = resolved(kind, attrs, d, l.lengths[d], s.lengths[d], w.lengths[d]);
        S[d] = axis.S;
        D[d] = axis.D;
        pb[d] = axis.pb;
    }

    // Every pair (y, k) makes one long element, one short element and one weight meet.
    const auto meet = [&](dim n, dim cl, dim cs, const position &y, const position &k) {
        position x{};
        for (std::size_t d = 0; d < 3; ++d) {
            x[d] = y[d] * S[d] + k[d] * D[d] - pb[d];
            if (x[d] < 0 || x[d] >= l.lengths[d]) return;
        }
        const std::size_t li = l.at(n, cl, x), si = s.at(n, cs, y);
        const std::size_t wi = w.at(transpose ? cs : cl, transpose ? cl : cs, k);
        if (&weights == &out)
            out.values[wi] += longer.values[li] * shorter.values[si];
        else if (&shorter == &out)
            out.values[si] += longer.values[li] * weights.values[wi];
        else
            out.values[li] += shorter.values[si] * weights.values[wi];
    };
    const dim G = attrs.groups;
    for (dim n = 0; n < l.N; ++n)
        for (dim cl = 0; cl < l.C; ++cl)
            for (dim cs = 0; cs < s.C; ++cs) {
                if (cl / (l.C / G) != cs / (s.C / G)) continue;
                for_each_position(s.lengths, [&](const position &y) {
                    for_each_position(w.lengths, [&](const position &k) { meet(n, cl, cs, y, k); });
                });
            }
    if (bias != nullptr) {
        const data_axes o(out.shape, attrs);
        for (dim n = 0; n < o.N; ++n)
            for (dim c = 0; c < o.C; ++c)
                for_each_position(o.lengths, [&](const position &x) {
                    out.values[o.at(n, c, x)] += bias->values[static_cast<std::size_t>(c)];
                });
    }
    return out;
}

}  // namespace convgrad::test

// Data passes as implicit products: which input and which tap meet in an output.
#pragma once

#include "device.cuh"

namespace convgrad::cuda {

/// Greatest common divisor.
template <typename I>
__device__ inline I gcd(I a, I b) {
    while (b != 0) {
        const I r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/// One axis within a phase: position `out_first + out_step·j` for j < count reads input
/// `in_first + in_step·j + shift·t` through tap `tap_first + tap_step·t`, t < taps.
template <typename I>
struct axis_phase {
    I count, taps, in, in_first, in_step, shift, out_first, out_step, tap_first, tap_step;
};

/// Computed with the index type: 64-bit division is slow, and what is given fits.
template <typename I>
__device__ axis_phase<I> make_phase(const data_axis_args &a, bool backward, wide phase_number) {
    axis_phase<I> f;
    const I phase = static_cast<I>(phase_number), stride = static_cast<I>(a.stride),
            dilation = static_cast<I>(a.dilation), pad = static_cast<I>(a.pad),
            kernel = static_cast<I>(a.kernel);
    f.in = static_cast<I>(a.in);
    if (!backward) {
        f.count = static_cast<I>(a.out);
        f.taps = kernel;
        f.in_first = -pad;
        f.in_step = stride;
        f.shift = dilation;
        f.out_first = 0;
        f.out_step = 1;
        f.tap_first = 0;
        f.tap_step = 1;
        return f;
    }
    f.in_step = 1;
    f.out_first = phase;
    f.out_step = stride;
    if (stride == 1) {
        f.count = static_cast<I>(a.out);
        f.taps = kernel;
        f.tap_first = 0;
        f.tap_step = 1;
        f.in_first = pad;
        f.shift = -dilation;
        return f;
    }
    // Taps k with k·dilation ≡ phase + pad modulo the stride, if there are any.
    const I common = gcd(stride, dilation), target = (phase + pad) % stride;
    const I every = stride / common;
    f.count = (static_cast<I>(a.out) - phase + stride - 1) / stride;
    I first = 0;
    if (target % common == 0)
        while (first < kernel && first * dilation % stride != target) ++first;
    const bool none = target % common != 0 || first >= kernel;
    f.taps = none ? I(0) : (kernel - first + every - 1) / every;
    f.tap_first = first;
    f.tap_step = every;
    // Exact: the remainder is 0.
    f.in_first = none ? I(0) : (phase + pad - first * dilation) / stride;
    f.shift = -(every * dilation / stride);
    return f;
}

/// Rows or terms, as loads need them.
template <typename I>
struct place {
    wide offset;
    I x[3];
};

/// The sum `v` of one output, without the products that padding took part in: computed again if
/// there are any, or always.
template <typename T, typename I, bool Always = false>
__device__ __noinline__ float careful_sum(const data_args &p, const axis_phase<I> *phase,
    const place<I> &row, wide group, wide column, float v) {
    bool touches = false;
    for (int d = 0; d < 3; ++d) {
        const I first = row.x[d], last = first + phase[d].shift * (phase[d].taps - 1);
        if (first < 0 || first >= phase[d].in || last < 0 || last >= phase[d].in) touches = true;
    }
    if (!Always && !touches) return v;
    const T *const in = static_cast<const T *>(p.in), *const weights =
                                                          static_cast<const T *>(p.weights);
    v = 0;
    I t[3];
    for (t[0] = 0; t[0] < phase[0].taps; ++t[0])
        for (t[1] = 0; t[1] < phase[1].taps; ++t[1])
            for (t[2] = 0; t[2] < phase[2].taps; ++t[2]) {
                wide at = row.offset, w = group * p.w_group + column * p.w_out;
                bool inside = true;
                for (int d = 0; d < 3; ++d) {
                    const I moved = phase[d].shift * t[d], x = row.x[d] + moved;
                    inside = inside && x >= 0 && x < phase[d].in;
                    at += static_cast<wide>(moved) * p.in_strides.x[d];
                    w += (phase[d].tap_first + phase[d].tap_step * static_cast<wide>(t[d]))
                         * p.w_tap[d];
                }
                if (!inside) continue;
                for (wide c = 0; c < p.in_channels; ++c)
                    v = fmaf(
                        to_f32(in[at + c * p.in_strides.c]), to_f32(weights[w + c * p.w_in]), v);
            }
    return v;
}

}  // namespace convgrad::cuda

// How the positions of a data pass fall into phases by their remainder modulo the stride: computed
// by kernels and by the host.
#pragma once

#include "args.hpp"

#ifdef __CUDACC__
#define CONVGRAD_ANYWHERE __host__ __device__
#else
#define CONVGRAD_ANYWHERE
#endif

namespace convgrad::cuda {

/// Greatest common divisor.
template <typename I>
CONVGRAD_ANYWHERE inline I gcd(I a, I b) {
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
CONVGRAD_ANYWHERE axis_phase<I> make_phase(
    const data_axis_args &a, bool backward, wide phase_number) {
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

}  // namespace convgrad::cuda

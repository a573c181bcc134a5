// The sum of one weight's gradient, one product after the other.
#pragma once

#include "device.cuh"

namespace convgrad::cuda {

/// The sum `v` of one weight over the positions of a part, without the products that padding took
/// part in: computed again if there are any, or always.
template <typename T, bool Always = false>
__device__ __noinline__ float careful_weight(
    const weights_args &p, wide group, wide row, wide column, wide first, wide last, float v) {
    wide tap[3], rest = column / p.ic;
    bool touches = false;
    for (int d = 2; d >= 0; --d) {
        tap[d] = rest % p.x[d].kernel * p.x[d].dilation - p.x[d].pad;
        rest /= p.x[d].kernel;
        if (tap[d] < 0 || (p.x[d].out - 1) * p.x[d].stride + tap[d] >= p.x[d].in) touches = true;
    }
    if (!Always && !touches) return v;
    const T *const src = static_cast<const T *>(p.src), *const dst = static_cast<const T *>(p.dst);
    v = 0;
    for (wide i = first; i < last; ++i) {
        wide n = i, at = (group * p.ic + column % p.ic) * p.src_strides.c,
             out = (group * p.oc + row) * p.dst_strides.c;
        bool inside = true;
        for (int d = 2; d >= 0; --d) {
            const wide y = n % p.x[d].out, x = y * p.x[d].stride + tap[d];
            n /= p.x[d].out;
            inside = inside && x >= 0 && x < p.x[d].in;
            at += x * p.src_strides.x[d];
            out += y * p.dst_strides.x[d];
        }
        if (inside)
            v = fmaf(
                to_f32(src[at + n * p.src_strides.n]), to_f32(dst[out + n * p.dst_strides.n]), v);
    }
    return v;
}

}  // namespace convgrad::cuda

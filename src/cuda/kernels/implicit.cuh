// Data passes as implicit products: which input and which tap meet in an output.
#pragma once

#include "device.cuh"
#include "phases.hpp"

namespace convgrad::cuda {

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

/// Which image and which position within the phase row m is.
__device__ inline int find_position(const axis_phase<int> *phase, int m, int (&j)[3]) {
    for (int d = 2; d >= 0; --d) {
        j[d] = m % phase[d].count;
        m /= phase[d].count;
    }
    return m;
}

/// The sum of one output, one product after the other: splitting makes NaN of infinities, and
/// padding and the groups beside it are multiplied by zeros.
template <typename T>
__device__ __noinline__ float careful_output(
    const data_args &p, const axis_phase<int> *phase, int m, wide out_channel) {
    int j[3];
    place<int> row;
    const wide group = out_channel / p.out_channels;
    row.offset =
        find_position(phase, m, j) * p.in_strides.n + group * p.in_channels * p.in_strides.c;
    for (int d = 0; d < 3; ++d) {
        row.x[d] = phase[d].in_first + phase[d].in_step * j[d];
        row.offset += row.x[d] * p.in_strides.x[d];
    }
    return careful_sum<T, int, true>(p, phase, row, group, out_channel % p.out_channels, 0.0f);
}

}  // namespace convgrad::cuda

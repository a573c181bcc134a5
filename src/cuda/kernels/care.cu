// What others computed (cuDNN) without care for padding, made right: sums that are not finite, once
// more without the products that padding took part in.
//
// A data pass multiplies padding by weights, so that finite weights leave nothing to do, and few
// weights are looked at instead of many outputs. A weights gradient is small itself.
#include "care_args.hpp"
#include "implicit.cuh"
#include "weights_sum.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

template <typename T>
__device__ void scan(const care_scan_args &p) {
    constexpr int piece = 16 / sizeof(T);
    const T *const data = static_cast<const T *>(p.data);
    const wide pieces = p.length / piece;
    for (int block = static_cast<int>(blockIdx.x); block < care_scan_blocks;
         block += static_cast<int>(gridDim.x)) {
        bool fine = true;
        const int t = static_cast<int>(threadIdx.x);
#pragma unroll 4
        for (wide i = static_cast<wide>(block) * care_threads + t; i < pieces;
             i += care_scan_blocks * care_threads) {
            const uint4 v = reinterpret_cast<const uint4 *>(data)[i];
            const T *const values = reinterpret_cast<const T *>(&v);
#pragma unroll
            for (int e = 0; e < piece; ++e) fine = fine && is_finite(to_f32(values[e]));
        }
        if (block == 0 && pieces * piece + t < p.length && t < piece)
            fine = fine && is_finite(to_f32(data[pieces * piece + t]));
        const int found = __syncthreads_or(fine ? 0 : 1);
        if (t == 0) p.found[block] = found != 0 ? 1 : 0;
    }
}

template <typename T>
__device__ void care_data(const care_data_args &q) {
    const int t = static_cast<int>(threadIdx.x);
    const bool mine = t < care_scan_blocks && q.found[t] != 0;
    if (__syncthreads_or(mine ? 1 : 0) == 0) return;
    const data_args &p = q.data;
    const wide channels = p.groups * p.out_channels;
    const int phases = static_cast<int>(p.phases[0] * p.phases[1] * p.phases[2]);
    for (int number = 0; number < phases; ++number) {
        axis_phase<int> phase[3];
        wide rows = p.mb;
        for (int d = 2, rest = number; d >= 0; --d) {
            const int of_axis = static_cast<int>(p.phases[d]);
            phase[d] = make_phase<int>(p.x[d], p.backward != 0, rest % of_axis);
            rest /= of_axis;
            rows *= phase[d].count;
        }
        for (wide i = static_cast<wide>(blockIdx.x) * care_threads + t; i < rows * channels;
             i += static_cast<wide>(gridDim.x) * care_threads) {
            const int m = static_cast<int>(i / channels);
            const wide channel = i % channels;
            int j[3];
            wide at =
                find_position(phase, m, j) * p.end.out_strides.n + channel * p.end.out_strides.c;
            for (int d = 0; d < 3; ++d)
                at += (phase[d].out_first + phase[d].out_step * static_cast<wide>(j[d]))
                      * p.end.out_strides.x[d];
            T *const out = static_cast<T *>(p.end.out) + at;
            if (!is_finite(to_f32(*out))) round_to(*out, careful_output<T>(p, phase, m, channel));
        }
    }
}

/// Element i, put in its place.
template <typename T>
__device__ void place_weight(const care_weights_args &q, wide i) {
    const weights_args &p = q.weights;
    const int taps = static_cast<int>(p.taps), ic = static_cast<int>(p.ic), of_row = taps * ic;
    float v = to_f32(static_cast<const T *>(q.from)[i]);
    const wide row = i / of_row, group = row / p.oc, o = row % p.oc;
    const int rest = static_cast<int>(i % of_row), c = q.taps_last != 0 ? rest / taps : rest % ic,
              tap = q.taps_last != 0 ? rest % taps : rest / ic;
    if (q.careful != 0 && !is_finite(v))
        v = careful_weight<T, true>(
            p, group, o, static_cast<wide>(tap) * ic + c, 0, p.positions, 0.0f);
    wide at = group * q.group_stride + o * q.out_stride + c * q.in_stride;
    for (int d = 2, k = tap; d >= 0; --d) {
        at += k % static_cast<int>(p.x[d].kernel) * q.tap_strides[d];
        k /= static_cast<int>(p.x[d].kernel);
    }
    T *const out = static_cast<T *>(q.out) + at;
    if (q.accumulate != 0) v += to_f32(*out);
    round_to(*out, v);
}

/// Where all lie in their places, 16 bytes are looked at at once: there are whole pieces of them.
template <typename T>
__device__ void care_weights(const care_weights_args &q) {
    constexpr int piece = 16 / sizeof(T);
    const weights_args &p = q.weights;
    const wide all = p.groups * p.oc * p.taps * p.ic,
               first = static_cast<wide>(blockIdx.x) * care_threads + threadIdx.x,
               step = static_cast<wide>(gridDim.x) * care_threads;
    if (q.from != q.out) {
        for (wide i = first; i < all; i += step) place_weight<T>(q, i);
        return;
    }
    for (wide i = first; i < all / piece; i += step) {
        const uint4 v = static_cast<const uint4 *>(q.from)[i];
        const T *const values = reinterpret_cast<const T *>(&v);
        bool fine = true;
#pragma unroll
        for (int e = 0; e < piece; ++e) fine = fine && is_finite(to_f32(values[e]));
        if (fine) continue;
        for (int e = 0; e < piece; ++e) place_weight<T>(q, i * piece + e);
    }
}

}  // namespace code

#define CONVGRAD_CARE(type, T)                                                                     \
    extern "C" __global__ void __launch_bounds__(care_threads)                                     \
        care_scan_##type(const __grid_constant__ care_scan_args p) {                               \
        scan<T>(p);                                                                                \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(care_threads)                                     \
        care_data_##type(const __grid_constant__ care_data_args p) {                               \
        care_data<T>(p);                                                                           \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(care_threads)                                     \
        care_weights_##type(const __grid_constant__ care_weights_args p) {                         \
        care_weights<T>(p);                                                                        \
    }
CONVGRAD_CARE(f32, float)
CONVGRAD_CARE(bf16, bf16)
CONVGRAD_CARE(f16, f16)

}  // namespace convgrad::cuda

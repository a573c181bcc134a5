// What device code takes for granted, for a compiler of the host: included before everything else.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "block.hpp"

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#undef __noinline__
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __noinline__ __attribute__((noinline))

#define threadIdx (::convgrad::emulator::here().at)
#define blockIdx (::convgrad::emulator::here().block)
#define blockDim (::convgrad::emulator::block_size)
#define gridDim (::convgrad::emulator::grid_size)

using std::max;
using std::min;

inline void __syncthreads() {
    convgrad::emulator::sync_threads(false);
}
inline int __syncthreads_or(int mine) {
    return convgrad::emulator::sync_threads(mine != 0) ? 1 : 0;
}
inline void __syncwarp(unsigned = ~0U) {
    convgrad::emulator::together("syncwarp", nullptr, [](void **, int) {});
}
template <typename T>
T __ldg(const T *from) {
    return *from;
}
inline float __uint_as_float(unsigned v) {
    float f;
    std::memcpy(&f, &v, sizeof f);
    return f;
}
inline unsigned __float_as_uint(float f) {
    unsigned v;
    std::memcpy(&v, &f, sizeof v);
    return v;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) >> (by & 31));
}
template <typename T>
T shuffle(const char *what, T value, int from) {
    struct request {
        T value;
        int from;
        T result;
    } mine{value, from, {}};
    convgrad::emulator::together(what, &mine, [](void **all, int lanes) {
        for (int i = 0; i < lanes; ++i) {
            auto *const one = static_cast<request *>(all[i]);
            one->result = static_cast<request *>(all[one->from % lanes])->value;
        }
    });
    return mine.result;
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    return shuffle("shfl.xor", value, convgrad::emulator::here().lane ^ mask);
}
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
    return shuffle("shfl", value, from);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, int by) {
    const int lane = convgrad::emulator::here().lane;
    return shuffle("shfl.down", value, lane + by < 32 ? lane + by : lane);
}
inline unsigned __ballot_sync(unsigned, int mine) {
    struct request {
        int mine;
        unsigned result;
    } one{mine, 0};
    convgrad::emulator::together("ballot", &one, [](void **all, int lanes) {
        unsigned bits = 0;
        for (int i = 0; i < lanes; ++i)
            if (static_cast<request *>(all[i])->mine != 0) bits |= 1U << i;
        for (int i = 0; i < lanes; ++i) static_cast<request *>(all[i])->result = bits;
    });
    return one.result;
}
inline int __any_sync(unsigned mask, int mine) {
    return __ballot_sync(mask, mine) != 0 ? 1 : 0;
}
inline int __clz(int v) {
    return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v));
}

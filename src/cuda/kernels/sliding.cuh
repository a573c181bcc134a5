// Depthwise layers of any kernel, stride and dilation, on one to three axes.
//
// A thread has some positions along one axis, and walks the taps of that axis with a window of the
// input in registers, so that an input serves all positions that meet it: one load of input and one
// of weights for I multiply-adds. Taps of the other axes are loops around that. Nothing is shared
// between threads: what neighbours read again comes from the first-level cache. Lanes of a warp are
// neighbouring channels (channels last) or columns (planes).
#pragma once

#include "implicit.cuh"
#include "sliding_args.hpp"

namespace convgrad::cuda::sliding {

/// V neighbouring channels, zero where they are not `there`.
template <typename T, int V>
__device__ inline void load(float (&v)[V], const T *from, bool there) {
    struct alignas(sizeof(T) * V) some {
        T v[V];
    };
    some raw;
    if constexpr (V == 1) {
        raw.v[0] = there ? __ldg(from) : T(0.0f);
    } else if constexpr (sizeof(some) == 4) {
        const unsigned all = there ? __ldg(reinterpret_cast<const unsigned *>(from)) : 0U;
        raw = *reinterpret_cast<const some *>(&all);
    } else {
        uint2 all = make_uint2(0, 0);
        if (there) all = __ldg(reinterpret_cast<const uint2 *>(from));
        raw = *reinterpret_cast<const some *>(&all);
    }
#pragma unroll
    for (int c = 0; c < V; ++c) v[c] = to_f32(raw.v[c]);
}

__device__ inline int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

/// The input along the walk's axis, as a thread sees it.
template <typename T>
struct line {
    const T *data;  // at position 0
    int stride, length;

    template <int V>
    __device__ void read(float (&v)[V], int x) const {
        load<T, V>(v, data + static_cast<wide>(x) * stride,
            static_cast<unsigned>(x) < static_cast<unsigned>(length));
    }
};

}  // namespace convgrad::cuda::sliding

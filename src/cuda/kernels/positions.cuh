// Positions of diff_dst that a weights gradient sums over, and what its taps read there.
#pragma once

#include "device.cuh"

namespace convgrad::cuda {

struct __align__(16) position {
    wide src, dst;  // places in the tensors; dst < 0: beyond the end
    int x[3], unused;
};

__device__ inline position find_position(const dense_weights_args &q, wide index, wide last) {
    const weights_args &p = q.weights;
    position at;
    at.unused = 0;
    if (index >= last) {
        at.src = 0;
        at.dst = -1;
        at.x[0] = 1 << 30;
        at.x[1] = at.x[2] = 0;
        return at;
    }
    int k = static_cast<int>(index), y[3];
    for (int d = 2; d >= 0; --d) {
        const int length = static_cast<int>(p.x[d].out);
        y[d] = k % length;
        k /= length;
    }
    at.src = k * q.src_strides.n;
    at.dst = k * q.dst_strides.n;
    for (int d = 0; d < 3; ++d) {
        at.x[d] = y[d] * static_cast<int>(p.x[d].stride) - static_cast<int>(p.x[d].pad);
        at.src += static_cast<wide>(at.x[d]) * q.src_strides.x[d];
        at.dst += static_cast<wide>(y[d]) * q.dst_strides.x[d];
    }
    return at;
}

/// What one thread reads of src at each position: a tap and a piece of its channels.
template <typename T>
struct tap_reader {
    const T *src;
    int dx[3];
    bool there;

    __device__ tap_reader(const dense_weights_args &q, wide group, wide piece) {
        const weights_args &p = q.weights;
        wide tap = piece / q.tap_pieces;
        there = tap < p.taps;
        if (!there) tap = 0;
        src = static_cast<const T *>(q.src) + group * q.src_group
              + piece % q.tap_pieces * static_cast<int>(16 / sizeof(T));
        for (int d = 2; d >= 0; --d) {
            dx[d] = static_cast<int>(tap % p.x[d].kernel * p.x[d].dilation);
            tap /= p.x[d].kernel;
            src += dx[d] * q.src_strides.x[d];
        }
    }
    __device__ bool is_inside(const weights_args &p, const position &at) const {
        const auto inside = [&](int d) {
            return static_cast<unsigned>(at.x[d] + dx[d]) < static_cast<unsigned>(p.x[d].in);
        };
        // Without branches, so that positions can be looked at side by side.
        return there & inside(0) & inside(1) & inside(2);
    }
};

/// Which weight a column (a tap and a channel of merged groups) belongs to.
struct weight_place {
    wide own, k;  // the group within the merged one; tap and channel within it
    bool there;
};
__device__ inline weight_place find_weight(const dense_weights_args &q, wide column, int chunk) {
    const weights_args &p = q.weights;
    const int padded = q.tap_pieces * chunk, tap = static_cast<int>(column) / padded,
              c = static_cast<int>(column) % padded, ic = static_cast<int>(p.ic);
    return {c / ic, static_cast<wide>(tap) * ic + c % ic, tap < p.taps && c < q.ic};
}

}  // namespace convgrad::cuda

// Depthwise kernels for channels that lie side by side, one warp at a time.
//
// Lanes go along channels. A thread has one channel (or two) and a strip of columns, and walks down
// the rows of an image with the rows of sums that are not complete (a weights gradient: the rows of
// diff_dst that are still needed) in registers, as a ring: loops are unrolled by the ring's length,
// so that its places are names. Rows outside of the image are not multiplied.
//
// A warp copies what its strips read to shared memory of its own, a few rows ahead: it waits for
// its own copies and for nobody else. Columns beside the image are copied as zeros. Neighbouring
// strips read some columns twice; the second time they come from the second-level cache.
//
// What is rare, tensors that are not aligned and results that are more than sums, is done between
// the steps of the walk, in one place: in the unrolled loop it would be there for each step.
#pragma once

#include "depthwise.cuh"
#include "instructions.cuh"
#include "ring_args.hpp"

namespace convgrad::cuda::ring {

/// Which taps meet where, known when this is compiled.
template <typename T, int K, staged_mode M>
struct geometry {
    static constexpr ring_shape s = ring_shape_of(K, M, sizeof(T));
    static constexpr bool back = M == staged_mode::back;
    static constexpr int stride = M == staged_mode::strided ? 2 : 1;
    static constexpr int parity = K / 2 % 2;  // backward: of the pad
    static constexpr int first = !back ? 0 : parity != 0 ? (3 - K) / 2 : (1 - K) / 2;
    static constexpr int period = M == staged_mode::strided ? 2 * s.rows : K;  // in rows of input

    /// Outputs of a strip that read through a tap kx, and which those are. Loops are over what
    /// there is: conditions in them take the compiler ten times as long.
    static constexpr int meeting = back ? s.columns / 2 : s.columns;
    static __device__ constexpr int output(int kx, int i) {
        return back ? 2 * i + (kx + parity) % 2 : i;
    }
    /// The column of the window that output `out` reads through tap kx.
    static __device__ constexpr int column(int kx, int out) {
        return back ? (out + parity - kx) / 2 - first : out * stride + kx;
    }
    /// Whether it reads through none before that one.
    static __device__ constexpr bool is_first(int kx) { return kx < (back ? 2 : 1); }
    /// Rows of taps that input row u of a round meets: this one, and every `stride`th from there.
    static __device__ constexpr int first_tap(int u) { return stride == 2 ? u % 2 : 0; }
    /// Where the row waits that it meets through row ky of taps.
    static __device__ constexpr int place(int u, int ky) {
        if (back) return (2 * u + ky) % K;
        return (u / stride - ky / stride + s.rows) % s.rows;
    }
    /// Whether that row of outputs starts there, and whether it is complete.
    static __device__ constexpr bool starts(int ky) { return back ? ky >= K - 2 : ky == 0; }
    static __device__ constexpr bool ends(int ky) { return back ? ky < 2 : ky == K - 1; }

    /// The input's column that strip 0 starts to read with.
    static __device__ int first_column(const ring_args &a) {
        return back ? (a.base.pad_x - a.shift_x - parity) / 2 + first : -a.base.pad_x;
    }
    /// Rows of the input that output rows y … end − 1 read, those outside of the image too.
    static __device__ int first_row(const ring_args &a, int y) {
        return back ? (y + a.base.pad_y - a.shift_y - K + 2) >> 1 : y * stride - a.base.pad_y;
    }
    static __device__ int end_row(const ring_args &a, int end) {
        return back ? ((end - 1 + a.base.pad_y - a.shift_y) >> 1) + 1
                    : (end - 1) * stride - a.base.pad_y + K;
    }
    /// The row of outputs that is complete with such a row, and which may be none.
    static __device__ int first_out(const ring_args &a, int row) {
        return back ? 2 * row - a.base.pad_y : (row + a.base.pad_y - (K - 1)) >> (stride - 1);
    }
};

/// What a block computes.
struct job {
    int channel, strip, image;  // the first ones; channel: in blocks
    int y, end;                 // rows of the output
    int part;                   // of a weights gradient
    int rounds;
};
__device__ inline job find_job(const ring_args &a, int block, int rows) {
    job here;
    here.channel = block % a.channel_blocks;
    here.part = block / a.channel_blocks;
    here.strip = here.part % a.strip_blocks * a.block_strips;
    const int rest = here.part / a.strip_blocks;
    here.y = rest % a.base.segments * a.base.segment_rows;
    here.end = min(rows, here.y + a.base.segment_rows);
    here.image = rest / a.base.segments * a.rounds * a.block_images;
    here.rounds = min(a.rounds, (a.images - here.image + a.block_images - 1) / a.block_images);
    return here;
}

/// Where a lane of a block is, in its first round.
struct spot {
    int channel, strip, image;
    bool busy;
};
template <int C>
__device__ inline spot find_spot(const ring_args &a, const job &here, int flat) {
    const int place = flat / a.lanes, image = place / a.block_strips;
    spot at;
    at.channel = (here.channel * a.lanes + flat - place * a.lanes) * C;
    at.strip = here.strip + place - image * a.block_strips;
    at.image = here.image + image;
    at.busy = image < a.block_images && at.strip < a.base.strips && at.channel < a.base.channels;
    return at;
}

/// A warp's columns of a row on their way to shared memory, 16 bytes by each thread at a time; or,
/// where tensors do not allow that, each lane's own.
template <typename T, int C, int Columns>
struct stream {
    static constexpr int lane_bytes = C * static_cast<int>(sizeof(T)), unit_lanes = 16 / lane_bytes,
                         units = 32 / unit_lanes, at_once = 32 / units,
                         passes = (Columns + at_once - 1) / at_once;
    // Bits: columns that lie in the image, by pass or one by one; rounds with an image; whether
    // this thread takes part in the last pass; whether it has both channels.
    static constexpr int rounds_shift = 20;
    static constexpr unsigned last_bit = 1U << 30, pair_bit = 1U << 31;
    static_assert(Columns <= rounds_shift && ring_most_rounds < 1 << (30 - rounds_shift));
    const char *from;  // a row
    unsigned bits;

    __device__ void start(
        const ring_args &a, const ring_source &t, const job &here, int step, int first, int row) {
        const int thread = static_cast<int>(threadIdx.x), mine = thread % 32 / units;
        const bool whole = t.unit == 16;
        const spot at =
            find_spot<C>(a, here, whole ? thread / 32 * 32 + thread % units * unit_lanes : thread);
        const int column = at.strip * step + first + (whole ? mine : 0);
        from = static_cast<const char *>(t.data) + at.image * t.image + row * t.row
               + static_cast<wide>(column) * t.column + at.channel * static_cast<int>(sizeof(T));
        bits = 0;
        const int rounds =
            at.busy ? max(0, (a.images - at.image + a.block_images - 1) / a.block_images) : 0;
        for (int i = 0; i * (whole ? at_once : 1) < Columns; ++i)
            if (rounds != 0
                && static_cast<unsigned>(column + i * (whole ? at_once : 1))
                       < static_cast<unsigned>(t.columns))
                bits |= 1U << i;
        bits |= static_cast<unsigned>(min(rounds, ring_most_rounds)) << rounds_shift;
        if (mine + (passes - 1) * at_once < Columns) bits |= last_bit;
        if (at.channel + 1 < a.base.channels) bits |= pair_bit;
    }
    /// To the next image.
    __device__ void next(wide jump) {
        from += jump;
        if ((bits & (last_bit - 1U)) >> rounds_shift > 1)
            bits -= 1U << rounds_shift;
        else
            bits &= last_bit | pair_bit;
    }
    /// A row to shared memory, where this thread's first 16 bytes of it go.
    __device__ void copy(const ring_source &t, unsigned to) {
#pragma unroll
        for (int i = 0; i < passes; ++i)
            copy_async_if(to + static_cast<unsigned>(i) * 512,
                from + static_cast<wide>(i * at_once) * t.column, bits & 1U << i,
                i + 1 < passes || Columns % at_once == 0 ? 1U : bits & last_bit);
        from += t.row;
    }
    /// To where this lane's part of it is.
    __device__ void copy_alone(const ring_source &t, unsigned char *to) {
        const char *at = from;
#pragma unroll 1
        for (int j = 0; j < Columns; ++j) {
            const bool inside = (bits >> j & 1U) != 0;
            if (lane_bytes == 4 && t.unit == 4) {
                copy_async<4>(shared_address(to), at, inside);
            } else {
#pragma unroll
                for (int e = 0; e < C; ++e)
                    reinterpret_cast<T *>(to)[e] = inside && (e == 0 || (bits & pair_bit) != 0)
                                                       ? __ldg(reinterpret_cast<const T *>(at) + e)
                                                       : T(0.0f);
            }
            at += t.column;
            to += 32 * lane_bytes;
        }
        from += t.row;
    }
};

/// A thread's places in the shared memory of its warp.
struct memory {
    unsigned char *lane;  // of its channels
    unsigned copies;      // of the 16 bytes that it copies
};
template <int LaneBytes>
__device__ inline memory find_memory(const ring_args &a) {
    const int t = static_cast<int>(threadIdx.x);
    unsigned char *const warp = dynamic_shared() + t / 32 * a.warp_bytes;
    return {warp + t % 32 * LaneBytes, shared_address(warp) + static_cast<unsigned>(t) % 32 * 16};
}

/// The channels of a lane at a column of a row in shared memory.
template <typename T, int C>
__device__ inline void load_lane(float (&v)[C], const unsigned char *from) {
    const depthwise::pack<T, C> raw = *reinterpret_cast<const depthwise::pack<T, C> *>(from);
#pragma unroll
    for (int e = 0; e < C; ++e) v[e] = to_f32(raw.v[e]);
}

/// To the next row of a warp's ring.
template <int Bytes>
__device__ inline int next_row(int at) {
    return at == (ring_stages - 1) * Bytes ? 0 : at + Bytes;
}

/// Takes steps of a walk from `phase` on, until one says that it is not to be taken.
template <int Period, typename Walk>
__device__ __forceinline__ void take_steps(Walk &walk, int &phase) {
    switch (phase) {
#define CONVGRAD_RING_STEP(n)                                                                      \
    case n:                                                                                        \
        if constexpr (n < Period) {                                                                \
            phase = n;                                                                             \
            if (!walk.template step<n>()) break;                                                   \
        }                                                                                          \
        [[fallthrough]];
        CONVGRAD_RING_STEP(0)
        CONVGRAD_RING_STEP(1)
        CONVGRAD_RING_STEP(2)
        CONVGRAD_RING_STEP(3)
        CONVGRAD_RING_STEP(4)
        CONVGRAD_RING_STEP(5)
        CONVGRAD_RING_STEP(6)
        CONVGRAD_RING_STEP(7)
#undef CONVGRAD_RING_STEP
    default:
        phase = 0;
    }
}

}  // namespace convgrad::cuda::ring

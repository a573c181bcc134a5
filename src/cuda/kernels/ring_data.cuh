// Forward and backward data by rings: see ring.cuh.
#pragma once

#include "ring.cuh"

namespace convgrad::cuda::ring {

/// The rows of the input that a warp walks through, image after image.
template <typename T, int K, staged_mode M>
struct feeder {
    using g = geometry<T, K, M>;
    static constexpr int row_bytes = ring_row_bytes(g::s, false);
    const ring_args &a;
    stream<T, g::s.channels, g::s.window> columns;
    wide jump;          // from behind an image's last row to the first one of the next
    int left, alone;    // rows of this image that are still to be copied: 16 bytes at a time, or
                        // by each lane alone
    int count, rounds;  // rows of each image, images

    __device__ feeder(const ring_args &args, const job &here) : a(args) {
        const int low = max(0, g::first_row(a, here.y)),
                  high = min(a.base.in_rows, g::end_row(a, here.end));
        columns.start(a, a.in, here, g::s.step, g::first_column(a), low);
        count = max(0, high - low);
        left = a.in.unit == 16 ? count : 0;
        alone = count - left;
        rounds = here.rounds;
        jump = a.block_images * a.in.image - count * a.in.row;
    }
    /// Asks for one row more, into a row of the ring.
    __device__ void load(unsigned to) {
        if (left != 0) {
            columns.copy(a.in, to);
            if (--left == 0 && --rounds > 0) {
                left = count;
                columns.next(jump);
            }
        }
        commit_copies();
    }
    __device__ void load_alone(unsigned char *to) {
        if (alone != 0) {
            columns.copy_alone(a.in, to);
            if (--alone == 0 && --rounds > 0) {
                alone = count;
                columns.next(jump);
            }
        }
        commit_copies();
    }
};

/// A block's taps, in shared memory by channel.
template <typename T, int K, int C>
__device__ inline void fetch_taps(const ring_args &a, const job &here, T *to) {
    const depthwise_args &p = a.base;
    const int channels = a.lanes * C, first = here.channel * channels;
#pragma unroll 4
    for (int e = static_cast<int>(threadIdx.x); e < channels * K * K;
         e += static_cast<int>(blockDim.x)) {
        const int c = a.taps_along_channels != 0 ? e % channels : e / (K * K),
                  i = a.taps_along_channels != 0 ? e / channels : e % (K * K);
        const T *const from = static_cast<const T *>(p.weights) + (first + c) * p.w_channel
                              + i / K * p.w_y + i % K * p.w_x;
        to[c * K * K + (p.flip != 0 ? K * K - 1 - i : i)] =
            first + c < p.channels ? __ldg(from) : T(0.0f);
    }
}

/// A thread's taps.
template <typename T, int K, int C>
struct operands {
    float taps[K * K][C];
    bool finite;

    __device__ void load(const ring_args &a, const T *taps_of_block) {
        const int flat = static_cast<int>(threadIdx.x) % a.lanes;
        float all = 0;
#pragma unroll
        for (int i = 0; i < K * K; ++i)
#pragma unroll
            for (int e = 0; e < C; ++e) {
                taps[i][e] = to_f32(taps_of_block[(flat * C + e) * K * K + i]);
                all = fmaf(taps[i][e], 0.0f, all);
            }
        finite = all == 0.0f;
    }
};
/// What a thread's sums start with, to shared memory: registers are for sums.
template <typename T, int C>
__device__ inline void fetch_bias(const ring_args &a, int channel, unsigned char *to) {
#pragma unroll
    for (int e = 0; e < C; ++e)
        reinterpret_cast<T *>(to)[e] =
            a.bias != nullptr && channel + e < a.base.channels
                ? static_cast<const T *>(a.bias)[(channel + e) * a.base.end.bias_stride]
                : T(0.0f);
}

/// Stores columns of a row.
template <typename T, int Columns, int C>
__device__ __forceinline__ void store_row(
    const ring_args &a, char *out, const float (&sums)[Columns][C], unsigned mask) {
    depthwise::pack<T, C> done[Columns];
#pragma unroll
    for (int i = 0; i < Columns * C; ++i) round_to(done[i / C].v[i % C], sums[i / C][i % C]);
    const auto at = [&](int j) {
        return reinterpret_cast<depthwise::pack<T, C> *>(out + static_cast<wide>(a.out_column) * j);
    };
    if (mask == (1U << Columns) - 1U) {
#pragma unroll
        for (int j = 0; j < Columns; ++j) *at(j) = done[j];
        return;
    }
    mask = opaque(mask);
#pragma unroll
    for (int j = 0; j < Columns; ++j)
        if (mask >> j & 1U) *at(j) = done[j];
}

/// Outputs of channels whose taps are not all finite: without the products that padding took part
/// in.
template <typename T, int K, staged_mode M>
__device__ __noinline__ void store_with_care(
    const ring_args &a, int n, int first_channel, int y, int end, int x, unsigned mask) {
    using g = geometry<T, K, M>;
    const epilogue_args &e = a.base.end;
    for (int channel = first_channel; channel < min(first_channel + g::s.channels, a.base.channels);
         ++channel)
        for (int row = y; row < end; ++row)
            for (int j = 0; mask >> j != 0; ++j) {
                if ((mask >> j & 1U) == 0) continue;
                float v = depthwise::careful_sum < T, K, g::back ? 2 : g::stride,
                      g::back > (a.base, n, channel, row, x + j);
                if (a.bias != nullptr)
                    v += to_f32(static_cast<const T *>(a.bias)[channel * e.bias_stride]);
                const depthwise::out_place at = depthwise::out_of(e, n, channel, row, x + j);
                store_result<T>(e, v, channel, at.out, at.add);
            }
}

/// A thread on its way down the rows of an image.
template <typename T, int K, staged_mode M>
struct data_walk {
    using g = geometry<T, K, M>;
    static constexpr int C = g::s.channels, columns = g::s.columns,
                         row_bytes = feeder<T, K, M>::row_bytes, bias_at = ring_stages * row_bytes,
                         box_at = bias_at + 32 * g::s.lane_bytes;
    const ring_args &a;
    const operands<T, K, C> &with;
    feeder<T, K, M> &feed;
    memory mine;
    int slot, before;     // rows of the ring: this one, and the one that was read before it
    char *out;            // the row that is complete next
    unsigned mask;        // columns that are stored
    int y, low, stored;   // the next row, and those that are stored at once
    int row, high, last;  // of the input; those behind `high` lie outside of the image
    float sums[g::s.rows][columns][C];

    /// All products of one row of the input: its place in the ring's round is U.
    template <int U>
    __device__ __forceinline__ void multiply() {
        float v[g::s.window][C], start[C];
        load_lane<T, C>(start, mine.lane + bias_at);
#pragma unroll
        for (int j = 0; j < g::s.window; ++j)
            load_lane<T, C>(v[j], mine.lane + slot + j * 32 * g::s.lane_bytes);
#pragma unroll
        for (int kx = 0; kx < K; ++kx)
#pragma unroll
            for (int ky = g::first_tap(U); ky < K; ky += g::stride)
#pragma unroll
                for (int i = 0; i < g::meeting; ++i)
#pragma unroll
                    for (int e = 0; e < C; ++e) {
                        const int out = g::output(kx, i);
                        float &sum = sums[g::place(U, ky)][out][e];
                        sum = fmaf(v[g::column(kx, out)][e], with.taps[ky * K + kx][e],
                            g::starts(ky) && g::is_first(kx) ? start[e] : sum);
                    }
    }
    /// What a warp put aside last.
    __device__ float *box() const {
        return reinterpret_cast<float *>(
                   dynamic_shared() + threadIdx.x / 32 * a.warp_bytes + box_at)
               + threadIdx.x % 32;
    }
    __device__ __forceinline__ void finish(const float (&done)[columns][C], int which) {
        if (g::back ? static_cast<unsigned>(y - low) < static_cast<unsigned>(stored) : y >= low) {
            store_row<T, columns, C>(a, out, done, mask);
        } else if (a.slow != 0) {
            float *const to = box() + which * columns * C * 32;
#pragma unroll
            for (int i = 0; i < columns * C; ++i) to[i * 32] = done[i / C][i % C];
        }
        ++y;
        out += a.out_row;
    }
    /// False: there is no such row, or something else is to be done first.
    template <int U>
    __device__ __forceinline__ bool step() {
        const bool inside = static_cast<unsigned>(row) < static_cast<unsigned>(high);
        if (!inside && row >= last) return false;
        if (inside) {
            await_copies<ring_stages - 2>();
            __syncwarp();  // this row is there, and the one before is no longer read
            feed.load(mine.copies + static_cast<unsigned>(before));
            multiply<U>();
            before = slot;
            slot = next_row<row_bytes>(slot);
        }
        if (g::back) {
            finish(sums[g::place(U, 0)], 0);
            finish(sums[g::place(U, 1)], 1);
        } else if (g::first_tap(U) == 0) {
            finish(sums[g::place(U, K - 1)], 0);
        }
        ++row;
        return true;
    }
    /// Stores rows that were put aside with all that may happen to sums, each value where it
    /// belongs.
    __device__ void store_kept(const spot &me, int n, int kept, int begin, int end) {
        const epilogue_args &e = a.base.end;
        const int x = me.strip * columns - a.shift_x;
#pragma unroll 1
        for (int i = 0; i < kept * columns * C; ++i) {
            const int at_y = y - kept + i / (columns * C), j = i / C % columns,
                      channel = me.channel + i % C;
            if ((mask >> j & 1U) == 0 || channel >= a.base.channels || at_y < begin || at_y >= end)
                continue;
            const depthwise::out_place at = depthwise::out_of(e, n, channel, at_y, x + j);
            store_result<T>(e, box()[i * 32], channel, at.out, at.add);
        }
    }
};

/// One image; rows of the output from `begin` to `end`.
template <typename T, int K, staged_mode M>
__device__ __forceinline__ void walk_down(
    data_walk<T, K, M> &down, const spot &me, int n, int begin, int end, int high, int last) {
    using g = geometry<T, K, M>;
    const ring_args &a = down.a;
    float start[g::s.channels];
    load_lane<T, g::s.channels>(start, down.mine.lane + down.bias_at);
#pragma unroll
    for (int i = 0; i < g::s.rows * g::s.columns; ++i)
#pragma unroll
        for (int e = 0; e < g::s.channels; ++e)
            down.sums[i / g::s.columns][i % g::s.columns][e] = start[e];
    int phase = 0;
    for (;;) {
        const int y = down.y;
        down.high = a.slow != 0 ? min(high, down.row + 1) : high;
        down.last = a.slow != 0 ? min(last, down.row + 1) : last;
        take_steps<g::period>(down, phase);
        if (a.slow != 0) {
            __syncwarp();  // nobody reads the last row any more
            if (static_cast<unsigned>(down.row - 1) < static_cast<unsigned>(high)
                && a.in.unit != 16)
                down.feed.load_alone(down.mine.lane + down.before);
            down.store_kept(me, n, down.y - y, begin, end);
        }
        if (down.row >= last) return;
    }
}

/// Forward and backward data.
template <typename T, int K, staged_mode M>
__device__ void data(const ring_args &a) {
    using g = geometry<T, K, M>;
    constexpr int C = g::s.channels, row_bytes = feeder<T, K, M>::row_bytes;
    const depthwise_args &p = a.base;
    const int t = static_cast<int>(threadIdx.x);
    const memory mine = find_memory<g::s.lane_bytes>(a);
    T *const block_taps = reinterpret_cast<T *>(
        dynamic_shared() + (blockDim.x + 31) / 32 * static_cast<unsigned>(a.warp_bytes));
    for (int block = static_cast<int>(blockIdx.x); block < p.blocks;
         block += static_cast<int>(gridDim.x)) {
        const job here = find_job(a, block, p.out_rows + a.shift_y);
        const spot me = find_spot<C>(a, here, t);
        __syncthreads();  // nobody has use for what is there
        feeder<T, K, M> feed(a, here);
#pragma unroll 1
        for (int i = 0; i < ring_stages - 1; ++i)
            feed.load(mine.copies + static_cast<unsigned>(i * row_bytes));
        if (a.in.unit != 16)
            for (int i = 0; i < ring_stages; ++i) feed.load_alone(mine.lane + i * row_bytes);
        fetch_taps<T, K, C>(a, here, block_taps);
        __syncthreads();
        operands<T, K, C> with;
        with.load(a, block_taps);
        fetch_bias<T, C>(a, me.channel, mine.lane + data_walk<T, K, M>::bias_at);

        const int x = me.strip * g::s.columns - a.shift_x;
        const unsigned inside =
            me.busy ? depthwise::columns_inside(x, g::s.columns, p.out_columns) : 0U;
        const int first = g::first_row(a, here.y), last = g::end_row(a, here.end);
        // With stride 2, taps of even rows meet the first row and every second one from there on.
        const int start = first >= 0 ? first : g::stride == 2 ? -(first & 1) : 0;
        const int begin = max(0, here.y - a.shift_y), end = here.end - a.shift_y;
        data_walk<T, K, M> down{a, with, feed, mine, 0, (ring_stages - 1) * row_bytes};
        const int first_out = g::first_out(a, start);
        down.low = a.slow != 0 ? 1 << 30 : begin;
        down.stored = a.slow != 0 ? 0 : end - begin;
        char *out = static_cast<char *>(p.end.out)
                    + (me.image * p.end.out_strides.n + me.channel) * static_cast<wide>(sizeof(T))
                    + static_cast<wide>(x) * a.out_column + first_out * a.out_row;
#pragma unroll 1
        for (int round = 0; round < here.rounds; ++round) {
            const int n = me.image + round * a.block_images;
            down.out = out;
            down.y = first_out;
            down.mask = n < a.images && with.finite ? inside : 0U;
            down.row = start;
            walk_down<T, K, M>(down, me, n, begin, end, min(p.in_rows, last), last);
            out += a.block_images * p.end.out_strides.n * static_cast<wide>(sizeof(T));
        }
        if (with.finite) continue;
        for (int n = me.image; n < min(a.images, me.image + here.rounds * a.block_images);
             n += a.block_images)
            store_with_care<T, K, M>(a, n, me.channel, begin, end, x, inside);
    }
}

}  // namespace convgrad::cuda::ring

// Backward weights by rings: see ring.cuh.
#pragma once

#include "ring.cuh"

namespace convgrad::cuda::ring {

/// Rows of src, and those of diff_dst that they meet first, image after image.
template <typename T, int K, staged_mode M>
struct pair_feeder {
    using g = geometry<T, K, M>;
    static constexpr int C = g::s.channels, row_bytes = ring_row_bytes(g::s, true),
                         src_bytes = ring_row_bytes(g::s, false);
    const ring_args &a;
    stream<T, C, g::s.window> src;
    stream<T, C, g::s.columns> dst;
    int row, first, last;  // of src
    int y, begin, end;     // of diff_dst
    int rounds, alone;     // images: by 16 bytes at a time, or by each lane alone

    __device__ pair_feeder(const ring_args &args, const job &here) : a(args) {
        first = g::first_row(a, here.y);
        last = min(a.base.in_rows, g::end_row(a, here.end));
        begin = here.y;
        end = here.end;
        row = first;
        y = begin;
        const int all = first < last ? here.rounds : 0;
        alone = a.slow != 0 ? all : 0;
        rounds = all - alone;
        src.start(a, a.in, here, g::s.step, g::first_column(a), max(0, first));
        dst.start(a, a.dst, here, g::s.columns, 0, begin);
    }
    __device__ bool has_dst() const {
        return y < end && (g::stride == 1 || (row - first) % 2 == 0);
    }
    /// To the next row; true: of another image.
    __device__ bool advance() {
        if (has_dst()) ++y;
        if (++row < last) return false;
        src.next(a.block_images * a.in.image - max(0, last - max(0, first)) * a.in.row);
        dst.next(a.block_images * a.dst.image - (y - begin) * a.dst.row);
        row = first;
        y = begin;
        return true;
    }
    /// Asks for one row of each more, into a row of the ring.
    __device__ void load(unsigned to) {
        if (rounds > 0) {
            if (row >= 0) src.copy(a.in, to);
            if (has_dst()) dst.copy(a.dst, to + src_bytes);
            if (advance()) --rounds;
        }
        commit_copies();
    }
    __device__ void load_alone(unsigned char *to) {
        if (alone > 0) {
            if (row >= 0) src.copy_alone(a.in, to);
            if (has_dst()) dst.copy_alone(a.dst, to + src_bytes);
            if (advance()) --alone;
        }
        commit_copies();
    }
};

/// Adds what the threads of a block have for a channel, in their order, and stores it.
template <int K, int C>
__device__ inline void reduce(
    const ring_args &a, float *shared, const float (&sums)[K * K][C], const job &here) {
    const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    const int pitch = threads + 1;  // taps in banks of their own
#pragma unroll
    for (int i = 0; i < K * K; ++i)
#pragma unroll
        for (int e = 0; e < C; ++e) shared[(i * C + e) * pitch + t] = sums[i][e];
    __syncthreads();
    const int channels = a.lanes * C, places = a.block_strips * a.block_images;
    const int first = here.channel * channels;
    for (int o = t; o < channels * K * K; o += threads) {
        const int c = o / (K * K), i = o - c * (K * K);
        if (first + c >= a.base.channels) break;
        const float *from = shared + (i * C + c % C) * pitch + c / C;
        float sum = *from;
        for (int place = 1; place < places; ++place) sum += from[place * a.lanes];
        a.base.partial[(static_cast<wide>(here.part) * a.base.channels + first) * (K * K) + o] =
            sum;
    }
}

/// A thread on its way down the rows of an image.
template <typename T, int K, staged_mode M>
struct weights_walk {
    using g = geometry<T, K, M>;
    static constexpr int C = g::s.channels, columns = g::s.columns,
                         row_bytes = pair_feeder<T, K, M>::row_bytes,
                         src_bytes = pair_feeder<T, K, M>::src_bytes;
    pair_feeder<T, K, M> &feed;
    memory mine;
    int slot, before;  // rows of the ring: this one, and the one that was read before it
    int row, last;     // of src
    int y;             // of diff_dst
    float sums[K * K][C];
    float d[g::s.rows][columns][C];

    template <int U>
    __device__ __forceinline__ void load_dst() {
        constexpr int place = U / g::stride % g::s.rows;
        if (y < feed.end) {
#pragma unroll
            for (int j = 0; j < columns; ++j)
                load_lane<T, C>(
                    d[place][j], mine.lane + slot + src_bytes + j * 32 * g::s.lane_bytes);
        } else {
#pragma unroll
            for (int i = 0; i < columns * C; ++i) d[place][i / C][i % C] = 0;
        }
        ++y;
    }
    /// All products of one row of src: its place in the ring's round is U.
    template <int U>
    __device__ __forceinline__ void multiply() {
        float v[g::s.window][C];
#pragma unroll
        for (int j = 0; j < g::s.window; ++j)
            load_lane<T, C>(v[j], mine.lane + slot + j * 32 * g::s.lane_bytes);
#pragma unroll
        for (int i = 0; i < columns; ++i)
#pragma unroll
            for (int ky = g::first_tap(U); ky < K; ky += g::stride)
#pragma unroll
                for (int kx = 0; kx < K; ++kx)
#pragma unroll
                    for (int e = 0; e < C; ++e)
                        sums[ky * K + kx][e] = fmaf(
                            v[g::column(kx, i)][e], d[g::place(U, ky)][i][e], sums[ky * K + kx][e]);
    }
    /// False: there is no such row, or something else is to be done first.
    template <int U>
    __device__ __forceinline__ bool step() {
        if (row >= last) return false;
        await_copies<ring_stages - 2>();
        __syncwarp();  // these rows are there, and those before are no longer read
        feed.load(mine.copies + static_cast<unsigned>(before));
        if (g::stride == 1 || U % 2 == 0) load_dst<U>();
        if (row >= 0) multiply<U>();
        before = slot;
        slot = next_row<row_bytes>(slot);
        ++row;
        return true;
    }
};

/// One image.
template <typename T, int K, staged_mode M>
__device__ __forceinline__ void walk_down(weights_walk<T, K, M> &down, const job &here) {
    using g = geometry<T, K, M>;
    const bool slow = down.feed.a.slow != 0;
    const int last = down.feed.last;
#pragma unroll
    for (int i = 0; i < g::s.rows * g::s.columns * g::s.channels; ++i)
        down.d[i / g::s.channels / g::s.columns][i / g::s.channels % g::s.columns]
              [i % g::s.channels] = 0;
    down.y = here.y;
    down.row = down.feed.first;
    int phase = 0;
    while (down.row < last) {
        down.last = slow ? down.row + 1 : last;
        take_steps<g::period>(down, phase);
        if (slow) {
            __syncwarp();  // nobody reads the last row any more
            down.feed.load_alone(down.mine.lane + down.before);
        }
    }
}

/// Backward weights.
template <typename T, int K, staged_mode M>
__device__ void weights(const ring_args &a) {
    using g = geometry<T, K, M>;
    constexpr int C = g::s.channels, row_bytes = pair_feeder<T, K, M>::row_bytes;
    const depthwise_args &p = a.base;
    const int t = static_cast<int>(threadIdx.x);
    const memory mine = find_memory<g::s.lane_bytes>(a);
    for (int block = static_cast<int>(blockIdx.x); block < p.blocks;
         block += static_cast<int>(gridDim.x)) {
        const job here = find_job(a, block, p.out_rows);
        __syncthreads();  // nobody has use for what is there
        pair_feeder<T, K, M> feed(a, here);
#pragma unroll 1
        for (int i = 0; i < ring_stages - 1; ++i)
            feed.load(mine.copies + static_cast<unsigned>(i * row_bytes));
        if (a.slow != 0)
            for (int i = 0; i < ring_stages; ++i) feed.load_alone(mine.lane + i * row_bytes);
        weights_walk<T, K, M> down{feed, mine, 0, (ring_stages - 1) * row_bytes};
#pragma unroll
        for (int i = 0; i < K * K * C; ++i) down.sums[i / C][i % C] = 0;
#pragma unroll 1
        for (int round = 0; round < here.rounds; ++round) walk_down<T, K, M>(down, here);
        const spot me = find_spot<C>(a, here, t);
        const int x = me.strip * g::s.columns;
        const depthwise::seen_outputs seen{me.image, a.block_images,
            min(here.rounds, (a.images - me.image + a.block_images - 1) / a.block_images), here.y,
            here.end, x, min(x + g::s.columns, p.out_columns)};
#pragma unroll
        for (int e = 0; e < C; ++e)
            if (me.busy && me.channel + e < p.channels)
                depthwise::sum_again(down.sums, e, [&](int i) {
                    return depthwise::careful_tap<T, K, g::stride>(p, me.channel + e, i, seen);
                });
        await_all_copies();
        __syncthreads();
        reduce<K, C>(a, reinterpret_cast<float *>(dynamic_shared()), down.sums, here);
    }
}

}  // namespace convgrad::cuda::ring

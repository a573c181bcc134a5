// Depthwise kernels whose input comes through shared memory, copied while the rows before it are
// computed with.
//
// A block keeps its channels and columns and walks down bands of rows, image after image. Rows of
// the input wait in a ring in shared memory, where what lies left and right of the image is zero. A
// thread computes a patch of one band (or one patch's share of a weights gradient), unrolled, so
// that no product is wasted on rows outside of the image.
//
// Planes: lanes along columns, four at a time. Else lanes along channels.
#pragma once

#include "staged_copy.cuh"
#include "staged_patch.cuh"

namespace convgrad::cuda::staged {

using depthwise::place;

template <typename T, int K, staged_mode M, bool Planes>
constexpr int channels_of_thread = staged_channels(K, M, Planes, sizeof(T));

/// A band of output rows of an image.
struct band {
    int item, n, y, end;
};
__device__ inline band first_band(const staged_args &a, int item) {
    band b;
    b.item = item;
    b.n = a.segments == 1 ? item : item / a.segments;
    b.y = (item - b.n * a.segments) * a.segment_rows;
    b.end = min(b.y + a.segment_rows, a.base.out_rows);
    return b;
}

/// Where a block works, and which rows of the input it has in its ring.
template <typename T, int K, staged_mode M, bool Planes>
struct walker {
    using p = patch<K, M, Planes>;
    const staged_args &a;
    T *ring;
    copier copies;
    band at;
    int last_item;
    int head = 0;    // where the next row goes
    int got = 0;     // the next row that is not in the ring
    int anchor = 0;  // where the first row of this band's window is or would be

    __device__ int first_row(int y) const { return p::first_row(y, a.row_shift); }
    __device__ void enter(int item) {
        at = first_band(a, item);
        const int first = first_row(at.y);
        got = max(0, first);
        anchor = head - (got - first);
        while (anchor < 0) anchor += a.slots;
    }
    /// To the next band; false behind the last one.
    __device__ bool advance() {
        at.y += a.band_rows;
        if (at.y < at.end) {
            anchor += a.band_step;
            while (anchor >= a.slots) anchor -= a.slots;
            return true;
        }
        if (at.item + 1 >= last_item) return false;
        enter(at.item + 1);
        return true;
    }
    __device__ void load() {
        const int end = min(a.base.in_rows, first_row(at.y) + a.window_rows);
        const int count = end - got;
        if (count <= 0) return;
        copy_rows<T>(a.copy, copies, ring, a.slots, head,
            static_cast<const T *>(a.base.in) + at.n * a.base.in_n, got, count);
        head += count;
        if (head >= a.slots) head -= a.slots;
        got = end;
    }
};

/// What a thread computes.
struct position {
    int lane, column, row;  // groups
    bool busy;
};
template <bool Planes>
__device__ inline position find_position(const staged_args &a) {
    const int t = static_cast<int>(threadIdx.x);
    position at;
    if (Planes) {
        at.column = t % a.column_groups;
        at.lane = t / a.column_groups % a.lanes;
    } else {
        at.lane = t % a.lanes;
        at.column = t / a.lanes % a.column_groups;
    }
    at.row = t / (a.lanes * a.column_groups);
    at.busy = at.row < a.row_groups;
    return at;
}

template <typename T>
__device__ inline void load_four(const T *from, float *v) {
    depthwise::pack<T, 4> raw = *reinterpret_cast<const depthwise::pack<T, 4> *>(from);
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = to_f32(raw.v[j]);
}
template <typename T, int C>
__device__ inline void load_channels(const T *from, float (&v)[C]) {
    depthwise::pack<T, C> raw = *reinterpret_cast<const depthwise::pack<T, C> *>(from);
#pragma unroll
    for (int e = 0; e < C; ++e) v[e] = to_f32(raw.v[e]);
}

/// The window of an input row.
template <typename T, int K, staged_mode M, bool Planes, int C>
__device__ inline void load_window(
    float (&v)[patch<K, M, Planes>::s.in_columns][C], const T *row, int line) {
    constexpr staged_shape s = patch<K, M, Planes>::s;
    if constexpr (Planes) {
        // Packs of four from where they are aligned; the window starts in the first or second.
        constexpr int skip = s.first == 0 ? 4 : 0, lead = 4 + s.first - skip;
        constexpr int packs = (lead + s.in_columns + 3) / 4;
        float raw[packs * 4];
#pragma unroll
        for (int i = 0; i < packs; ++i) load_four<T>(row + skip + i * 4, raw + i * 4);
#pragma unroll
        for (int j = 0; j < s.in_columns; ++j) v[j][0] = raw[lead + j];
    } else {
#pragma unroll
        for (int j = 0; j < s.in_columns; ++j) load_channels<T, C>(row + j * line, v[j]);
    }
}

/// Calls body(r, window) for each row of a patch's window; rows beside the image are zero.
template <typename T, int K, staged_mode M, bool Planes, int C, typename Body>
__device__ inline void for_each_row(const staged_args &a, const T *ring, int anchor, int first_row,
    const position &me, Body &&body) {
    constexpr staged_shape s = patch<K, M, Planes>::s;
    const int line = a.copy.line;
    const T *const mine = ring
                          + (Planes ? me.lane * line + a.lead - 4 + me.column * s.column_step
                                    : me.column * s.column_step * line + me.lane * C);
    int slot = anchor + me.row * s.row_step;
    while (slot >= a.slots) slot -= a.slots;
#pragma unroll
    for (int r = 0; r < s.in_rows; ++r) {
        // The row behind the ring is always zero: no branch keeps rows from overlapping.
        const bool there =
            static_cast<unsigned>(first_row + r) < static_cast<unsigned>(a.base.in_rows);
        float v[s.in_columns][C];
        load_window<T, K, M, Planes, C>(v, mine + (there ? slot : a.slots) * a.copy.row, line);
        body(r, v);
        if (++slot == a.slots) slot = 0;
    }
}

/// Calls body(i, j, c, tap) for each output (i, j) of a patch that column c of window row r meets.
template <typename P, int K, typename Body>
__device__ inline void for_each_product(int r, Body &&body) {
#pragma unroll
    for (int i = 0; i < P::s.rows; ++i)
        if (P::meet(r, i))
#pragma unroll
            for (int c = 0; c < P::s.in_columns; ++c)
#pragma unroll
                for (int j = 0; j < P::s.columns; ++j)
                    if (P::meet(c, j)) body(i, j, c, P::tap(r, i) * K + P::tap(c, j));
}

/// Zeroes a block's shared memory: what lies beside the image stays so.
__device__ inline void clear(unsigned char *memory, int bytes) {
    uint4 *const all = reinterpret_cast<uint4 *>(memory);
    for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += static_cast<int>(blockDim.x))
        all[i] = make_uint4(0, 0, 0, 0);
}

/// Which work a block does: a strip of columns and some channels, through a part of the items.
struct work {
    int strip, channels_at, part;  // channels_at: the first channel
};
__device__ inline work find_work(const staged_args &a, int block) {
    work w;
    w.strip = block % a.strips;
    w.channels_at = block / a.strips % a.channel_blocks * a.block_channels;
    w.part = block / a.strips / a.channel_blocks;
    return w;
}

/// Forward and backward data.
template <typename T, int K, staged_mode M, bool Planes>
__device__ void data(const staged_args &a) {
    using p = patch<K, M, Planes>;
    constexpr int C = channels_of_thread<T, K, M, Planes>;
    constexpr staged_shape s = p::s;
    unsigned char *const memory = dynamic_shared();
    T *const ring = reinterpret_cast<T *>(memory);
    const position me = find_position<Planes>(a);
    for (int block = static_cast<int>(blockIdx.x); block < a.blocks;
         block += static_cast<int>(gridDim.x)) {
        const work here = find_work(a, block);
        const int channel = here.channels_at + me.lane * C;
        __syncthreads();
        clear(memory, a.ring_bytes);
        __syncthreads();
        walker<T, K, M, Planes> walk{a, ring,
            make_copier<Planes>(
                a.copy, here.channels_at, a.base.channels, here.strip, a.block_channels)};
        walk.last_item = min(a.items, (here.part + 1) * a.part_items);
        walk.enter(here.part * a.part_items);
        const bool busy = me.busy && channel < a.base.channels;
        float taps[K * K][C];
#pragma unroll
        for (int i = 0; i < K * K; ++i)
#pragma unroll
            for (int e = 0; e < C; ++e) {
                const int tap = a.base.flip != 0 ? K * K - 1 - i : i;
                taps[i][e] = busy && (e == 0 || channel + e < a.base.channels)
                                 ? to_f32(static_cast<const T *>(
                                     a.base.weights)[(channel + e) * a.base.w_channel
                                                     + tap / K * a.base.w_y + tap % K * a.base.w_x])
                                 : 0.0f;
            }
        const int x = here.strip * a.strip_columns + me.column * s.columns;
        const unsigned mask = depthwise::columns_inside(
            x, s.columns, min(a.base.out_columns, (here.strip + 1) * a.strip_columns));
        band at{};
        int anchor = 0;
        bool ready = false;
        for (bool more = true;;) {
            if (more) walk.load();
            commit_copies();
            const bool computes = ready && busy;
            float sums[s.rows][s.columns][C];
#pragma unroll
            for (int i = 0; i < s.rows; ++i)
#pragma unroll
                for (int j = 0; j < s.columns; ++j)
#pragma unroll
                    for (int e = 0; e < C; ++e) sums[i][j][e] = 0;
            const int y = at.y + me.row * s.rows;
            if (computes) {
                for_each_row<T, K, M, Planes, C>(a, ring, anchor, walk.first_row(y), me,
                    [&](int r, const float(&v)[p::s.in_columns][C]) {
                        for_each_product<p, K>(r, [&](int i, int j, int c, int tap) {
#pragma unroll
                            for (int e = 0; e < C; ++e)
                                sums[i][j][e] = fmaf(v[c][e], taps[tap][e], sums[i][j][e]);
                        });
                    });
            }
            const patch_place to = {at.n, channel, y, x, min(at.end - y, s.rows), mask};
            const bool stores = computes && y < at.end;
            if (Planes && a.box_bytes != 0) {
                if constexpr (Planes) {
                    T *const box = reinterpret_cast<T *>(memory + a.ring_bytes);
                    if (stores) box_patch<T>(a, box, sums, me.lane, to);
                    // A value that is not finite is looked at by its thread.
                    if (__syncthreads_or(stores && !is_finite_patch(sums) ? 1 : 0) != 0) {
                        if (stores) store_patch<T, K, M, Planes, C>(a, sums, to);
                    } else if (ready) {
                        store_box<T>(a, box, at.n, here.channels_at);
                    }
                }
            } else if (stores) {
                store_patch<T, K, M, Planes, C>(a, sums, to);
            }
            if (!more) break;
            at = walk.at;
            anchor = walk.anchor;
            ready = true;
            await_copies<0>();
            __syncthreads();  // these rows are there, and those before them are no longer read
            more = walk.advance();
        }
    }
}

/// One tap of a weights gradient over what a thread has seen, without the products that padding
/// took part in.
template <typename T, int K, int S>
__device__ __noinline__ float careful_tap(const staged_args &a, int channel, int i, int first_item,
    int last_item, int first_row, int rows, int x, unsigned mask) {
    const depthwise_args &p = a.base;
    float v = 0;
    for (int item = first_item; item < last_item; ++item) {
        const band at = first_band(a, item);
        for (int top = at.y + first_row; top < at.end; top += a.band_rows)
            for (int y = top; y < min(top + rows, at.end); ++y)
                for (int j = 0; mask >> j != 0; ++j) {
                    const int row = y * S + i / K - p.pad_y, from = (x + j) * S + i % K - p.pad_x;
                    if ((mask >> j & 1U) == 0 || row < 0 || row >= p.in_rows || from < 0
                        || from >= p.in_columns)
                        continue;
                    const T src = static_cast<const T *>(
                        p.in)[at.n * p.in_n + channel * p.in_c + row * p.in_y + from * p.in_x];
                    const T dst =
                        static_cast<const T *>(p.weights)[at.n * p.dst_n + channel * p.dst_c
                                                          + y * p.dst_y + (x + j) * p.dst_x];
                    v = fmaf(to_f32(src), to_f32(dst), v);
                }
    }
    return v;
}

/// Adds what the threads of a block have for a channel, in their order, and stores it.
template <int K, bool Planes, int C>
__device__ inline void reduce(
    const staged_args &a, float *shared, const float (&sums)[K * K][C], const work &here) {
    const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
#pragma unroll
    for (int i = 0; i < K * K; ++i)
#pragma unroll
        for (int e = 0; e < C; ++e) shared[(i * C + e) * threads + t] = sums[i][e];
    __syncthreads();
    for (int o = t; o < a.block_channels * K * K; o += threads) {
        const int c = o % a.block_channels, i = o / a.block_channels, lane = c / C;
        if (here.channels_at + c >= a.base.channels) continue;
        const float *const from = shared + (i * C + c % C) * threads;
        float sum = 0;
        for (int row = 0; row < a.row_groups; ++row)
            for (int column = 0; column < a.column_groups; ++column)
                sum += from[Planes ? column + a.column_groups * (lane + a.lanes * row)
                                   : lane + a.lanes * (column + a.column_groups * row)];
        a.base.partial[((static_cast<wide>(here.part) * a.strips + here.strip) * a.base.channels
                           + here.channels_at + c)
                           * (K * K)
                       + i] = sum;
    }
}

/// Backward weights.
template <typename T, int K, staged_mode M, bool Planes>
__device__ void weights(const staged_args &a) {
    using p = patch<K, M, Planes>;
    constexpr int C = channels_of_thread<T, K, M, Planes>;
    constexpr staged_shape s = p::s;
    unsigned char *const memory = dynamic_shared();
    T *const ring = reinterpret_cast<T *>(memory);
    T *const dst_ring = reinterpret_cast<T *>(memory + a.ring_bytes);
    const position me = find_position<Planes>(a);
    for (int block = static_cast<int>(blockIdx.x); block < a.blocks;
         block += static_cast<int>(gridDim.x)) {
        const work here = find_work(a, block);
        const int channel = here.channels_at + me.lane * C;
        __syncthreads();
        clear(memory, a.ring_bytes + a.dst_bytes);
        __syncthreads();
        walker<T, K, M, Planes> walk{a, ring,
            make_copier<Planes>(
                a.copy, here.channels_at, a.base.channels, here.strip, a.block_channels)};
        const copier dst_copies = make_copier<Planes>(
            a.dst_copy, here.channels_at, a.base.channels, here.strip, a.block_channels);
        const int first_item = here.part * a.part_items;
        walk.last_item = min(a.items, (here.part + 1) * a.part_items);
        int turn = 0;
        walk.enter(first_item);
        const bool busy = me.busy && channel < a.base.channels;
        const int x = here.strip * a.strip_columns + me.column * s.columns;
        float sums[K * K][C];
#pragma unroll
        for (int i = 0; i < K * K; ++i)
#pragma unroll
            for (int e = 0; e < C; ++e) sums[i][e] = 0;
        band at{};
        int anchor = 0;
        bool ready = false;
        for (bool more = true;;) {
            if (more) {
                walk.load();
                copy_rows<T>(a.dst_copy, dst_copies, dst_ring, 2 * a.band_rows, turn * a.band_rows,
                    static_cast<const T *>(a.base.weights) + walk.at.n * a.base.dst_n, walk.at.y,
                    min(a.band_rows, walk.at.end - walk.at.y));
            }
            commit_copies();
            turn ^= 1;
            const int y = at.y + me.row * s.rows;
            if (ready && busy && y < at.end) {
                const T *const dst =
                    dst_ring + (turn * a.band_rows + me.row * s.rows) * a.dst_copy.row
                    + (Planes ? me.lane * a.dst_copy.line + me.column * s.columns
                              : me.column * s.columns * a.dst_copy.line + me.lane * C);
                float d[s.rows][s.columns][C];
#pragma unroll
                for (int i = 0; i < s.rows; ++i) {
                    if (y + i < at.end) {
                        if constexpr (Planes) {
                            float four[4];
                            load_four<T>(dst + i * a.dst_copy.row, four);
#pragma unroll
                            for (int j = 0; j < 4; ++j) d[i][j][0] = four[j];
                        } else {
#pragma unroll
                            for (int j = 0; j < s.columns; ++j)
                                load_channels<T, C>(
                                    dst + i * a.dst_copy.row + j * a.dst_copy.line, d[i][j]);
                        }
                    } else {
#pragma unroll
                        for (int j = 0; j < s.columns; ++j)
#pragma unroll
                            for (int e = 0; e < C; ++e) d[i][j][e] = 0;
                    }
                }
                for_each_row<T, K, M, Planes, C>(a, ring, anchor, walk.first_row(y), me,
                    [&](int r, const float(&v)[p::s.in_columns][C]) {
                        for_each_product<p, K>(r, [&](int i, int j, int c, int tap) {
#pragma unroll
                            for (int e = 0; e < C; ++e)
                                sums[tap][e] = fmaf(v[c][e], d[i][j][e], sums[tap][e]);
                        });
                    });
            }
            if (!more) break;
            at = walk.at;
            anchor = walk.anchor;
            ready = true;
            await_copies<0>();
            __syncthreads();
            more = walk.advance();
        }
        const unsigned mask = depthwise::columns_inside(
            x, s.columns, min(a.base.out_columns, (here.strip + 1) * a.strip_columns));
#pragma unroll
        for (int e = 0; e < C; ++e)
            if (busy && channel + e < a.base.channels)
                depthwise::sum_again(sums, e, [&](int i) {
                    return careful_tap<T, K, p::stride>(a, channel + e, i, first_item,
                        walk.last_item, me.row * s.rows, s.rows, x, mask);
                });
        __syncthreads();
        reduce<K, Planes, C>(a, reinterpret_cast<float *>(memory), sums, here);
    }
}

}  // namespace convgrad::cuda::staged

#define CONVGRAD_STAGED(name, blocks, body)                                                        \
    extern "C" __global__ void __launch_bounds__(convgrad::cuda::staged_threads, blocks)           \
        name(const __grid_constant__ convgrad::cuda::staged_args a) {                              \
        using namespace convgrad::cuda;                                                            \
        body(a);                                                                                   \
    }
#define CONVGRAD_STAGED_LAYOUT(K, letter, planes, type, T, blocks)                                 \
    CONVGRAD_STAGED(staged_data_k##K##letter##_##type, blocks,                                     \
        (staged::data<T, K, staged_mode::plain, planes>))                                          \
    CONVGRAD_STAGED(staged_data_k##K##s2##letter##_##type, blocks,                                 \
        (staged::data<T, K, staged_mode::strided, planes>))                                        \
    CONVGRAD_STAGED(staged_back_k##K##s2##letter##_##type, blocks,                                 \
        (staged::data<T, K, staged_mode::back, planes>))                                           \
    CONVGRAD_STAGED(staged_weights_k##K##letter##_##type, blocks,                                  \
        (staged::weights<T, K, staged_mode::plain, planes>))                                       \
    CONVGRAD_STAGED(staged_weights_k##K##s2##letter##_##type, blocks,                              \
        (staged::weights<T, K, staged_mode::strided, planes>))
// Blocks of a multiprocessor: three where sums of one channel leave registers for them.
#define CONVGRAD_STAGED_SETS(K, blocks)                                                            \
    CONVGRAD_STAGED_LAYOUT(K, p, true, f32, float, blocks)                                         \
    CONVGRAD_STAGED_LAYOUT(K, c, false, f32, float, blocks)                                        \
    CONVGRAD_STAGED_LAYOUT(K, p, true, bf16, bf16, blocks)                                         \
    CONVGRAD_STAGED_LAYOUT(K, c, false, bf16, bf16, 2)                                             \
    CONVGRAD_STAGED_LAYOUT(K, p, true, f16, f16, blocks)                                           \
    CONVGRAD_STAGED_LAYOUT(K, c, false, f16, f16, 2)

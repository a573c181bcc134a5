// Depthwise kernels for planes, one warp at a time.
//
// A thread has one channel and a strip of columns; strips of a row are neighbouring lanes, then
// come those of the next channel. A warp copies a box, its rows of all its planes, to shared memory
// of its own as they lie in memory, in pieces of 16 bytes. It walks down the rows with the sums
// that are not complete (a weights gradient: the rows of diff_dst that are still needed) in
// registers. What is complete goes to where its row of the input was, which nobody reads any more,
// and the box is stored as it was copied: no memory is touched in smaller pieces, however small
// planes are.
//
// The first product of a row of sums moves it on to the next registers, so that the loop need not
// be unrolled: it stays in the instruction cache.
#pragma once

#include "depthwise.cuh"
#include "instructions.cuh"
#include "planes_args.hpp"

namespace convgrad::cuda::planes {

constexpr int columns = planes_columns;

/// What a warp computes.
struct job {
    int channel, channels;  // the first one, and how many
    int image, rounds;
    int y, end;  // rows of the output
    int part;    // of a weights gradient
};
__device__ inline job find_job(const planes_args &a, int index) {
    job here;
    here.channel = index % a.channel_blocks * a.warp_planes;
    here.channels = min(a.warp_planes, a.base.channels - here.channel);
    here.part = index / a.channel_blocks;
    here.y = here.part % a.base.segments * a.base.segment_rows;
    here.end = min(a.base.out_rows, here.y + a.base.segment_rows);
    here.image = here.part / a.base.segments * a.rounds;
    here.rounds = min(a.rounds, a.images - here.image);
    return here;
}

/// Rows of a job: of the input, what those of the output read, as far as they are there.
struct row_range {
    int low, high;
};
template <int K>
__device__ inline row_range rows_read(const planes_args &a, const job &here) {
    return {max(0, here.y - a.base.pad_y), min(a.base.in_rows, here.end + K - 1 - a.base.pad_y)};
}

/// Where a lane is.
struct spot {
    int plane, x;  // of the warp; its first column
    bool busy;
};
__device__ inline spot find_spot(const planes_args &a, const job &here) {
    const int lane = static_cast<int>(threadIdx.x) % 32, plane = lane / a.base.strips;
    return {plane, (lane - plane * a.base.strips) * columns, plane < here.channels};
}

/// Bytes from the last multiple of 16 to where a run starts.
__device__ inline int lead_of(const planes_args &a, const void *run) {
    return a.slow != 0 ? 0 : static_cast<int>(reinterpret_cast<std::uintptr_t>(run) % 16);
}

/// Rows of a warp's planes, in runs of memory: those of a plane, or all planes.
template <typename T>
struct box {
    T *run;     // in memory
    wide step;  // from run to run
    int runs, length;
    T *at;  // in shared memory, aligned
    int slot;

    __device__ box(const planes_args &a, const planes_source &t, const job &here, int n, int row,
        int rows, unsigned char *shared) {
        const int elements = rows * a.base.in_columns;
        run = const_cast<T *>(static_cast<const T *>(t.data)) + n * t.image
              + here.channel * t.channel + row * a.base.in_columns;
        step = t.channel;
        runs = a.whole != 0 ? 1 : here.channels;
        length = a.whole != 0 ? elements * here.channels : elements;
        at = reinterpret_cast<T *>(shared + t.at);
        slot = t.slot;
    }
    /// On its way to shared memory.
    __device__ void fetch(const planes_args &a) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
        for (int r = 0; r < runs; ++r) {
            const T *const from = run + r * step;
            T *const to = at + r * slot;
            if (a.slow != 0) {
#pragma unroll 1
                for (int e = lane; e < length; e += 32) to[e] = from[e];
                continue;
            }
            const int lead = lead_of(a, from), bytes = lead + length * static_cast<int>(sizeof(T));
            const char *const start = reinterpret_cast<const char *>(from) - lead;
            const unsigned target = shared_address(to);
#pragma unroll 4
            for (int b = lane * 16; b < bytes; b += 512)
                copy_async_part(target + static_cast<unsigned>(b), start + b, min(16, bytes - b));
        }
    }
    /// Back to memory, from where `shift` bytes into each run of shared memory.
    __device__ void store(
        const planes_args &a, const char *out, wide out_step, int from_bytes, int out_bytes) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
        for (int r = 0; r < runs; ++r) {
            const int lead = lead_of(a, run + r * step);
            const unsigned char *const from =
                reinterpret_cast<const unsigned char *>(at + r * slot) + lead + from_bytes;
            char *const to = const_cast<char *>(out) + r * out_step;
            if (a.slow != 0) {
#pragma unroll 1
                for (int b = lane * static_cast<int>(sizeof(T)); b < out_bytes;
                     b += 32 * static_cast<int>(sizeof(T)))
                    *reinterpret_cast<T *>(to + b) = *reinterpret_cast<const T *>(from + b);
                continue;
            }
            const int before = lead_of(a, to), bytes = out_bytes + before;
#pragma unroll 2
            for (int b = lane * 16; b < bytes; b += 512) {
                if (b >= before && b + 16 <= bytes) {
                    *reinterpret_cast<uint4 *>(to + (b - before)) =
                        *reinterpret_cast<const uint4 *>(from + (b - before));
                    continue;
                }
                for (int e = max(b, before); e < min(b + 16, bytes);
                     e += static_cast<int>(sizeof(T)))
                    *reinterpret_cast<T *>(to + (e - before)) =
                        *reinterpret_cast<const T *>(from + (e - before));
            }
        }
    }
};

/// A lane's plane in shared memory, its first row that was copied.
template <typename T>
__device__ inline T *find_plane(
    const planes_args &a, const planes_source &t, const box<T> &b, int plane, int rows) {
    if (a.whole != 0)
        return b.at + lead_of(a, b.run) / static_cast<int>(sizeof(T))
               + plane * rows * a.base.in_columns;
    return b.at + plane * t.slot + lead_of(a, b.run + plane * b.step) / static_cast<int>(sizeof(T));
}

/// Neighbouring columns, as far as a mask says that they are there.
template <typename T, int Count>
__device__ __forceinline__ void load_columns(T (&v)[Count], const T *from, unsigned mask) {
#pragma unroll
    for (int j = 0; j < Count; ++j) v[j] = mask >> j & 1U ? from[j] : T(0.0f);
}

/// Until a box is there, for all lanes.
__device__ inline void await_box() {
    await_all_copies();
    __syncwarp();
}

/// A lane's taps; whether all are finite.
template <typename T, int K>
__device__ inline bool load_taps(const depthwise_args &p, float (&taps)[K * K], int channel) {
    const T *const w = static_cast<const T *>(p.weights) + channel * p.w_channel;
    float all = 0;
#pragma unroll
    for (int i = 0; i < K * K; ++i) {
        const int tap = p.flip != 0 ? K * K - 1 - i : i;
        taps[i] = to_f32(__ldg(w + tap / K * p.w_y + tap % K * p.w_x));
        all = fmaf(taps[i], 0.0f, all);
    }
    return all == 0.0f;
}

/// Down the rows of a box: what is complete takes the place of what was read. Rows of sums that no
/// output has are computed too: branches around them cost a second set of registers.
template <typename T, int K>
__device__ __forceinline__ void walk_data(const planes_args &a, const job &here, const spot &me,
    const float (&taps)[K * K], float bias, T *plane) {
    constexpr int window = columns + K - 1;
    const depthwise_args &p = a.base;
    const row_range read = rows_read<K>(a, here);
    const unsigned inside = me.busy
                                ? depthwise::columns_inside(me.x - p.pad_x, window, p.in_columns)
                                : 0U,
                   stored = me.busy ? depthwise::columns_inside(me.x, columns, p.out_columns) : 0U;
    const T *from = plane + me.x - p.pad_x;
    T *to = plane + (here.y - read.low) * p.in_columns + me.x;
    const auto store = [&](const float(&done)[columns]) {
#pragma unroll
        for (int j = 0; j < columns; ++j)
            if (stored >> j & 1U) round_to(to[j], done[j] + bias);
        to += p.in_columns;
    };
    float sums[K][columns];  // those that the next row meets through row ky of taps
#pragma unroll
    for (int i = 0; i < K * columns; ++i) sums[i / columns][i % columns] = 0;
    T next[window];
    load_columns<T>(next, from, inside);
    int y = read.low + p.pad_y - (K - 1);  // of the output, complete with this row
#pragma unroll 1
    for (int left = read.high - read.low; left != 0; --left, ++y) {
        float v[window], done[columns];
        depthwise::convert_row<T>(v, next);
        from += p.in_columns;
        load_columns<T>(next, from, left > 1 ? inside : 0U);
        __syncwarp();  // nobody reads this row any more
        depthwise::multiply_row<K>(done, sums[K - 1], v, taps + (K - 1) * K);
#pragma unroll
        for (int ky = K - 2; ky >= 0; --ky)
            depthwise::multiply_row<K>(sums[ky + 1], sums[ky], v, taps + ky * K);
        if (y >= here.y) store(done);
    }
    // Outputs that wait for rows which are not there.
#pragma unroll
    for (int i = K - 1; i > 0; --i, ++y)
        if (y >= here.y && y < here.end) store(sums[i]);
}

/// Outputs of a channel whose taps are not all finite: without the products that padding took part
/// in.
template <typename T, int K>
__device__ __noinline__ void store_with_care(
    const planes_args &a, const job &here, const spot &me, int n) {
    const epilogue_args &e = a.base.end;
    const int channel = here.channel + me.plane;
    for (int y = here.y; y < here.end; ++y)
        for (int x = me.x; x < min(me.x + columns, a.base.out_columns); ++x) {
            const depthwise::out_place at = depthwise::out_of(e, n, channel, y, x);
            store_result<T>(e, depthwise::careful_sum<T, K, 1, false>(a.base, n, channel, y, x),
                channel, at.out, at.add);
        }
}

/// Forward, and backward data with flipped taps.
template <typename T, int K>
__device__ void data(const planes_args &a) {
    const depthwise_args &p = a.base;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    unsigned char *const shared = dynamic_shared() + warp * a.warp_bytes;
    for (int index = static_cast<int>(blockIdx.x) * planes_warps + warp; index < a.jobs;
         index += static_cast<int>(gridDim.x) * planes_warps) {
        const job here = find_job(a, index);
        const spot me = find_spot(a, here);
        const row_range read = rows_read<K>(a, here);
        const int rows = read.high - read.low;
        const auto box_of = [&](int round) {
            return box<T>(a, a.in, here, here.image + round, read.low, rows, shared);
        };
        box_of(0).fetch(a);
        float taps[K * K];
        const int channel = here.channel + (me.busy ? me.plane : 0);
        const bool finite = load_taps<T, K>(p, taps, channel);
        const float bias = p.end.bias != nullptr ? to_f32(
                               static_cast<const T *>(p.end.bias)[channel * p.end.bias_stride])
                                                 : 0.0f;
        const char *out = static_cast<const char *>(p.end.out)
                          + (here.image * p.end.out_strides.n + here.channel * p.end.out_strides.c
                                + here.y * p.end.out_strides.x[1])
                                * static_cast<wide>(sizeof(T));
        const int kept = here.end - here.y,
                  kept_bytes = kept * p.in_columns * static_cast<int>(sizeof(T));
#pragma unroll 1
        for (int round = 0; round < here.rounds; ++round) {
            const box<T> now = box_of(round);
            await_box();
            walk_data<T, K>(a, here, me, taps, bias, find_plane<T>(a, a.in, now, me.plane, rows));
            __syncwarp();
            now.store(a, out, p.end.out_strides.c * static_cast<wide>(sizeof(T)),
                (here.y - read.low) * p.in_columns * static_cast<int>(sizeof(T)),
                a.whole != 0 ? kept_bytes * here.channels : kept_bytes);
            __syncwarp();  // it is stored, and there is room for the next one
            if (!finite && me.busy) store_with_care<T, K>(a, here, me, here.image + round);
            if (round + 1 < here.rounds) box_of(round + 1).fetch(a);
            out += p.end.out_strides.n * static_cast<wide>(sizeof(T));
        }
        __syncwarp();
    }
}

/// Rows of diff_dst, each to the next row of taps.
template <int K>
__device__ __forceinline__ void move_on(float (&d)[K][columns]) {
#pragma unroll
    for (int i = (K - 1) * columns - 1; i >= 0; --i)
        d[i / columns + 1][i % columns] = d[i / columns][i % columns];
}

/// Down the rows of src and of diff_dst.
template <typename T, int K>
__device__ __forceinline__ void walk_weights(const planes_args &a, const job &here, const spot &me,
    float (&sums)[K * K], const T *src, const T *dst) {
    constexpr int window = columns + K - 1;
    const depthwise_args &p = a.base;
    const row_range read = rows_read<K>(a, here);
    const unsigned inside = me.busy
                                ? depthwise::columns_inside(me.x - p.pad_x, window, p.in_columns)
                                : 0U,
                   there = me.busy ? depthwise::columns_inside(me.x, columns, p.out_columns) : 0U;
    const T *from = src + me.x - p.pad_x, *with = dst + me.x;
    float d[K][columns];  // the rows that a row of src meets, by row of taps
#pragma unroll
    for (int i = 0; i < K * columns; ++i) d[i / columns][i % columns] = 0;
    int y = read.low + p.pad_y - (K - 1);
    const auto load_next = [&] {
        T raw[columns];
        load_columns<T>(raw, with, y >= here.y && y < here.end ? there : 0U);
        depthwise::convert_row<T>(d[0], raw);
        if (y >= here.y) with += p.in_columns;
        ++y;
    };
#pragma unroll
    for (int i = 1; i < K; ++i) {
        move_on<K>(d);
        load_next();
    }
    T next[window];
    load_columns<T>(next, from, inside);
#pragma unroll 1
    for (int left = read.high - read.low; left != 0; --left) {
        move_on<K>(d);
        load_next();
        float v[window];
        depthwise::convert_row<T>(v, next);
        from += p.in_columns;
        load_columns<T>(next, from, left > 1 ? inside : 0U);
#pragma unroll
        for (int ky = K - 1; ky >= 0; --ky)
#pragma unroll
            for (int i = 0; i < columns; ++i)
#pragma unroll
                for (int kx = 0; kx < K; ++kx)
                    sums[ky * K + kx] = fmaf(v[i + kx], d[ky][i], sums[ky * K + kx]);
    }
}

/// Adds what lanes have for a channel, in their order, and stores it.
template <int K>
__device__ inline void reduce(
    const planes_args &a, float *shared, const float (&sums)[K * K], const job &here) {
    constexpr int pitch = 33;  // taps in banks of their own
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < K * K; ++i) shared[i * pitch + lane] = sums[i];
    __syncwarp();
    for (int o = lane; o < here.channels * K * K; o += 32) {
        const int c = o / (K * K), i = o - c * (K * K);
        const float *const from = shared + i * pitch + c * a.base.strips;
        float sum = *from;
        for (int s = 1; s < a.base.strips; ++s) sum += from[s];
        a.base.partial[(static_cast<wide>(here.part) * a.base.channels + here.channel) * (K * K)
                       + o] = sum;
    }
    __syncwarp();
}

/// Backward weights.
template <typename T, int K>
__device__ void weights(const planes_args &a) {
    const depthwise_args &p = a.base;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    unsigned char *const shared = dynamic_shared() + warp * a.warp_bytes;
    for (int index = static_cast<int>(blockIdx.x) * planes_warps + warp; index < a.jobs;
         index += static_cast<int>(gridDim.x) * planes_warps) {
        const job here = find_job(a, index);
        const spot me = find_spot(a, here);
        const row_range read = rows_read<K>(a, here);
        const int rows = read.high - read.low, out_rows = here.end - here.y;
        const auto src_of = [&](int round) {
            return box<T>(a, a.in, here, here.image + round, read.low, rows, shared);
        };
        const auto dst_of = [&](int round) {
            return box<T>(a, a.dst, here, here.image + round, here.y, out_rows, shared);
        };
        float sums[K * K];
#pragma unroll
        for (int i = 0; i < K * K; ++i) sums[i] = 0;
#pragma unroll 1
        for (int round = 0; round < here.rounds; ++round) {
            const box<T> src = src_of(round), dst = dst_of(round);
            src.fetch(a);
            dst.fetch(a);
            await_box();
            walk_weights<T, K>(a, here, me, sums, find_plane<T>(a, a.in, src, me.plane, rows),
                find_plane<T>(a, a.dst, dst, me.plane, out_rows));
            __syncwarp();
        }
        if (me.busy)
            depthwise::sum_again(reinterpret_cast<float(&)[K * K][1]>(sums), 0, [&](int i) {
                return depthwise::careful_tap<T, K, 1>(p, here.channel + me.plane, i,
                    {here.image, 1, here.rounds, here.y, here.end, me.x,
                        min(me.x + columns, p.out_columns)});
            });
        reduce<K>(a, reinterpret_cast<float *>(shared), sums, here);
    }
}

}  // namespace convgrad::cuda::planes

/// The kernels of a size and type.
#define CONVGRAD_PLANES(K, type, T)                                                                \
    namespace convgrad::cuda {                                                                     \
    extern "C" __global__ void __launch_bounds__(planes_warps * 32,                                \
        12 / planes_warps) planes_data_k##K##_##type(const __grid_constant__ planes_args a) {      \
        planes::data<T, K>(a);                                                                     \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(planes_warps * 32,                                \
        12 / planes_warps) planes_weights_k##K##_##type(const __grid_constant__ planes_args a) {   \
        planes::weights<T, K>(a);                                                                  \
    }                                                                                              \
    }

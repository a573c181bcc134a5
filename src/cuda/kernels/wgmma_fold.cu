// Data gradients to few channels on Hopper's tensor cores: every position of diff_dst is multiplied
// by all taps at once, and what comes out is folded into the results.
//
// Positions lie in lines; a tap sends the products of position f to cell f + moved, and a cell has
// a slot for each remainder modulo the stride and each channel. A warpgroup walks down a segment of
// an image, 64 positions at a time: products of all columns (a tap and a channel), added to a ring
// of sums in shared memory, from which cells are stored that no later position reaches. Columns
// come in groups of eight different slots, so that all threads add at once; the order of sums is
// fixed. What is read is read once, and no tap is multiplied by zeros between the positions of a
// stride.
#include "bulk.cuh"
#include "fold_args.hpp"
#include "implicit.cuh"
#include "tensor.cuh"
#include "wgmma_tf32.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

[[maybe_unused]] constexpr unsigned line = 128;
[[maybe_unused]] constexpr int rows = fold_rows;

/// Where a column's products go: cells from a position's own one, and the slot's place in the ring
/// (below 0: nowhere).
struct __align__(8) column_place {
    int moved, slot;
};
/// What of a cell's results a slot is.
struct __align__(16) slot_place {
    wide at;  // from the cell's first one
    short rest[3];
    short channel;
};

__device__ inline slot_place find_slot(const fold_args &q, int slot) {
    const data_args &p = q.data;
    const int channels = static_cast<int>(p.out_channels);
    slot_place made;
    if (q.channels_inside != 0) {
        made.channel = static_cast<short>(slot % channels);
        slot /= channels;
    }
    for (int d = 2; d >= 0; --d) {
        const int stride = static_cast<int>(p.x[d].stride);
        made.rest[d] = static_cast<short>(slot % stride);
        slot /= stride;
    }
    if (q.channels_inside == 0) made.channel = static_cast<short>(slot);
    made.at = made.channel * p.end.out_strides.c;
    for (int d = 0; d < 3; ++d) made.at += made.rest[d] * p.end.out_strides.x[d];
    return made;
}

__device__ inline column_place find_column(const fold_args &q, int column) {
    const data_args &p = q.data;
    if (column >= q.columns || q.order[column] == fold_no_column) return {0, -1};
    const int channels = static_cast<int>(p.out_channels), channel = q.order[column] % channels;
    int tap = q.order[column] / channels, moved = 0, slot = 0, slots = 1;
    const int all[3] = {q.height * q.width, q.width, 1};
    for (int d = 2; d >= 0; --d) {
        const int kernel = static_cast<int>(p.x[d].kernel);
        const fold_tap t = find_fold_tap(p.x[d], tap % kernel);
        tap /= kernel;
        moved += t.moved * all[d];
        slot += t.rest * slots;
        slots *= static_cast<int>(p.x[d].stride);
    }
    slot = q.channels_inside != 0 ? slot * channels + channel : channel * slots + slot;
    return {moved, slot * fold_slot_pitch(q.ring)};
}

/// One of an image's segments.
struct fold_item {
    int image, first_line, last_line;

    __device__ fold_item(const fold_args &q, int number)
        : image(number / q.segments), first_line(number % q.segments * q.segment_lines),
          last_line(min(first_line + q.segment_lines, q.cell_lines)) {}
};

/// A line of positions or cells, and the place in it; `at` is not negative.
struct fold_place {
    int x[3];

    __device__ fold_place(const fold_args &q, int at) {
        const unsigned line_of = __umulhi(static_cast<unsigned>(at), q.width_magic);
        x[2] = at - static_cast<int>(line_of) * q.width;
        x[0] = static_cast<int>(__umulhi(line_of, q.height_magic));
        x[1] = static_cast<int>(line_of) - x[0] * q.height;
    }
};

/// Copies 64 positions from `first` on; zeros where there is none.
template <typename T>
__device__ inline void copy_positions(const fold_args &q, int image, int first, unsigned to) {
    const int t = static_cast<int>(threadIdx.x) % 128, piece = t % 8;
    const data_args &p = q.data;
#pragma unroll
    for (int i = 0; i < rows / 16; ++i) {
        const int row = t / 8 + i * 16, at = first + row;
        const fold_place f(q, max(at, 0));
        const bool there =
            at >= 0 && f.x[0] < p.x[0].in && f.x[1] < p.x[1].in && f.x[2] < p.x[2].in;
        const char *from = static_cast<const char *>(q.in);
        if (there)
            from += (image * q.in_n + f.x[0] * q.in_x[0] + f.x[1] * q.in_x[1] + f.x[2] * q.in_x[2]
                        + piece * static_cast<int>(16 / sizeof(T)))
                    * static_cast<int>(sizeof(T));
        const unsigned base = to + static_cast<unsigned>(row) * line
                              + static_cast<unsigned>((piece ^ (row & 7)) << 4);
        for (int l = 0; l < q.lines; ++l) {
            const bool is = there && l * 8 + piece < q.pieces;
            copy_16(base + static_cast<unsigned>(l * rows) * line, is ? from + l * 128 : q.in, is);
        }
    }
    asm volatile("cp.async.commit_group;");
}

/// Copies all weights, in blocks of N columns by a line.
template <typename T, int N>
__device__ inline void copy_weights(const fold_args &q, unsigned to, int parts) {
    const int of_part = q.chunks * q.lines * N * 8;
    for (int i = static_cast<int>(threadIdx.x); i < of_part * parts;
         i += static_cast<int>(blockDim.x)) {
        const int part = i / of_part, rest = i % of_part, piece = rest % 8, row = rest / 8 % N,
                  block = rest / 8 / N, l = block % q.lines, chunk = block / q.lines;
        const T *const from = static_cast<const T *>(q.weights) + part * q.small
                              + static_cast<wide>(chunk * N + row) * q.padded
                              + (l * 8 + piece) * static_cast<int>(16 / sizeof(T));
        copy_16(to + static_cast<unsigned>(part * of_part) * 16
                    + static_cast<unsigned>(block * N + row) * line
                    + static_cast<unsigned>((piece ^ (row & 7)) << 4),
            from, true);
    }
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;");
}

/// The products of 64 positions and N columns.
template <typename T, int N, bool Exact>
__device__ inline void multiply_chunk(
    const fold_args &q, float (&sum)[N / 2], unsigned positions, unsigned weights, unsigned small) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) sum[i] = 0;
    if constexpr (sizeof(T) == 2) {
        for (int l = 0; l < q.lines; ++l) {
            const std::uint64_t a = wgmma::describe(
                                    positions + static_cast<unsigned>(l * rows) * line),
                                b = wgmma::describe(weights + static_cast<unsigned>(l * N) * line);
            wgmma::fence();
#pragma unroll
            for (unsigned k = 0; k < 4; ++k)
                wgmma::product<T, N>::add(
                    sum, a + k * wgmma::next_terms, b + k * wgmma::next_terms, 1);
            wgmma::commit();
            wgmma::await();
        }
    } else {
        const int lane = static_cast<int>(threadIdx.x) % 32,
                  warp = static_cast<int>(threadIdx.x) / 32 % 4;
        const unsigned a_at =
            positions
            + static_cast<unsigned>(warp * 16 + (lane & 7) + ((lane >> 3) & 1) * 8) * line;
        for (int l = 0; l < q.lines; ++l) {
            unsigned terms[4][4];
#pragma unroll
            for (int k = 0; k < 4; ++k)
                load_matrices(
                    a_at + static_cast<unsigned>(l * rows) * line
                        + static_cast<unsigned>(((2 * k + (lane >> 4)) ^ (lane & 7)) << 4),
                    terms[k]);
            const unsigned b = static_cast<unsigned>(l * N) * line;
            wgmma::add_tf32<N, Exact>(sum, terms, weights + b, small + b, [] {});
        }
    }
}

/// Adds the products of a chunk to the ring.
template <int N>
__device__ inline void fold_chunk(const fold_args &q, const float (&sum)[N / 2], float *ring,
    const column_place *columns, int first_group, int first_cell, int which) {
    const int lane = static_cast<int>(threadIdx.x) % 32,
              warp = static_cast<int>(threadIdx.x) / 32 % 4,
              cell = first_cell + warp * 16 + lane / 4, mask = q.ring - 1;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
        if ((first_group + j) * fold_group >= q.columns) break;
        if ((q.meet >> (first_group + j) & 1) != 0) bulk::meet(which);
        const int4 two = *reinterpret_cast<const int4 *>(
            columns + (first_group + j) * fold_group + lane % 4 * 2);
        float *const at[4] = {ring + two.y + ((cell + two.x) & mask),
            ring + two.w + ((cell + two.z) & mask), ring + two.y + ((cell + 8 + two.x) & mask),
            ring + two.w + ((cell + 8 + two.z) & mask)};
        float v[4];
        const bool there[2] = {two.y >= 0, two.w >= 0};
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (there[i % 2]) v[i] = *at[i];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (there[i % 2]) *at[i] = v[i] + sum[j * 4 + i];
    }
}

/// One result with care, bias and all.
template <typename T>
__device__ __noinline__ void finish_slot(const fold_args &q, const slot_place &slot,
    const fold_place &cell, int image, wide at, float v) {
    const data_args &p = q.data;
    if (!is_finite(v)) {
        axis_phase<int> phase[3];
        int m = image;
        for (int d = 0; d < 3; ++d) {
            phase[d] = make_phase<int>(p.x[d], true, slot.rest[d]);
            m = m * phase[d].count + cell.x[d];
        }
        v = careful_output<T>(p, phase, m, slot.channel);
    }
    wide add = image * p.end.add_strides.n + slot.channel * p.end.add_strides.c;
    for (int d = 0; d < 3; ++d)
        add += (cell.x[d] * p.x[d].stride + slot.rest[d]) * p.end.add_strides.x[d];
    store_result<T>(p.end, v, slot.channel, at, add);
}

/// Stores 64 cells from `first` on, and leaves zeros.
template <typename T>
__device__ inline void store_cells(const fold_args &q, const fold_item &item, float *ring,
    const slot_place *slots, int first, bool counts) {
    const int t = static_cast<int>(threadIdx.x) % 128, at = first + t % rows;
    const data_args &p = q.data;
    float *const from = ring + (at & (q.ring - 1));
    const int pitch = fold_slot_pitch(q.ring);
    const fold_place cell(q, max(at, 0));
    const bool there = counts && at < item.last_line * q.width && cell.x[0] < q.cells[0]
                       && cell.x[1] < q.cells[1] && cell.x[2] < q.cells[2];
    wide place = item.image * p.end.out_strides.n;
    int left[3];  // results of the cell along each axis
    for (int d = 0; d < 3; ++d) {
        const int begin = cell.x[d] * static_cast<int>(p.x[d].stride);
        place += begin * p.end.out_strides.x[d];
        left[d] = static_cast<int>(p.x[d].out) - begin;
    }
    T *const out = static_cast<T *>(p.end.out) + place;
    for (int i = t / rows; i < q.slots; i += 128 / rows) {
        const float v = from[i * pitch];
        from[i * pitch] = 0;
        const slot_place slot = slots[i];
        if (!there || slot.rest[0] >= left[0] || slot.rest[1] >= left[1] || slot.rest[2] >= left[2])
            continue;
        if (q.plain != 0 && is_finite(v))
            round_to(out[slot.at], v);
        else
            finish_slot<T>(q, slot, cell, item.image, place + slot.at, v);
    }
}

template <typename T, int N, bool Fast>
__device__ void fold_data(const fold_args &q) {
    constexpr bool exact = sizeof(T) == 4 && !Fast;
    extern __shared__ unsigned char shared_bytes[];
    const unsigned weights =
        (static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes)) + 1023U) & ~1023U;
    const unsigned part = static_cast<unsigned>(q.chunks * q.lines * N) * line,
                   own = static_cast<unsigned>(fold_own(q.lines, q.slots, q.ring));
    const int which = static_cast<int>(threadIdx.x) / 128,
              warpgroups = static_cast<int>(blockDim.x) / 128;
    const unsigned mine = weights + part * (exact ? 2 : 1) + own * static_cast<unsigned>(which),
                   stage_bytes = static_cast<unsigned>(q.lines * rows) * line,
                   tables =
                       weights + part * (exact ? 2 : 1) + own * static_cast<unsigned>(warpgroups);
    float *const ring =
        static_cast<float *>(__cvta_shared_to_generic(mine + fold_stages * stage_bytes));
    slot_place *const slots = static_cast<slot_place *>(__cvta_shared_to_generic(tables));
    column_place *const columns = reinterpret_cast<column_place *>(slots + q.slots);
    for (int i = static_cast<int>(threadIdx.x); i < q.slots; i += static_cast<int>(blockDim.x))
        slots[i] = find_slot(q, i);
    for (int i = static_cast<int>(threadIdx.x); i < fold_most_columns;
         i += static_cast<int>(blockDim.x))
        columns[i] = find_column(q, i);
    copy_weights<T, N>(q, weights, exact ? 2 : 1);
    wgmma::publish();
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x) % 128;
    for (int number = static_cast<int>(blockIdx.x) * warpgroups + which; number < q.items;
         number += static_cast<int>(gridDim.x) * warpgroups) {
        const fold_item item(q, number);
        // Cells that are stored after a tile, and the positions that are the last to reach them.
        const int first_cell = item.first_line * q.width,
                  tiles = (item.last_line * q.width - first_cell + rows - 1) / rows,
                  before = (q.reach + rows - 1) / rows;
        bulk::meet(which);
        for (int i = t; i < q.slots * fold_slot_pitch(q.ring); i += 128) ring[i] = 0;
        copy_positions<T>(q, item.image, first_cell - before * rows - q.move_min, mine);
        unsigned stage = 0;
        for (int i = -before; i < tiles; ++i) {
            const int cell = first_cell + i * rows, position = cell - q.move_min;
            if (i + 1 < tiles)
                copy_positions<T>(q, item.image, position + rows, mine + (stage ^ stage_bytes));
            else
                asm volatile("cp.async.commit_group;");
            asm volatile("cp.async.wait_group 1;");
            wgmma::publish();
            bulk::meet(which);
            for (int chunk = 0; chunk < q.chunks; ++chunk) {
                float sum[N / 2];
                const unsigned at = weights + static_cast<unsigned>(chunk * q.lines * N) * line;
                multiply_chunk<T, N, exact>(q, sum, mine + stage, at, at + part);
                fold_chunk<N>(q, sum, ring, columns, chunk * (N / 8), position, which);
            }
            bulk::meet(which);
            store_cells<T>(q, item, ring, slots, cell, i >= 0);
            stage ^= stage_bytes;
        }
    }
}

}  // namespace code

#define CONVGRAD_FOLD(name, T, n, fast)                                                            \
    extern "C" __global__ void __launch_bounds__(128 * fold_most_warpgroups(n, sizeof(T)), 1)      \
        name(const __grid_constant__ fold_args p) {                                                \
        CONVGRAD_BODY(fold_data<T, n, fast>(p);)                                                   \
    }
#define CONVGRAD_COLUMNS(n)                                                                        \
    CONVGRAD_FOLD(fold_n##n##_f32, float, n, false)                                                \
    CONVGRAD_FOLD(fold_n##n##_bf16, bf16, n, false)                                                \
    CONVGRAD_FOLD(fold_n##n##_f16, f16, n, false)                                                  \
    CONVGRAD_FOLD(fold_n##n##_tf32, float, n, true)
CONVGRAD_COLUMNS(32)
CONVGRAD_COLUMNS(64)

}  // namespace convgrad::cuda

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

/// Where a column's products go: bytes from a position's own cell, and of the slot's place in the
/// ring (below 0: nowhere).
struct __align__(8) column_place {
    int moved, slot;
};
/// What of a cell's results a slot is.
struct __align__(16) slot_place {
    wide at;  // from the cell's first one
    short rest[3];
    short channel;
};
/// Where a cell's results go.
struct __align__(16) cell_place {
    wide at;    // below 0: nowhere
    int whole;  // has as many results as there are slots
};

__device__ inline float load_sum(unsigned at) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at));
    return v;
}
__device__ inline void store_sum(unsigned at, float v) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}

__device__ inline slot_place find_slot(const fold_args &q, int slot) {
    const data_args &p = q.data;
    const int channels = static_cast<int>(p.out_channels);
    slot_place made;
    slot += q.first_slot;
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
    return {moved * 4, (slot - q.first_slot) * fold_slot_pitch(q.ring) * 4};
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
__device__ inline void fold_chunk(const fold_args &q, const float (&sum)[N / 2], unsigned ring,
    const column_place *columns, int first_group, int first_cell, int which) {
    const int lane = static_cast<int>(threadIdx.x) % 32,
              warp = static_cast<int>(threadIdx.x) / 32 % 4,
              cell = (first_cell + warp * 16 + lane / 4) * 4, mask = q.ring * 4 - 1;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
        if ((first_group + j) * fold_group >= q.columns) break;
        if ((q.meet >> (first_group + j) & 1) != 0) bulk::meet(which);
        const int4 two = *reinterpret_cast<const int4 *>(
            columns + (first_group + j) * fold_group + lane % 4 * 2);
        const int slot[2] = {two.y, two.w}, moved[2] = {cell + two.x, cell + two.z};
        unsigned at[4];
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            at[i] =
                ring + static_cast<unsigned>(slot[i % 2] + ((moved[i % 2] + i / 2 * 32) & mask));
            if (slot[i % 2] >= 0) v[i] = load_sum(at[i]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (slot[i % 2] >= 0) store_sum(at[i], v[i] + sum[j * 4 + i]);
    }
}

/// One result, if it is one, with care, bias and all.
template <typename T>
__device__ __noinline__ void finish_slot(
    const fold_args &q, int number, int flat_cell, int image, wide at, float v) {
    const data_args &p = q.data;
    const slot_place slot = find_slot(q, number);
    const fold_place cell(q, flat_cell);
    wide add = image * p.end.add_strides.n + slot.channel * p.end.add_strides.c;
    for (int d = 0; d < 3; ++d) {
        const wide y = cell.x[d] * p.x[d].stride + slot.rest[d];
        if (y >= p.x[d].out) return;
        add += y * p.end.add_strides.x[d];
    }
    if (!is_finite(v)) {
        axis_phase<int> phase[3];
        int m = image;
        for (int d = 0; d < 3; ++d) {
            phase[d] = make_phase<int>(p.x[d], true, slot.rest[d]);
            m = m * phase[d].count + cell.x[d];
        }
        v = careful_output<T>(p, phase, m, slot.channel);
    }
    store_result<T>(p.end, v, slot.channel, at + slot.at, add);
}

/// Finds where cell `at` of an item goes.
__device__ inline cell_place find_cell(
    const fold_args &q, const fold_item &item, int at, bool counts) {
    const data_args &p = q.data;
    const fold_place cell(q, max(at, 0));
    cell_place made;
    made.at = item.image * p.end.out_strides.n;
    made.whole = 1;
    for (int d = 0; d < 3; ++d) {
        const int begin = cell.x[d] * static_cast<int>(p.x[d].stride);
        made.at += begin * p.end.out_strides.x[d];
        if (p.x[d].out - begin < p.x[d].stride) made.whole = 0;
        counts = counts && cell.x[d] < q.cells[d];
    }
    if (!counts || at >= item.last_line * q.width) made.at = -1;
    return made;
}

/// Stores U neighbouring results at once, and leaves zeros.
template <typename T, int U>
__device__ inline void store_cells(const fold_args &q, const fold_item &item, unsigned ring,
    const slot_place *slots, const cell_place *cells, int first) {
    const int t = static_cast<int>(threadIdx.x) % 128;
    const unsigned pitch = static_cast<unsigned>(fold_slot_pitch(q.ring)) * 4,
                   mask = static_cast<unsigned>(q.ring - 1);
    for (int row = 0; row < q.slots; row += q.run)
        for (int j = t * U; j < q.run * rows; j += 128 * U) {
            const int c = q.run == 1
                              ? j
                              : static_cast<int>(__umulhi(static_cast<unsigned>(j), q.run_magic)),
                      slot = row + j - c * q.run;
            const unsigned from = ring + static_cast<unsigned>(slot) * pitch
                                  + (static_cast<unsigned>(first + c) & mask) * 4;
            float v[U];
            bool fine = q.plain != 0;
#pragma unroll
            for (int u = 0; u < U; ++u) {
                v[u] = load_sum(from + static_cast<unsigned>(u) * pitch);
                fine = fine && is_finite(v[u]);
            }
#pragma unroll
            for (int u = 0; u < U; ++u) store_sum(from + static_cast<unsigned>(u) * pitch, 0.0f);
            const cell_place cell = cells[c];
            if (cell.at < 0) continue;
            if (fine && cell.whole != 0) {
                T *const to = static_cast<T *>(q.data.end.out) + cell.at + slots[slot].at;
                T rounded[U];
#pragma unroll
                for (int u = 0; u < U; ++u) round_to(rounded[u], v[u]);
                if constexpr (U == 2)
                    store_pair(to, rounded);
                else
                    *to = rounded[0];
            } else {
#pragma unroll
                for (int u = 0; u < U; ++u)
                    finish_slot<T>(q, slot + u, first + c, item.image, cell.at, v[u]);
            }
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
    const unsigned ring = mine + fold_stages * stage_bytes,
                   ring_bytes = static_cast<unsigned>(q.slots * fold_slot_pitch(q.ring)) * 4;
    cell_place *const cells =
        static_cast<cell_place *>(__cvta_shared_to_generic(ring + ring_bytes));
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
        for (unsigned i = static_cast<unsigned>(t) * 4; i < ring_bytes; i += 512)
            store_sum(ring + i, 0.0f);
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
            if (t < rows) cells[t] = find_cell(q, item, cell + t, i >= 0);
            bulk::meet(which);
            if (q.pairs != 0)
                store_cells<T, 2>(q, item, ring, slots, cells, cell);
            else
                store_cells<T, 1>(q, item, ring, slots, cells, cell);
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

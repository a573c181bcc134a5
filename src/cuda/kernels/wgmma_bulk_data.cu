// Forward and backward data of 16-bit types on Hopper's tensor cores, fed by the copy engine.
//
// A block computes 128·M positions by N channels: two warpgroups multiply, one thread copies.
// A line of 64 channels of one tap is a stage of a ring; the copy engine finds the pixels that
// neighbouring positions read through a tap, with zeros for padding. Sums go through shared memory,
// so that whole pieces of 16 bytes are stored, along channels or along positions. Groups of few
// channels are merged, with zeros for the weights between them.
#include "bulk_frame.cuh"
#include "bulk_store.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

[[maybe_unused]] constexpr unsigned line = 128;
// Bytes of 64 output channels of a stage of turned weights.
[[maybe_unused]] constexpr unsigned turned_block = 64 * line;

/// A tile, as both sides find it.
struct bulk_tile {
    int first_column, first_row, all_rows, group;
    const bulk_phase *phase;
    int number;  // of the phase

    __device__ bulk_tile(const bulk_args &q, unsigned tile, int rows, int columns) {
        const auto take = [&](wide of) {
            const unsigned length = static_cast<unsigned>(of), mine = tile % length;
            tile /= length;
            return static_cast<int>(mine);
        };
        first_column = take(q.data.tiles_n) * columns;
        first_row = take(q.data.tiles_m) * rows;
        group = take(q.groups);
        number = static_cast<int>(tile);
        phase = &q.phase[number];
        all_rows =
            static_cast<int>(q.data.mb) * phase->count[0] * phase->count[1] * phase->count[2];
    }
    /// The image and the position of a row.
    __device__ int find(int row, int (&j)[3]) const {
        for (int d = 2; d >= 0; --d) {
            j[d] = row % phase->count[d];
            row /= phase->count[d];
        }
        return row;
    }
    /// Of a row of the tile.
    [[nodiscard]] __device__ int position(int row) const { return first_row + row; }
    [[nodiscard]] __device__ int taps() const {
        return phase->taps[0] * phase->taps[1] * phase->taps[2];
    }
};

/// Copies the lines of a tile, tap by tap. One thread does, so that each step waits for the one
/// before: what the loops need is in registers, and nothing is divided in them.
template <bool Turned, int Rows, int N, int Stages>
__device__ inline void copy_tile(
    const bulk_args &q, const bulk_tile &tile, bulk::ring<Stages> &ring) {
    const bulk_phase &f = *tile.phase;
    bulk::box box;
    int j[3];
    box.image = tile.find(tile.first_row, j);
    for (int d = 0; d < 3; ++d) box.x[d] = f.start[d] + q.step[d] * j[d];
    const tensor_map &in = q.in[tile.number];
    const int first_weights = tile.group * q.out_channels + tile.first_column, lines = q.lines;
    const bool three_axes = q.three_axes != 0;
    const int taps[3] = {f.taps[0], f.taps[1], f.taps[2]};
    const int moves[3] = {f.offset_step[0], f.offset_step[1], f.offset_step[2]};
    const int kernel_2 = static_cast<int>(q.data.x[2].kernel),
              kernel_1 = static_cast<int>(q.data.x[1].kernel);
    const int steps[3] = {
        f.tap_step[0] * kernel_1 * kernel_2, f.tap_step[1] * kernel_2, f.tap_step[2]};
    const int first_tap = (f.first_tap[0] * kernel_1 + f.first_tap[1]) * kernel_2 + f.first_tap[2];
    const int offset[3] = {f.offset[0], f.offset[1], f.offset[2]};
    box.channel = tile.group * q.channels;
    for (int l = 0; l < lines; ++l, box.channel += 64) {
        int at_0 = offset[0], tap_0 = first_tap;
        for (int t0 = 0; t0 < taps[0]; ++t0, at_0 += moves[0], tap_0 += steps[0]) {
            int at_1 = offset[1], tap_1 = tap_0;
            for (int t1 = 0; t1 < taps[1]; ++t1, at_1 += moves[1], tap_1 += steps[1]) {
                int at_2 = offset[2], tap = tap_1;
                for (int t2 = 0; t2 < taps[2]; ++t2, at_2 += moves[2], tap += steps[2]) {
                    box.offset[0] = static_cast<unsigned short>(at_0);
                    box.offset[1] = static_cast<unsigned short>(at_1);
                    box.offset[2] = static_cast<unsigned short>(at_2);
                    bulk::wait(ring.is_empty(), ring.parity ^ 1U);
                    bulk::expect(ring.is_full(), ring.bytes);
                    bulk::copy_pixels(ring.at(), in, ring.is_full(), box, three_axes);
                    if constexpr (!Turned)
                        bulk::copy_box(ring.at() + Rows * line, q.weights, ring.is_full(), l * 64,
                            tap, first_weights);
                    else
#pragma unroll
                        for (int i = 0; i < N / 64; ++i)
                            bulk::copy_box(ring.at() + Rows * line + i * turned_block, q.weights,
                                ring.is_full(), tile.first_column + i * 64, tap, l * 64);
                    ring.next();
                }
            }
        }
    }
}

/// Where a row of the output starts; -1: beyond the end.
__device__ inline wide find_output(const bulk_args &q, const bulk_tile &tile, int row) {
    if (row >= tile.all_rows) return -1;
    int j[3];
    wide at = tile.find(row, j) * q.data.end.out_strides.n;
    for (int d = 0; d < 3; ++d)
        at += (tile.phase->out_first[d] + static_cast<wide>(q.out_step[d]) * j[d])
              * q.data.end.out_strides.x[d];
    return at;
}

/// Where the rows of a warpgroup go.
template <int M>
__device__ inline void find_outputs(
    const bulk_args &q, const bulk_tile &tile, wide *out_at, int first, int which) {
    const int t = static_cast<int>(threadIdx.x) % 128;
    bulk::meet(which);
    if (t < 64)
#pragma unroll
        for (int m = 0; m < M; ++m)
            out_at[m * 64 + t] = find_output(q, tile, tile.first_row + first + m * 64 + t);
    bulk::meet(which);
}

/// Looks at what a warpgroup stored of a tile. Told by number: what is pointed at would have to lie
/// in memory.
template <typename T, int M, int N>
__device__ __noinline__ void check_tile(
    const bulk_args &q, unsigned number, const wide *out_at, int first) {
    const bulk_tile tile(q, number, 128 * M, N);
    for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * M * N; i += 128)
        check_output<T>(q, tile, out_at[i / N], first + i / N, i % N);
}

template <typename T, int M, int N>
__device__ inline void store_tile(const bulk_args &q, const bulk_tile &tile, unsigned number,
    float (&sum)[M][N / 2], wide *out_at, unsigned box, int first, int which) {
    slice_store<T> results(q, tile, out_at, box);
    store_slices<M, N, bulk_tiles<M, N>::boxes>(
        results, sum, [&](unsigned from, int m, int column) {
            bulk::store_box(q.out, from, tile.first_column + column, tile.group,
                tile.first_row + first + m * 64);
        });
    if (!results.has_special()) return;
    if (q.by_engine != 0) {
        if (threadIdx.x % 128 == 0) bulk::await_stores();
        find_outputs<M>(q, tile, out_at, first, which);
    }
    check_tile<T, M, N>(q, number, out_at, first);
    bulk::meet(which);
}

/// The sums of a warpgroup's rows.
template <typename T, bool Turned, int M, int N, int Stages>
__device__ inline void multiply_tile(const bulk_args &q, const bulk_tile &tile, unsigned number,
    bulk::ring<Stages> &ring, wide *out_at, unsigned box) {
    const int t = static_cast<int>(threadIdx.x), which = t / 128, first = which * 64 * M,
              steps = tile.taps() * q.lines;
    if (q.by_engine == 0) find_outputs<M>(q, tile, out_at, first, which);
    float sum[M][N / 2];
    using right_turned = wgmma::right_turned_product<T, N>;
    bulk::sum_stages(sum, steps, ring, [&](float(&to)[M][N / 2]) {
        const unsigned weights = ring.at() + 128 * M * line;
        const std::uint64_t a = wgmma::describe(ring.at() + static_cast<unsigned>(first) * line),
                            b = Turned ? wgmma::describe_turned(weights, turned_block)
                                       : wgmma::describe(weights);
#pragma unroll
        for (unsigned k = 0; k < 4; ++k)
#pragma unroll
            for (unsigned m = 0; m < M; ++m) {
                const std::uint64_t rows = a + k * wgmma::next_terms + m * (64 * line >> 4);
                if constexpr (Turned)
                    right_turned::add(to[m], rows, b + k * wgmma::next_turned_terms, 1);
                else
                    wgmma::product<T, N>::add(to[m], rows, b + k * wgmma::next_terms, 1);
            }
    });
    store_tile<T, M, N>(q, tile, number, sum, out_at, box, first, which);
}

template <typename T, bool Turned, int M, int N>
__device__ inline void bulk_data(const bulk_args &q) {
    using shape = bulk_tiles<M, N>;
    constexpr int rows = shape::rows, stages = shape::stages;
    extern __shared__ unsigned char shared_bytes[];
    __shared__ __align__(8) std::uint64_t barriers[bulk::ring<stages>::barriers];
    const unsigned memory = bulk::stages_at(shared_bytes);
    bulk::ring<stages> ring(memory, static_cast<unsigned>(__cvta_generic_to_shared(barriers)),
        static_cast<unsigned>(shape::stage));
    const int t = static_cast<int>(threadIdx.x);
    if (t == 0) ring.open();
    __syncthreads();
    const unsigned box =
        memory + static_cast<unsigned>(stages * shape::stage + t / 128 % 2 * shape::room);
    wide *const out_at = static_cast<wide *>(__cvta_shared_to_generic(box + bulk_own_box));
    bulk::in_roles<shape::threads, shape::copy_registers, shape::registers>(
        static_cast<unsigned>(q.data.tiles),
        [&](unsigned i) {
            const bulk_tile tile(q, i, rows, N);
            if (tile.first_row < tile.all_rows) copy_tile<Turned, rows, N>(q, tile, ring);
        },
        [&](unsigned i) {
            const bulk_tile tile(q, i, rows, N);
            if (tile.first_row < tile.all_rows)
                multiply_tile<T, Turned, M, N>(q, tile, i, ring, out_at, box);
        });
    // Shared memory stays until all is stored.
    if (t % 128 == 0) bulk::await_stores();
}

}  // namespace code

#define CONVGRAD_DATA(name, T, turned, m, n)                                                       \
    extern "C" __global__ void __launch_bounds__((bulk_tiles<m, n>::threads),                      \
        (bulk_tiles<m, n>::at_once)) name(const __grid_constant__ bulk_args p) {                   \
        CONVGRAD_BODY(bulk_data<T, turned, m, n>(p);)                                              \
    }
#define CONVGRAD_TILES(name, type, T, turned)                                                      \
    CONVGRAD_DATA(name##_256x64_##type, T, turned, 2, 64)                                          \
    CONVGRAD_DATA(name##_128x128_##type, T, turned, 1, 128)                                        \
    CONVGRAD_DATA(name##_256x128_##type, T, turned, 2, 128)                                        \
    CONVGRAD_DATA(name##_128x256_##type, T, turned, 1, 256)
CONVGRAD_TILES(bulk_data, bf16, bf16, false)
CONVGRAD_TILES(bulk_data, f16, f16, false)
// Kernels of their own: where two blocks share a multiprocessor, both ways in one are 10 % slower.
CONVGRAD_TILES(bulk_turned, bf16, bf16, true)
CONVGRAD_TILES(bulk_turned, f16, f16, true)

}  // namespace convgrad::cuda

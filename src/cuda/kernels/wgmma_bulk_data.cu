// Forward and backward data of 16-bit types on Hopper's tensor cores, fed by the copy engine.
//
// A block computes 128·M positions by N channels: two warpgroups multiply, one thread copies.
// A line of 64 channels of one tap is a stage of a ring; the copy engine finds the pixels that
// neighbouring positions read through a tap, with zeros for padding. Sums go through shared memory,
// so that whole pieces of 16 bytes are stored, along channels or along positions. Groups of few
// channels are merged, with zeros for the weights between them.
#include "bulk.cuh"
#include "implicit.cuh"
#include "wgmma.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr unsigned line = 128;
constexpr int slice = bulk_slice;  // channels that are put in order at once
constexpr unsigned row_pitch = slice * 2 + 16, column_pitch = 64 * 2 + 16;

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
    [[nodiscard]] __device__ int taps() const {
        return phase->taps[0] * phase->taps[1] * phase->taps[2];
    }
};

/// Copies the lines of a tile, tap by tap.
template <int Rows, int Stages>
__device__ inline void copy_tile(
    const bulk_args &q, const bulk_tile &tile, bulk::ring<Stages> &ring) {
    const bulk_phase &f = *tile.phase;
    bulk::box box;
    int j[3];
    box.image = tile.find(tile.first_row, j);
    for (int d = 0; d < 3; ++d) box.x[d] = f.start[d] + q.step[d] * j[d];
    const tensor_map &in = q.in[tile.number];
    const int first_weights = tile.group * q.out_channels + tile.first_column;
    for (int l = 0; l < q.lines; ++l) {
        box.channel = tile.group * q.channels + l * 64;
        for (int t0 = 0; t0 < f.taps[0]; ++t0)
            for (int t1 = 0; t1 < f.taps[1]; ++t1)
                for (int t2 = 0; t2 < f.taps[2]; ++t2) {
                    const int t[3] = {t0, t1, t2};
                    int tap = 0;
                    for (int d = 0; d < 3; ++d) {
                        box.offset[d] =
                            static_cast<unsigned short>(f.offset[d] + f.offset_step[d] * t[d]);
                        tap = tap * static_cast<int>(q.data.x[d].kernel) + f.first_tap[d]
                              + f.tap_step[d] * t[d];
                    }
                    bulk::wait(ring.is_empty(), ring.parity ^ 1U);
                    bulk::expect(ring.is_full(), ring.bytes);
                    bulk::copy_pixels(ring.at(), in, ring.is_full(), box, q.three_axes != 0);
                    bulk::copy_weights(ring.at() + Rows * line, q.weights, ring.is_full(), l * 64,
                        tap, first_weights);
                    ring.next();
                }
    }
}

/// Whether a value, as it is stored, is not finite.
template <typename T>
__device__ inline bool is_special(unsigned short bits) {
    constexpr unsigned short exponent = sizeof(T) == 2 && alignof(T) == 2 ? 0x7c00 : 0;
    return (bits & exponent) == exponent;
}
template <>
__device__ inline bool is_special<bf16>(unsigned short bits) {
    return (bits & 0x7f80) == 0x7f80;
}

/// A thread's side of the output.
template <typename T>
struct bulk_store {
    const bulk_args &q;
    const bulk_tile &tile;
    const wide *out_at;  // of the warpgroup's rows, -1: beyond the end
    unsigned box;        // shared memory of the warpgroup
    int first_row, which;

    /// A sum that is not finite, computed with care: padding and the groups beside it took part.
    __device__ __noinline__ T repair(int row, int channel) const {
        axis_phase<int> phase[3];
        int number = tile.number;
        for (int d = 2; d >= 0; --d) {
            const int phases = static_cast<int>(q.data.phases[d]);
            phase[d] = make_phase<int>(q.data.x[d], q.data.backward != 0, number % phases);
            number /= phases;
        }
        const float v = careful_output<T>(q.data, phase, first_row + row, channel);
        T result;
        round_to(result, finish_sum<T>(q.data.end, v, channel, 0, 0));
        return result;
    }
    [[nodiscard]] __device__ bool is_there(int row, int column) const {
        return out_at[row] >= 0 && tile.first_column + column < q.out_channels;
    }
    [[nodiscard]] __device__ T *out(int row, int column) const {
        return static_cast<T *>(q.data.end.out) + out_at[row]
               + (tile.group * q.out_channels + tile.first_column + column)
                     * q.data.end.out_strides.c;
    }
    __device__ void check(int row, int column) const {
        if (!is_there(row, column)) return;
        T *const at = out(row, column);
        if (is_special<T>(*reinterpret_cast<const unsigned short *>(at)))
            *at = repair(row, tile.group * q.out_channels + tile.first_column + column);
    }
    /// What this thread stored of 64 rows, as put() does.
    __device__ __noinline__ void check_all(int columns) const {
        const int t = static_cast<int>(threadIdx.x) % 128, units = 64 / q.unit;
        for (int first = 0; first < columns; first += slice)
            if (q.along_channels != 0)
                for (int i = 0; i < 16; ++i)
                    check(t / 32 * 16 + i / 8 * 8 + t % 32 / 4, first + t % 4 * 8 + i % 8);
            else
                for (int i = t; i < slice * units; i += 128)
                    for (int e = 0; e < q.unit; ++e)
                        check(i % units * q.unit + e, first + i / units);
    }
    /// `U` neighbours; false if some are not finite.
    template <int U>
    [[nodiscard]] __device__ bool piece(unsigned from, int row, int column) const {
        if (!is_there(row, column)) return true;
        __align__(16) unsigned short v[U];
        if constexpr (U == 8)
            asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(reinterpret_cast<unsigned *>(v)[0]),
                         "=r"(reinterpret_cast<unsigned *>(v)[1]),
                         "=r"(reinterpret_cast<unsigned *>(v)[2]),
                         "=r"(reinterpret_cast<unsigned *>(v)[3])
                         : "r"(from));
        else
#pragma unroll
            for (int i = 0; i < U; ++i)
                asm volatile("ld.shared.b16 %0, [%1];" : "=h"(v[i]) : "r"(from + 2 * i));
        bool fine = true;
#pragma unroll
        for (int i = 0; i < U; ++i) fine = fine && !is_special<T>(v[i]);
        T *const to = out(row, column);
        if constexpr (U == 8)
            *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(v);
        else if constexpr (U == 4)
            *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(v);
        else if constexpr (U == 2)
            *reinterpret_cast<unsigned *>(to) = *reinterpret_cast<const unsigned *>(v);
        else
            *reinterpret_cast<unsigned short *>(to) = v[0];
        return fine;
    }
    /// Pieces of positions, of all channels of a slice.
    template <int U>
    [[nodiscard]] __device__ bool positions(int first_column) const {
        bool fine = true;
        for (int i = static_cast<int>(threadIdx.x) % 128; i < slice * 64 / U; i += 128) {
            const int column = i / (64 / U), row = i % (64 / U) * U;
            fine &= piece<U>(
                box + static_cast<unsigned>(column) * column_pitch + static_cast<unsigned>(row) * 2,
                row, first_column + column);
        }
        return fine;
    }
    /// Pieces of channels, of this warp's 16 rows.
    [[nodiscard]] __device__ bool channels(int first_column) const {
        bool fine = true;
        const int lane = static_cast<int>(threadIdx.x) % 32,
                  warp = static_cast<int>(threadIdx.x) / 32 % 4;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = warp * 16 + i * 8 + lane / 4, column = lane % 4 * 8;
            fine &= piece<8>(
                box + static_cast<unsigned>(row) * row_pitch + static_cast<unsigned>(column) * 2,
                row, first_column + column);
        }
        return fine;
    }

    /// Bias, ReLU, rounding: pairs of channels, as sums hold them.
    __device__ void finish(const float *sum, int first_column, unsigned (&pairs)[8]) const {
        const epilogue_args &end = q.data.end;
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int column = tile.first_column + first_column + j * 8 + lane % 4 * 2;
            float bias[2] = {0, 0};
            if (end.bias != nullptr)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (column + e < q.out_channels)
                        bias[e] = to_f32(static_cast<const T *>(
                            end.bias)[(tile.group * q.out_channels + column + e)
                                      * end.bias_stride]);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                T pair[2];
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float v = sum[j * 4 + h * 2 + e];
                    if (end.bias != nullptr) v += bias[e];
                    if (end.relu != 0) v = relu_of(v);
                    round_to(pair[e], v);
                }
                pairs[j * 2 + h] =
                    *reinterpret_cast<const unsigned short *>(&pair[0])
                    | static_cast<unsigned>(*reinterpret_cast<const unsigned short *>(&pair[1]))
                          << 16;
            }
        }
    }
    /// Stores a slice of the sums of 64 rows; false if some are not finite.
    [[nodiscard]] __device__ bool put(const float *sum, int first_column) const {
        const int lane = static_cast<int>(threadIdx.x) % 32,
                  warp = static_cast<int>(threadIdx.x) / 32 % 4;
        unsigned pairs[8];
        finish(sum, first_column, pairs);
        const bool along_channels = q.along_channels != 0;
        if (along_channels)
            __syncwarp();
        else
            bulk::meet(which);
        // Matrices: rows 0–7 and 8–15 of columns 0–7, then of columns 8–15.
        const int row = warp * 16 + (lane / 8 & 1) * 8, column = lane / 16 * 8, i = lane % 8;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const unsigned four[4] = {
                pairs[half * 4], pairs[half * 4 + 1], pairs[half * 4 + 2], pairs[half * 4 + 3]};
            if (along_channels)
                bulk::store_matrices(box + static_cast<unsigned>(row + i) * row_pitch
                                         + static_cast<unsigned>(half * 16 + column) * 2,
                    four);
            else
                bulk::store_matrices_turned(
                    box + static_cast<unsigned>(half * 16 + column + i) * column_pitch
                        + static_cast<unsigned>(row) * 2,
                    four);
        }
        if (along_channels) {
            __syncwarp();
            return channels(first_column);
        }
        bulk::meet(which);
        if (q.unit == 8) return positions<8>(first_column);
        if (q.unit == 4) return positions<4>(first_column);
        if (q.unit == 2) return positions<2>(first_column);
        return positions<1>(first_column);
    }
};

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

/// The sums of a warpgroup's rows.
template <typename T, int M, int N, int Stages>
__device__ inline void multiply_tile(const bulk_args &q, const bulk_tile &tile,
    bulk::ring<Stages> &ring, wide *out_at, unsigned box) {
    const int t = static_cast<int>(threadIdx.x), which = t / 128, first = which * 64 * M,
              steps = tile.taps() * q.lines;
    bulk::meet(which);
    if (t % 128 < 64)
#pragma unroll
        for (int m = 0; m < M; ++m) {
            const int row = first + m * 64 + t % 128;
            out_at[row] = find_output(q, tile, tile.first_row + row);
        }
    bulk::meet(which);
    float sum[M][N / 2];
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int k = 0; k < N / 2; ++k) sum[m][k] = 0;
    unsigned before = 0;
    for (int step = 0; step < steps; ++step) {
        bulk::wait(ring.is_full(), ring.parity);
        const std::uint64_t a = wgmma::describe(ring.at() + static_cast<unsigned>(first) * line),
                            b = wgmma::describe(ring.at() + 128 * M * line);
        wgmma::fence();
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int m = 0; m < M; ++m)
                wgmma::product<T, N>::add(sum[m],
                    a + static_cast<unsigned>(k) * wgmma::next_terms
                        + static_cast<unsigned>(m) * (64 * line >> 4),
                    b + static_cast<unsigned>(k) * wgmma::next_terms, 1);
        wgmma::commit();
        // The products before these are done: what they read may be overwritten.
        wgmma::await<1>();
        if (step > 0 && t % 32 == 0) bulk::arrive(before);
        before = ring.is_empty();
        ring.next();
    }
    wgmma::await();
    if (steps > 0 && t % 32 == 0) bulk::arrive(before);
    const auto results = [&](int m) {
        return bulk_store<T>{
            q, tile, out_at + first + m * 64, box, tile.first_row + first + m * 64, which};
    };
    bool fine = true;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int c = 0; c < N / slice; ++c)
            fine &= results(m).put(&sum[m][c * (slice / 2)], c * slice);
    if (!fine)
        for (int m = 0; m < M; ++m) results(m).check_all(N);
}

template <typename T, int M, int N>
__device__ inline void bulk_data(const bulk_args &q) {
    using shape = bulk_tiles<M, N>;
    constexpr int rows = shape::rows, stages = shape::stages;
    extern __shared__ unsigned char shared_bytes[];
    __shared__ __align__(8) std::uint64_t barriers[bulk::ring<stages>::barriers];
    __shared__ wide out_at[rows];
    const unsigned memory =
        (static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes)) + 1023U) & ~1023U;
    bulk::ring<stages> ring(memory, static_cast<unsigned>(__cvta_generic_to_shared(barriers)),
        static_cast<unsigned>(shape::stage));
    const int t = static_cast<int>(threadIdx.x);
    if (t == 0) ring.open();
    __syncthreads();
    if (t >= 256) {
        if constexpr (shape::threads == 384) bulk::shrink<shape::copy_registers>();
        if (t == 256)
            for (unsigned i = blockIdx.x; i < static_cast<unsigned>(q.data.tiles); i += gridDim.x) {
                const bulk_tile tile(q, i, rows, N);
                if (tile.first_row < tile.all_rows) copy_tile<rows>(q, tile, ring);
            }
    } else {
        if constexpr (shape::threads == 384) bulk::grow<shape::registers>();
        const unsigned box =
            memory + static_cast<unsigned>(stages * shape::stage + t / 128 * (bulk_box / 2));
        for (unsigned i = blockIdx.x; i < static_cast<unsigned>(q.data.tiles); i += gridDim.x) {
            const bulk_tile tile(q, i, rows, N);
            if (tile.first_row < tile.all_rows) multiply_tile<T, M, N>(q, tile, ring, out_at, box);
        }
    }
}

}  // namespace code

// Code for other architectures is never launched.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CONVGRAD_BODY(...) __VA_ARGS__
#else
#define CONVGRAD_BODY(...)
#endif
#define CONVGRAD_DATA(name, T, m, n)                                                               \
    extern "C" __global__ void __launch_bounds__((bulk_tiles<m, n>::threads),                      \
        (bulk_tiles<m, n>::at_once)) name(const __grid_constant__ bulk_args p) {                   \
        CONVGRAD_BODY(bulk_data<T, m, n>(p);)                                                      \
    }
#define CONVGRAD_TILES(type, T)                                                                    \
    CONVGRAD_DATA(bulk_data_256x64_##type, T, 2, 64)                                               \
    CONVGRAD_DATA(bulk_data_128x128_##type, T, 1, 128)                                             \
    CONVGRAD_DATA(bulk_data_256x128_##type, T, 2, 128)                                             \
    CONVGRAD_DATA(bulk_data_128x256_##type, T, 1, 256)
CONVGRAD_TILES(bf16, bf16)
CONVGRAD_TILES(f16, f16)

}  // namespace convgrad::cuda

// Layers of one tap between planes, f32, on Hopper's tensor cores: planes are read and written
// where they lie, by the copy engine.
//
// The unit takes f32 by rows along the sum alone, in shared memory, and anyhow from registers. A
// data pass takes 128 positions from boxes of 32 positions by 32 channels to registers, where they
// are split into TF32 parts, and multiplies them by weights that are split before: 32 channels of
// the sum are a stage. In a weights gradient, 32 positions are a stage, rows of src go through
// registers, and warps that do nothing else split rows of diff_dst in shared memory.
#include "bulk_frame.cuh"
#include "bulk_sums.cuh"
#include "implicit.cuh"
#include "pointwise.cuh"
#include "wgmma_tf32.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

using data_tile = pointwise_tile<float>;
using part_tile = pointwise_weights_tile<float>;
[[maybe_unused]] constexpr unsigned box_bytes = 32 * 128;

__device__ inline float load_word(unsigned at) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at));
    return v;
}
__device__ inline void store_word(unsigned at, float v) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}

/// Copies the lines of a tile, in one thread.
template <int N, bool Exact, int Stages>
__device__ inline void copy_tile(
    const pointwise_args &q, const data_tile &tile, bulk::ring<Stages> &ring) {
    using shape = pointwise_tiles<N, Exact>;
    constexpr int boxes = shape::rows / data_tile::box;
    int image[boxes], x[boxes];
#pragma unroll
    for (int i = 0; i < boxes; ++i) {
        // There may be no more: what comes instead is not stored.
        const int number = min(tile.first_box + i, q.boxes.all - 1);
        image[i] = number / q.boxes.of_image;
        x[i] = number % q.boxes.of_image * data_tile::box;
    }
    for (int l = 0; l < q.bulk.lines; ++l) {
        bulk::wait(ring.is_empty(), ring.parity ^ 1U);
        bulk::expect(ring.is_full(), ring.bytes);
#pragma unroll
        for (int i = 0; i < boxes; ++i)
            bulk::copy_box(ring.at() + static_cast<unsigned>(i) * box_bytes, q.bulk.in[0],
                ring.is_full(), x[i], l * 32, image[i]);
#pragma unroll
        for (int i = 0; i < shape::copies; ++i)
            bulk::copy_box(
                ring.at() + static_cast<unsigned>(shape::in_bytes + i * shape::out_bytes),
                q.bulk.weights, ring.is_full(), l * 32, i, tile.first_column);
        ring.next();
    }
}

/// A warp's 16 positions of a stage, as the unit takes them.
struct position_terms {
    unsigned at[4];  // of the first eight terms

    __device__ position_terms() {
        const int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int term = lane % 4 + e / 2 * 4, x = warp % 2 * 16 + lane / 4 + e % 2 * 8;
            at[e] = static_cast<unsigned>(warp / 2) * box_bytes + static_cast<unsigned>(term) * 128
                    + static_cast<unsigned>((x / 4) ^ term) * 16 + static_cast<unsigned>(x % 4) * 4;
        }
    }
    __device__ void load(unsigned stage, unsigned (&terms)[4][4]) const {
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                terms[k][e] =
                    __float_as_uint(load_word(stage + at[e] + static_cast<unsigned>(k) * 1024));
    }
};

/// A sum that is not finite, with care: splitting makes NaN of infinities.
__device__ __noinline__ void correct(
    const pointwise_args &q, const data_tile &tile, int row, int channel) {
    const data_args &p = q.bulk.data;
    const wide at = tile.output(q, row);
    if (at < 0 || channel >= q.bulk.out_channels) return;
    axis_phase<int> phase[3];
    for (int d = 0; d < 3; ++d) phase[d] = make_phase<int>(p.x[d], p.backward != 0, 0);
    store_result<float>(p.end, careful_output<float>(p, phase, tile.position(row), channel),
        channel, at + channel * p.end.out_strides.c, 0);
}

/// Where a thread's sums are in a slice of 32 channels, for the copy engine: rows of 32 positions.
struct slice_place {
    unsigned at;    // of its first position and channel
    unsigned swap;  // its piece of a row, exchanged by bits of the channel
    __device__ slice_place() {
        const int t = static_cast<int>(threadIdx.x) % 128, lane = t % 32,
                  row = t / 32 * 16 + lane / 4;
        at = static_cast<unsigned>(row / 32) * box_bytes + static_cast<unsigned>(row % 4) * 4;
        swap = static_cast<unsigned>(row % 32 / 4);
    }
    /// The sums of 32 columns.
    __device__ void store(unsigned slice, const float *sum) const {
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const unsigned column = static_cast<unsigned>(j * 8 + i % 2) + threadIdx.x % 4 * 2;
                store_word(slice + at + column * 128
                               + ((swap + static_cast<unsigned>(i / 2 * 2)) ^ (column % 8)) * 16,
                    sum[j * 4 + i]);
            }
    }
};

template <int N, bool Exact>
struct data_store {
    using shape = pointwise_tiles<N, Exact>;
    const pointwise_args &q;
    const data_tile &tile;
    int which, first;  // warpgroup; its first row

    __device__ data_store(const pointwise_args &args, const data_tile &of)
        : q(args), tile(of), which(static_cast<int>(threadIdx.x) / 128), first(which * 64) {}
    [[nodiscard]] static __device__ int row_of(int i) {
        const int t = static_cast<int>(threadIdx.x) % 128;
        return t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8;
    }
    [[nodiscard]] __device__ int channel_of(int i) const {
        return tile.first_column + i / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
    }
    __device__ void decorate(float (&sum)[N / 2]) const {
        const epilogue_args &end = q.bulk.data.end;
        if (end.bias == nullptr && end.relu == 0) return;
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            if (end.bias != nullptr && channel_of(i) < q.bulk.out_channels)
                sum[i] += static_cast<const float *>(end.bias)[channel_of(i) * end.bias_stride];
            if (end.relu != 0) sum[i] = relu_of(sum[i]);
        }
    }
    /// Slice after slice, through the copy engine.
    __device__ void by_engine(const float (&sum)[N / 2], unsigned room) const {
        const bool speaks = threadIdx.x % 128 == 0;
        const slice_place place;
#pragma unroll
        for (int s = 0; s < N / 32; ++s) {
            if (tile.first_column + s * 32 >= q.bulk.out_channels) break;
            const unsigned slice = room + static_cast<unsigned>(s % shape::slices * shape::slice);
            if (speaks) bulk::await_reads<shape::slices - 1>();
            bulk::meet(which);
            place.store(slice, &sum[s * 16]);
            wgmma::publish();
            bulk::meet(which);
            if (!speaks) continue;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int mine = tile.first_box + which * 2 + i;
                if (mine < q.boxes.all)
                    bulk::store_box(q.bulk.out, slice + static_cast<unsigned>(i) * box_bytes,
                        mine % q.boxes.of_image * data_tile::box, tile.first_column + s * 32,
                        mine / q.boxes.of_image);
            }
            bulk::commit_stores();
        }
    }
    /// One by one, where tensors start anywhere.
    __device__ void directly(const float (&sum)[N / 2]) const {
        const epilogue_args &end = q.bulk.data.end;
        float *const out = static_cast<float *>(end.out);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const wide at = tile.output(q, first + row_of(h * 2));
            if (at < 0) continue;
#pragma unroll
            for (int i = 0; i < N / 2; ++i)
                if (i / 2 % 2 == h && channel_of(i) < q.bulk.out_channels)
                    out[at + channel_of(i) * end.out_strides.c] = sum[i];
        }
    }
    __device__ void all(float (&sum)[N / 2], unsigned room) const {
        unsigned largest = 0;
#pragma unroll
        for (int i = 0; i < N / 2; ++i)
            largest = max(largest, __float_as_uint(sum[i]) & 0x7fffffffU);
        decorate(sum);
        if (q.bulk.by_engine != 0)
            by_engine(sum, room);
        else
            directly(sum);
        constexpr unsigned infinity = 0x7f800000;
        if (!bulk::any(which, largest >= infinity)) return;
        if (threadIdx.x % 128 == 0) bulk::await_stores();
        bulk::meet(which);
        // Those that ReLU made finite were negative.
#pragma unroll 1
        for (int i = 0; i < N / 2; ++i) {
            float v = 0;
#pragma unroll
            for (int k = 0; k < N / 2; ++k)
                if (k == i) v = sum[k];
            if (!is_finite(v)) correct(q, tile, first + row_of(i), channel_of(i));
        }
        bulk::meet(which);
    }
};

/// The sums of a warpgroup's 64 rows; load(terms) takes a stage's from shared memory.
template <int N, bool Exact, int Stages, typename Load>
__device__ inline void sum_lines(
    float (&sum)[N / 2], int steps, bulk::ring<Stages> &ring, unsigned ready, Load &&load) {
    using shape = pointwise_tiles<N, Exact>;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) sum[i] = 0;
    for (int step = 0; step < steps; ++step) {
        bulk::wait(ring.is_full(), ring.parity);
        if (ready != 0) bulk::wait(ready + 8U * static_cast<unsigned>(ring.stage), ring.parity);
        unsigned terms[4][4];
        load(terms);
        const unsigned right = ring.at() + shape::in_bytes;
        wgmma::add_tf32<N, Exact>(sum, terms, right, right + shape::out_bytes, [] {});
        if (threadIdx.x % 32 == 0) bulk::arrive(ring.is_empty());
        ring.next();
    }
}

template <int N, bool Fast>
__device__ inline void pointwise_data(const pointwise_args &q) {
    using shape = pointwise_tiles<N, !Fast>;
    constexpr int stages = shape::stages;
    extern __shared__ unsigned char shared_bytes[];
    __shared__ __align__(8) std::uint64_t barriers[bulk::ring<stages>::barriers];
    const unsigned memory = bulk::stages_at(shared_bytes);
    bulk::ring<stages> ring(memory, static_cast<unsigned>(__cvta_generic_to_shared(barriers)),
        static_cast<unsigned>(shape::stage));
    const int t = static_cast<int>(threadIdx.x);
    if (t == 0) ring.open();
    __syncthreads();
    const unsigned room =
        memory
        + static_cast<unsigned>(stages * shape::stage + t / 128 % 2 * shape::slices * shape::slice);
    const position_terms terms_of;
    bulk::in_roles<shape::threads, shape::copy_registers, shape::registers>(
        static_cast<unsigned>(q.bulk.data.tiles),
        [&](unsigned i) { copy_tile<N, !Fast>(q, data_tile::of(q, i, shape::rows, N), ring); },
        [&](unsigned i) {
            const data_tile tile = data_tile::of(q, i, shape::rows, N);
            float sum[N / 2];
            sum_lines<N, !Fast>(sum, q.bulk.lines, ring, 0,
                [&](unsigned(&terms)[4][4]) { terms_of.load(ring.at(), terms); });
            data_store<N, !Fast>(q, tile).all(sum, room);
        });
    // Shared memory stays until all is stored.
    if (t % 128 == 0) bulk::await_stores();
}

/// Copies the stages of a tile, in one thread.
template <int N, bool Exact, int Stages>
__device__ inline void copy_tile(
    const pointwise_weights_args &q, const part_tile &tile, bulk::ring<Stages> &ring) {
    using shape = pointwise_tiles<N, Exact>;
    constexpr unsigned line_bytes = 64 * 128;
    int image = tile.first_box / q.boxes.of_image, box = tile.first_box % q.boxes.of_image;
    for (int s = 0; s < tile.steps; ++s) {
        bulk::wait(ring.is_empty(), ring.parity ^ 1U);
        bulk::expect(
            ring.is_full(), static_cast<unsigned>(tile.lines) * line_bytes + shape::out_bytes);
        for (int i = 0; i < tile.lines; ++i)
            bulk::copy_box(ring.at() + static_cast<unsigned>(i) * line_bytes, q.bulk.src,
                ring.is_full(), box * part_tile::box, (tile.first_line + i) * 64, image);
        bulk::copy_box(ring.at() + shape::in_bytes, q.bulk.dst, ring.is_full(),
            box * part_tile::box, tile.first_out, image);
        ring.next();
        if (++box == q.boxes.of_image) {
            box = 0;
            ++image;
        }
    }
}

/// Rounds diff_dst of the stages of a tile, and keeps what is lost beside it.
template <int N, bool Exact, int Stages>
__device__ inline void split_tile(int steps, bulk::ring<Stages> &ring, unsigned ready) {
    using shape = pointwise_tiles<N, Exact>;
    const int me = static_cast<int>(threadIdx.x) - 288;
    for (int s = 0; s < steps; ++s) {
        bulk::wait(ring.is_full(), ring.parity);
        const unsigned large_at = ring.at() + shape::in_bytes,
                       small_at = large_at + shape::out_bytes;
#pragma unroll 4
        for (int i = me; i < N * 8; i += shape::splitters) {
            const unsigned at = static_cast<unsigned>(i) * 16;
            unsigned v[4], rest[4];
            asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                         : "r"(large_at + at));
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                split(v[e], rest[e]);
                rest[e] = round_tf32(rest[e]);
            }
            asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(large_at + at), "r"(v[0]),
                         "r"(v[1]), "r"(v[2]), "r"(v[3])
                         : "memory");
            if constexpr (Exact)
                asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(small_at + at),
                             "r"(rest[0]), "r"(rest[1]), "r"(rest[2]), "r"(rest[3])
                             : "memory");
        }
        wgmma::publish();
        __syncwarp();
        if (threadIdx.x % 32 == 0) bulk::arrive(ready + 8U * static_cast<unsigned>(ring.stage));
        ring.next();
    }
}

template <int N, bool Fast>
__device__ inline void pointwise_weights(const pointwise_weights_args &q) {
    using shape = pointwise_tiles<N, !Fast>;
    constexpr int stages = shape::stages;
    extern __shared__ unsigned char shared_bytes[];
    __shared__ __align__(8) std::uint64_t barriers[bulk::ring<stages>::barriers + stages];
    const unsigned barriers_at = static_cast<unsigned>(__cvta_generic_to_shared(barriers)),
                   ready = barriers_at + 8U * bulk::ring<stages>::barriers;
    bulk::ring<stages> ring(
        bulk::stages_at(shared_bytes), barriers_at, static_cast<unsigned>(shape::stage));
    const int t = static_cast<int>(threadIdx.x), lane = t % 32;
    if (t == 0) {
        for (int i = 0; i < stages; ++i)
            bulk::init(ready + 8U * static_cast<unsigned>(i), shape::splitters / 32);
        ring.open();
    }
    __syncthreads();
    const unsigned tiles = static_cast<unsigned>(q.bulk.weights.tiles);
    if (t >= 256) {
        bulk::shrink<shape::copy_registers>();
        for (unsigned i = blockIdx.x; i < tiles; i += gridDim.x) {
            const part_tile tile(q, i, shape::rows / 64, N);
            if (t == 256)
                copy_tile<N, !Fast>(q, tile, ring);
            else if (t >= 288)
                split_tile<N, !Fast>(tile.steps, ring, ready);
        }
        return;
    }
    bulk::grow<shape::registers>();
    // Rows of 32 positions: matrices of eight rows by four of them.
    const unsigned from = static_cast<unsigned>(t / 32 * 16 + lane % 8 + lane / 8 % 2 * 8) * 128;
    for (unsigned i = blockIdx.x; i < tiles; i += gridDim.x) {
        const part_tile tile(q, i, shape::rows / 64, N);
        float sum[1][N / 2];
        sum_lines<N, !Fast>(sum[0], tile.steps, ring, ready, [&](unsigned(&terms)[4][4]) {
#pragma unroll
            for (int k = 0; k < 4; ++k)
                load_matrices(ring.at() + from
                                  + static_cast<unsigned>(((2 * k + lane / 16) ^ (lane % 8)) << 4),
                    terms[k]);
        });
        store_sums<float, 1, N>(q.bulk, tile, sum);
    }
}

}  // namespace code

#define CONVGRAD_POINTWISE(n, type, fast)                                                          \
    extern "C" __global__ void __launch_bounds__((pointwise_tiles<n, !fast>::threads), 1)          \
        pointwise_data_n##n##_##type(const __grid_constant__ pointwise_args p) {                   \
        CONVGRAD_BODY(pointwise_data<n, fast>(p);)                                                 \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__((pointwise_tiles<n, !fast>::threads), 1)          \
        pointwise_weights_n##n##_##type(const __grid_constant__ pointwise_weights_args p) {        \
        CONVGRAD_BODY(pointwise_weights<n, fast>(p);)                                              \
    }
CONVGRAD_POINTWISE(64, f32, false)
CONVGRAD_POINTWISE(64, tf32, true)
CONVGRAD_POINTWISE(128, f32, false)
CONVGRAD_POINTWISE(128, tf32, true)

}  // namespace convgrad::cuda

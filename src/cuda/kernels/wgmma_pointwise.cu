// Layers of one tap between planes, in 16-bit types, on Hopper's tensor cores: planes are read and
// written where they lie, by the copy engine.
//
// A box is 64 neighbouring positions of an image by up to 64 channels, rows of 128 bytes along
// positions. A data pass multiplies boxes, which the unit turns, by weights: 128·M positions by N
// channels; results are turned in shared memory. A weights gradient multiplies rows of
// positions by rows of positions: 2·M lines of 64 input channels by N output channels, 64 positions
// a stage. What a box holds beside its plane is zero on both sides.
#include "bulk_frame.cuh"
#include "bulk_store.cuh"
#include "bulk_sums.cuh"
#include "pointwise.cuh"

#include <type_traits>

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

[[maybe_unused]] constexpr unsigned block = 64 * 128;  // bytes of a box
using data_tile = pointwise_tile<bf16>;
using part_tile = pointwise_weights_tile<bf16>;

/// Copies the lines of a tile, in one thread.
template <bool Turned, int M, int N, int Stages>
__device__ inline void copy_tile(
    const pointwise_args &q, const data_tile &tile, bulk::ring<Stages> &ring) {
    int image[2 * M], x[2 * M];
#pragma unroll
    for (int i = 0; i < 2 * M; ++i) {
        // There may be no more: what comes instead is not stored.
        const int number = min(tile.first_box + i, q.boxes.all - 1);
        image[i] = number / q.boxes.of_image;
        x[i] = number % q.boxes.of_image * data_tile::box;
    }
    for (int l = 0; l < q.bulk.lines; ++l) {
        bulk::wait(ring.is_empty(), ring.parity ^ 1U);
        bulk::expect(ring.is_full(), ring.bytes);
#pragma unroll
        for (int i = 0; i < 2 * M; ++i)
            bulk::copy_box(ring.at() + static_cast<unsigned>(i) * block, q.bulk.in[0],
                ring.is_full(), x[i], l * 64, image[i]);
        const unsigned weights = ring.at() + 2 * M * block;
        if constexpr (!Turned)
            bulk::copy_box(weights, q.bulk.weights, ring.is_full(), l * 64, 0, tile.first_column);
        else
#pragma unroll
            for (int i = 0; i < N / 64; ++i)
                bulk::copy_box(weights + static_cast<unsigned>(i) * block, q.bulk.weights,
                    ring.is_full(), tile.first_column + i * 64, 0, l * 64);
        ring.next();
    }
}

/// Looks at what a warpgroup stored of a tile. Told by numbers: what is pointed at would have to
/// lie in memory.
template <typename T, int M, int N>
__device__ __noinline__ void check_tile(const pointwise_args &q, int row, int column, int first) {
    const data_tile tile(q, row, column, 128 * M, N);
    for (int i = static_cast<int>(threadIdx.x) % 128; i < 64 * M * N; i += 128)
        check_output<T>(q.bulk, tile, tile.output(q, first + i / N), first + i / N, i % N);
}

/// Slices as the copy engine stores them: to planes as rows of 128 bytes of positions, whose pieces
/// are exchanged by bits of the channel.
template <typename T, bool Planes>
struct box_store : slice_store<T> {
    using base = slice_store<T>;
    __device__ box_store(
        const pointwise_args &args, const data_tile &tile, const wide *rows_at, unsigned at)
        : base(args.bulk, tile, rows_at, at) {
        if (!Planes || args.bulk.by_engine == 0) return;
        const unsigned row = static_cast<unsigned>(base::warp() * 16 + base::lane() % 16),
                       channel = static_cast<unsigned>(base::lane() / 16 * 8) + row % 8;
#pragma unroll
        for (unsigned half = 0; half < 2; ++half)
            base::to[half] = at + (half * 16 + channel) * 128 + ((row / 8) ^ (row % 8)) * 16;
    }
};

/// Stores all sums of a warpgroup's rows through the copy engine, as store_slices() does, two
/// slices at once where there are boxes for them: what threads wait for each other is most of the
/// time. Nothing is done for slices beyond the channels. `turn` is the next box, from tile to tile.
template <int M, int N, int Boxes, typename Store, typename Queue>
__device__ inline void store_boxes(
    Store &results, float (&sum)[M][N / 2], unsigned &turn, Queue &&queue) {
    constexpr int slices = N / slice, together = Boxes >= 4 ? 2 : 1;
    results.decorate_all(sum);
    const bool speaks = results.thread() == 0;
    const int columns = results.q.out_channels - results.first_column;
#pragma unroll 1
    for (int i = 0; i < M * slices; i += together) {
        const int column = i % slices * slice;
        if (column >= columns) continue;
        const unsigned moved = turn * bulk_engine_box;
        const bool both = together == 2 && column + slice < columns;
#pragma unroll
        for (int k = 0; k < M * slices; k += together)
            if (i == k) {
                const float *const first = &sum[k / slices][k % slices * (slice / 2)];
                results.stage(first, moved);
                if (both)
                    results.stage(first + (together - 1) * (slice / 2), moved + bulk_engine_box);
            }
        turn = turn + together == Boxes ? 0 : turn + together;
        wgmma::publish();
        // The next boxes are free.
        if (speaks) bulk::await_reads<Boxes / together - 2>();
        results.meet();
        if (!speaks) continue;
        queue(results.box + moved, i / slices, column);
        if (both) queue(results.box + moved + bulk_engine_box, i / slices, column + slice);
        bulk::commit_stores();
    }
}

template <typename T, int M, int N, int Boxes, bool Planes = true>
__device__ inline void store_tile(const pointwise_args &q, const data_tile &tile,
    float (&sum)[M][N / 2], wide *out_at, unsigned box, unsigned &turn, int which) {
    box_store<T, Planes> results(q, tile, out_at, box);
    const auto queue = [&](unsigned from, int m, int column) {
        const int mine = tile.first_box + which * M + m;
        if (mine >= q.boxes.all) return;
        if constexpr (!Planes)
            bulk::store_box(q.bulk.out, from, tile.first_column + column, 0, mine * data_tile::box);
        else
            bulk::store_box(q.bulk.out, from, mine % q.boxes.of_image * data_tile::box,
                tile.first_column + column, mine / q.boxes.of_image);
    };
    if (q.bulk.by_engine != 0) {
        store_boxes<M, N, Boxes>(results, sum, turn, queue);
    } else {
        if (results.thread() < 64)
#pragma unroll
            for (int m = 0; m < M; ++m)
                out_at[m * 64 + results.thread()] =
                    tile.output(q, (which * M + m) * 64 + results.thread());
        store_slices<M, N, 2>(results, sum, queue);
    }
    if (!results.has_special()) return;
    if (threadIdx.x % 128 == 0) bulk::await_stores();
    bulk::meet(which);
    check_tile<T, M, N>(q, tile.row, tile.column, which * 64 * M);
    bulk::meet(which);
}

template <typename T, int N, bool LeftTurned, bool RightTurned>
using product_of = std::conditional_t<LeftTurned,
    std::conditional_t<RightTurned, wgmma::turned_product<T, N>, wgmma::left_turned_product<T, N>>,
    std::conditional_t<RightTurned, wgmma::right_turned_product<T, N>, wgmma::product<T, N>>>;

/// Queues the products of boxes with a line of weights.
template <typename T, bool Turned, bool Planes = true, int M, int Sums>
__device__ inline void multiply_line(float (&sum)[M][Sums], unsigned boxes, unsigned weights) {
    constexpr std::uint64_t next_rows = Planes ? wgmma::next_turned_terms : wgmma::next_terms,
                            next_columns = Turned ? wgmma::next_turned_terms : wgmma::next_terms;
    const std::uint64_t a = Planes ? wgmma::describe_turned(boxes, block) : wgmma::describe(boxes),
                        b = Turned ? wgmma::describe_turned(weights, block)
                                   : wgmma::describe(weights);
#pragma unroll
    for (unsigned k = 0; k < 4; ++k)
#pragma unroll
        for (unsigned m = 0; m < M; ++m)
            product_of<T, Sums * 2, Planes, Turned>::add(
                sum[m], a + k * next_rows + m * (block >> 4), b + k * next_columns, 1);
}

/// The sums of a warpgroup's rows.
template <typename T, bool Turned, int M, int N, int Stages>
__device__ inline void multiply_tile(const pointwise_args &q, const data_tile &tile,
    bulk::ring<Stages> &ring, wide *out_at, unsigned box, unsigned &turn) {
    const int which = static_cast<int>(threadIdx.x) / 128;
    float sum[M][N / 2];
    bulk::sum_stages(sum, q.bulk.lines, ring, [&](float(&to)[M][N / 2]) {
        multiply_line<T, Turned>(
            to, ring.at() + static_cast<unsigned>(which * M) * block, ring.at() + 2 * M * block);
    });
    store_tile<T, M, N, bulk_tiles<M, N>::boxes>(q, tile, sum, out_at, box, turn, which);
}

template <typename T, bool Turned, int M, int N>
__device__ inline void pointwise_data(const pointwise_args &q) {
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
    unsigned turn = 0;
    bulk::in_roles<shape::threads, shape::copy_registers, shape::registers>(
        static_cast<unsigned>(q.bulk.data.tiles),
        [&](unsigned i) { copy_tile<Turned, M, N>(q, data_tile::of(q, i, rows, N), ring); },
        [&](unsigned i) {
            multiply_tile<T, Turned, M, N>(
                q, data_tile::of(q, i, rows, N), ring, out_at, box, turn);
        });
    // Shared memory stays until all is stored.
    if (t % 128 == 0) bulk::await_stores();
}

/// All weights, which stay: lines of all columns.
template <bool Turned, int N>
__device__ inline void copy_weights(const pointwise_args &q, unsigned to, unsigned barrier) {
    const int across = static_cast<int>(q.bulk.data.tiles_n), lines = q.bulk.lines;
    const unsigned bytes = Turned ? N / 64 * static_cast<unsigned>(q.terms) * 128 : N * 128;
    bulk::expect(barrier, static_cast<unsigned>(across * lines) * bytes);
    for (int c = 0; c < across; ++c)
        for (int l = 0; l < lines; ++l, to += N * 128) {
            if constexpr (!Turned)
                bulk::copy_box(to, q.bulk.weights, barrier, l * 64, 0, c * N);
            else
#pragma unroll
                for (int i = 0; i < N / 64; ++i)
                    bulk::copy_box(to + static_cast<unsigned>(i) * block, q.bulk.weights, barrier,
                        c * N + i * 64, 0, l * 64);
        }
}

/// Copies the lines of 128 positions, in one thread.
template <bool Planes, int Stages>
__device__ inline void copy_positions(
    const pointwise_args &q, int first_box, bulk::ring<Stages> &ring) {
    const int last = q.boxes.all - 1, boxes[2] = {first_box, min(first_box + 1, last)};
    for (int l = 0; l < q.bulk.lines; ++l) {
        bulk::wait(ring.is_empty(), ring.parity ^ 1U);
        bulk::expect(ring.is_full(), Planes ? static_cast<unsigned>(2 * q.terms) * 128 : 2 * block);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const unsigned to = ring.at() + static_cast<unsigned>(i) * block;
            if constexpr (Planes)
                bulk::copy_box(to, q.bulk.in[0], ring.is_full(),
                    boxes[i] % q.boxes.of_image * data_tile::box, l * 64,
                    boxes[i] / q.boxes.of_image);
            else
                bulk::copy_box(
                    to, q.bulk.in[0], ring.is_full(), l * 64, 0, boxes[i] * data_tile::box);
        }
        ring.next();
    }
}

/// 128 positions by all channels, N at a time.
template <typename T, bool Turned, int N, bool Planes, int Stages>
__device__ inline void multiply_positions(const pointwise_args &q, int row,
    bulk::ring<Stages> &ring, unsigned weights, wide *out_at, unsigned box, unsigned &turn) {
    const int which = static_cast<int>(threadIdx.x) / 128, lines = q.bulk.lines;
    const int across = static_cast<int>(q.bulk.data.tiles_n);
    const bool speaks = threadIdx.x % 32 == 0;
    for (int c = 0; c < across; ++c) {
        float sum[1][N / 2];
#pragma unroll
        for (int k = 0; k < N / 2; ++k) sum[0][k] = 0;
        bulk::ring<Stages> stage = ring;
        wgmma::fence();
        for (int l = 0; l < lines; ++l, weights += N * 128) {
            if (c == 0) bulk::wait(stage.is_full(), stage.parity);
            multiply_line<T, Turned, Planes>(
                sum, stage.at() + static_cast<unsigned>(which) * block, weights);
            stage.next();
        }
        wgmma::commit();
        wgmma::await();
        if (c + 1 == across)
            for (int l = 0; l < lines; ++l) {
                if (speaks) bulk::arrive(ring.is_empty());
                ring.next();
            }
        store_tile<T, 1, N, whole_tiles<N>::boxes, Planes>(
            q, data_tile(q, row, c, 128, N), sum, out_at, box, turn, which);
    }
}

/// Few channels on both sides: weights stay in shared memory, and a block computes all channels of
/// its positions.
template <typename T, bool Turned, int N, bool Planes>
__device__ inline void pointwise_whole(const pointwise_args &q) {
    using shape = whole_tiles<N>;
    constexpr int stages = shape::stages;
    extern __shared__ unsigned char shared_bytes[];
    __shared__ __align__(8) std::uint64_t barriers[bulk::ring<stages>::barriers + 1];
    const unsigned weights = bulk::stages_at(shared_bytes), memory = weights + shape::weights,
                   barriers_at = static_cast<unsigned>(__cvta_generic_to_shared(barriers)),
                   all_weights = barriers_at + 8U * bulk::ring<stages>::barriers;
    bulk::ring<stages> ring(memory, barriers_at, static_cast<unsigned>(shape::stage));
    const int t = static_cast<int>(threadIdx.x);
    // Terms beyond those that are copied are zeros.
    for (unsigned i = static_cast<unsigned>(t) * 16; i < shape::weights + stages * shape::stage;
         i += shape::threads * 16)
        asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(weights + i), "r"(0) : "memory");
    wgmma::publish();
    if (t == 0) {
        bulk::init(all_weights, 1);
        ring.open();
    }
    __syncthreads();
    const unsigned box =
        memory + static_cast<unsigned>(stages * shape::stage + t / 128 % 2 * shape::room);
    wide *const out_at = static_cast<wide *>(__cvta_shared_to_generic(box + bulk_own_box));
    if (t == 256) copy_weights<Turned, N>(q, weights, all_weights);
    if (t < 256) bulk::wait(all_weights, 0);
    unsigned turn = 0;
    bulk::in_roles<shape::threads, 0, 0>(
        static_cast<unsigned>(q.bulk.data.tiles_m),
        [&](unsigned i) { copy_positions<Planes>(q, static_cast<int>(i) * 2, ring); },
        [&](unsigned i) {
            multiply_positions<T, Turned, N, Planes>(
                q, static_cast<int>(i), ring, weights, out_at, box, turn);
        });
    // Shared memory stays until all is stored.
    if (t % 128 == 0) bulk::await_stores();
}

/// Copies the stages of a tile, in one thread.
template <int M, int N, int Stages>
__device__ inline void copy_tile(
    const pointwise_weights_args &q, const part_tile &tile, bulk::ring<Stages> &ring) {
    const int lines = tile.lines, outs = min(N / 64, (q.bulk.oc - tile.first_out + 63) / 64);
    const unsigned bytes = static_cast<unsigned>(lines + outs) * block;
    int image = tile.first_box / q.boxes.of_image, box = tile.first_box % q.boxes.of_image;
    for (int s = 0; s < tile.steps; ++s) {
        bulk::wait(ring.is_empty(), ring.parity ^ 1U);
        bulk::expect(ring.is_full(), bytes);
#pragma unroll
        for (int i = 0; i < 2 * M; ++i)
            if (i < lines)
                bulk::copy_box(ring.at() + static_cast<unsigned>(i) * block, q.bulk.src,
                    ring.is_full(), box * data_tile::box, (tile.first_line + i) * 64, image);
#pragma unroll
        for (int i = 0; i < N / 64; ++i)
            if (i < outs)
                bulk::copy_box(ring.at() + static_cast<unsigned>(2 * M + i) * block, q.bulk.dst,
                    ring.is_full(), box * data_tile::box, tile.first_out + i * 64, image);
        ring.next();
        if (++box == q.boxes.of_image) {
            box = 0;
            ++image;
        }
    }
}

template <typename T, int M, int N, int Stages>
__device__ inline void multiply_tile(
    const pointwise_weights_args &q, const part_tile &tile, bulk::ring<Stages> &ring) {
    const int t = static_cast<int>(threadIdx.x);
    float sum[M][N / 2];
    bulk::sum_stages(sum, tile.steps, ring, [&](float(&to)[M][N / 2]) {
        const std::uint64_t a = wgmma::describe(
                                ring.at() + static_cast<unsigned>(t / 128 * M) * block),
                            b = wgmma::describe(ring.at() + 2 * M * block);
#pragma unroll
        for (unsigned k = 0; k < bulk_depth / 16; ++k)
#pragma unroll
            for (unsigned m = 0; m < M; ++m)
                wgmma::product<T, N>::add(to[m], a + k * wgmma::next_terms + m * (block >> 4),
                    b + k * wgmma::next_terms, 1);
    });
    store_sums<T, M, N>(q.bulk, tile, sum);
}

template <typename T, int M, int N>
__device__ inline void pointwise_weights(const pointwise_weights_args &q) {
    using shape = bulk_tiles<M, N>;
    constexpr int stages = shape::stages;
    extern __shared__ unsigned char shared_bytes[];
    __shared__ __align__(8) std::uint64_t barriers[bulk::ring<stages>::barriers];
    bulk::ring<stages> ring(bulk::stages_at(shared_bytes),
        static_cast<unsigned>(__cvta_generic_to_shared(barriers)),
        static_cast<unsigned>(shape::stage));
    if (threadIdx.x == 0) ring.open();
    __syncthreads();
    bulk::in_roles<shape::threads, shape::copy_registers, shape::registers>(
        static_cast<unsigned>(q.bulk.weights.tiles),
        [&](unsigned i) { copy_tile<M, N>(q, part_tile(q, i, 2 * M, N), ring); },
        [&](unsigned i) { multiply_tile<T, M, N>(q, part_tile(q, i, 2 * M, N), ring); });
}

}  // namespace code

#define CONVGRAD_WHOLE(name, type, T, turned, planes)                                              \
    extern "C" __global__ void __launch_bounds__(whole_tiles<64>::threads, 2)                      \
        name##_##type(const __grid_constant__ pointwise_args p) {                                  \
        CONVGRAD_BODY(pointwise_whole<T, turned, 64, planes>(p);)                                  \
    }
#define CONVGRAD_TYPES(name, turned, planes)                                                       \
    CONVGRAD_WHOLE(name, bf16, bf16, turned, planes)                                               \
    CONVGRAD_WHOLE(name, f16, f16, turned, planes)
CONVGRAD_TYPES(whole_planes, false, true)
CONVGRAD_TYPES(whole_planes_turned, true, true)
CONVGRAD_TYPES(whole_pixels, false, false)
CONVGRAD_TYPES(whole_pixels_turned, true, false)

#define CONVGRAD_POINTWISE(name, what, args, m, n, ...)                                            \
    extern "C" __global__ void __launch_bounds__((bulk_tiles<m, n>::threads),                      \
        (bulk_tiles<m, n>::at_once)) name(const __grid_constant__ args p) {                        \
        CONVGRAD_BODY(what<__VA_ARGS__, m, n>(p);)                                                 \
    }
#define CONVGRAD_TILES(name, type, what, args, ...)                                                \
    CONVGRAD_POINTWISE(name##_256x64_##type, what, args, 2, 64, __VA_ARGS__)                       \
    CONVGRAD_POINTWISE(name##_128x128_##type, what, args, 1, 128, __VA_ARGS__)                     \
    CONVGRAD_POINTWISE(name##_256x128_##type, what, args, 2, 128, __VA_ARGS__)                     \
    CONVGRAD_POINTWISE(name##_128x256_##type, what, args, 1, 256, __VA_ARGS__)
CONVGRAD_TILES(pointwise_data, bf16, pointwise_data, pointwise_args, bf16, false)
CONVGRAD_TILES(pointwise_data, f16, pointwise_data, pointwise_args, f16, false)
CONVGRAD_TILES(pointwise_turned, bf16, pointwise_data, pointwise_args, bf16, true)
CONVGRAD_TILES(pointwise_turned, f16, pointwise_data, pointwise_args, f16, true)
CONVGRAD_TILES(pointwise_weights, bf16, pointwise_weights, pointwise_weights_args, bf16)
CONVGRAD_TILES(pointwise_weights, f16, pointwise_weights, pointwise_weights_args, f16)

}  // namespace convgrad::cuda

// Backward weights on Hopper's tensor cores: taps and input channels by output channels, summed
// over the positions of a part.
//
// A block computes 128 columns (a tap and input channel each) by N output channels. 16-bit values:
// rows of channels, one for each position, lie in shared memory as they come, and the unit turns
// them. f32: the unit cannot turn, so diff_dst is turned (and split into TF32 parts) before, and
// src goes through registers, where it is split. Parts, merged groups and padding as in
// dense_weights.cu.
#include "bulk.cuh"
#include "positions.cuh"
#include "weights_sum.cuh"
#include "wgmma_tf32.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int threads = wgmma_threads;
[[maybe_unused]] constexpr int stages = wgmma_stages, columns = wgmma_rows;

/// Copiers: threads that copy; Stages: of the ring.
template <typename T, int N, bool Exact, int Copiers = threads, int Stages = stages>
struct layout {
    static constexpr int chunk = 16 / sizeof(T), depth = 128 / sizeof(T);  // positions of a stage
    static constexpr bool turns = sizeof(T) == 2;
    // 16-bit: swizzled blocks of 64 channels. f32: rows that are padded, so that lanes read
    // different banks.
    static constexpr unsigned a_row = turns ? 128 : (columns + 8) * 4,
                              block = depth * 128,  // of 64 channels, 16-bit
        a_bytes = turns ? columns / 64 * block : (depth * a_row + 1023) / 1024 * 1024,
                              b_bytes = turns ? (N + 63) / 64 * block : N * 128,
                              stage_bytes = a_bytes + b_bytes * (Exact ? 2 : 1),
                              ring_bytes = Stages * stage_bytes;
    static constexpr int a_pieces = columns / chunk, a_step = Copiers / a_pieces;
    static constexpr int b_pieces = turns ? (N + 63) / 64 * 8 : 8, b_step = Copiers / b_pieces,
                         b_rows = turns ? depth : N;
};

/// Where piece `piece` of position k lies in swizzled blocks.
__device__ inline unsigned swizzled(int k, int piece, unsigned block) {
    return static_cast<unsigned>(piece / 8) * block + static_cast<unsigned>(k) * 128
           + static_cast<unsigned>(((piece & 7) ^ (k & 7)) << 4);
}

/// Known: stages whose positions are kept. Where threads do nothing but copy, diff_dst is the copy
/// engine's.
template <typename T, int N, bool Exact, int Copiers = threads, int Stages = stages,
    int Known = Stages>
struct weights_copier {
    using l = layout<T, N, Exact, Copiers, Stages>;
    const dense_weights_args &q;
    const position (*positions)[l::depth];
    tap_reader<T> reader;
    const T *dst;
    wide first, row;  // f32: the first position of the part, and the first row of this thread
    int loaded = 0, steps;
    unsigned ring, stage = 0;

    __device__ weights_copier(const dense_weights_args &args, const position (*at)[l::depth],
        unsigned memory, wide group, wide first_out, wide first_column, wide first_position,
        int all_steps)
        : q(args), positions(at), reader(args, group, first_column / l::chunk + me() % l::a_pieces),
          first(first_position), steps(all_steps), ring(memory) {
        const int piece = me() % l::b_pieces;
        if constexpr (l::turns) {
            row = first_out + piece * l::chunk;
            dst = static_cast<const T *>(q.dst) + group * q.dst_group + row;
        } else {
            row = first_out + me() / l::b_pieces;
            dst = static_cast<const T *>(q.dst) + (group * q.oc + row) * q.turned_row
                  + piece * l::chunk;
        }
    }

    static __device__ int me() { return static_cast<int>(threadIdx.x) % Copiers; }

    __device__ void load() {
        if (loaded < steps) {
            const int t = me();
            const unsigned base = ring + stage, b = base + l::a_bytes;
            const position *const at = positions[loaded % Known];
            // Positions are loaded before anything is copied to shared memory, which the loads
            // would have to wait for. Threads that multiply too have no registers for it.
            constexpr int some = Copiers == threads ? 1 : 4;
            static_assert(l::depth / l::a_step % some == 0);
#pragma unroll
            for (int first_i = 0; first_i < l::depth / l::a_step; first_i += some) {
                position here[some];
#pragma unroll
                for (int i = 0; i < some; ++i)
                    here[i] = at[t / l::a_pieces + (first_i + i) * l::a_step];
#pragma unroll
                for (int i = 0; i < some; ++i) {
                    const int k = t / l::a_pieces + (first_i + i) * l::a_step,
                              piece = t % l::a_pieces;
                    copy_16(base
                                + (l::turns ? swizzled(k, piece, l::block)
                                            : static_cast<unsigned>(k) * l::a_row
                                                  + static_cast<unsigned>(piece) * 16),
                        reader.src + here[i].src, reader.is_inside(q.weights, here[i]));
                }
            }
#pragma unroll
            for (int i = 0; i < (Copiers == threads ? l::b_rows / l::b_step : 0); ++i) {
                const int k = t / l::b_pieces + i * l::b_step, piece = t % l::b_pieces;
                if constexpr (l::turns) {
                    const wide offset = at[k].dst;
                    copy_16(
                        b + swizzled(k, piece, l::block), dst + offset, offset >= 0 && row < q.oc);
                } else {
                    const wide from = first + static_cast<wide>(loaded) * l::depth;
                    const T *const here = dst + i * l::b_step * q.turned_row + from;
                    const bool there =
                        row + i * l::b_step < q.oc && from + piece * l::chunk < q.turned_row;
                    copy_16(b + swizzled(k, piece, 0), here, there);
                    if constexpr (Exact)
                        copy_16(b + l::b_bytes + swizzled(k, piece, 0), here + q.small, there);
                }
            }
            ++loaded;
            stage += l::stage_bytes;
            if (stage == l::ring_bytes) stage = 0;
        }
        asm volatile("cp.async.commit_group;");
    }
};

template <typename T, int N, bool Exact, typename Load>
__device__ inline void multiply_stage(
    float (&sum)[N / 2], unsigned base, int lane, int warp, Load &&load) {
    using l = layout<T, N, Exact>;
    if constexpr (l::turns) {
        const std::uint64_t a = wgmma::describe_turned(
                                base + static_cast<unsigned>(warp / 4) * l::block, l::block),
                            b = wgmma::describe_turned(base + l::a_bytes, l::block);
        wgmma::fence();
#pragma unroll
        for (int k = 0; k < l::depth / 16; ++k)
            wgmma::turned_product<T, N>::add(sum,
                a + static_cast<unsigned>(k) * wgmma::next_turned_terms,
                b + static_cast<unsigned>(k) * wgmma::next_turned_terms, 1);
        wgmma::commit();
        load();
        wgmma::await();
    } else {
        const unsigned a_at = base + static_cast<unsigned>(lane % 4) * l::a_row
                              + static_cast<unsigned>(warp * 16 + lane / 4) * 4;
        unsigned terms[4][4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const unsigned from = a_at + static_cast<unsigned>(k) * 8 * l::a_row;
            terms[k][0] = load_word(from);
            terms[k][1] = load_word(from + 32);
            terms[k][2] = load_word(from + 4 * l::a_row);
            terms[k][3] = load_word(from + 4 * l::a_row + 32);
        }
        wgmma::add_tf32<N, Exact>(
            sum, terms, base + l::a_bytes, base + l::a_bytes + l::b_bytes, load);
    }
}

/// Stores a part's sums where sum_parts looks for them; what lies between merged groups is left.
template <typename T, int N>
__device__ inline void store_part(const dense_weights_args &q, const float (&sum)[N / 2], int lane,
    wide first_column, wide first_out, wide group, wide part, wide first, wide last) {
    const weights_args &p = q.weights;
    const wide length = p.taps * p.ic;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const weight_place w =
            find_weight(q, first_column + lane / 4 + h * 8, static_cast<int>(16 / sizeof(T)));
        if (!w.there) continue;
        const wide of = group * q.merged + w.own;
        float *const to = p.partial + (part * p.groups + of) * p.oc * length + w.k;
#pragma unroll
        for (int j = 0; j < N / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int row = static_cast<int>(first_out) + j * 8 + lane % 4 * 2 + e;
                const int o = row - static_cast<int>(w.own * p.oc);
                if (row >= q.oc || o < 0 || o >= p.oc) continue;
                float v = sum[j * 4 + h * 2 + e];
                if (!is_finite(v)) v = careful_weight<T, true>(p, of, o, w.k, first, last, v);
                to[o * length] = v;
            }
    }
}

/// A tile of a part: its place, and the positions that it sums over.
struct weights_tile {
    wide first_column, first_out, group, part, first, last;
    int steps;

    __device__ weights_tile(const dense_weights_args &q, wide rest, int outs, int depth) {
        const weights_args &p = q.weights;
        first_column = rest % p.tiles_n * columns;
        rest /= p.tiles_n;
        first_out = rest % p.tiles_m * outs;
        rest /= p.tiles_m;
        group = rest % q.groups;
        part = rest / q.groups;
        first = part * p.part_length;
        last = first + p.part_length < p.positions ? first + p.part_length : p.positions;
        steps = first < last ? static_cast<int>((last - first + depth - 1) / depth) : 0;
    }
};

template <typename T, int N, bool Fast>
__device__ void weights_product(const dense_weights_args &q) {
    constexpr bool exact = sizeof(T) == 4 && !Fast;
    using l = layout<T, N, exact>;
    static_assert(l::ring_bytes + 1024 <= wgmma_weights_shared);
    extern __shared__ unsigned char shared_bytes[];
    __shared__ position positions[stages][l::depth];
    const unsigned ring =
        (static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes)) + 1023U) & ~1023U;
    const int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32;
    for (wide i = blockIdx.x; i < q.weights.tiles; i += gridDim.x) {
        const weights_tile tile(q, i, N, l::depth);
        const auto describe = [&](int step) {
            if (t < l::depth && step < tile.steps)
                positions[step % stages][t] = find_position(
                    q, tile.first + static_cast<wide>(step) * l::depth + t, tile.last);
        };
        __syncthreads();
        for (int k = 0; k < stages; ++k) describe(k);
        __syncthreads();
        weights_copier<T, N, exact> copy(q, positions, ring, tile.group, tile.first_out,
            tile.first_column, tile.first, tile.steps);
        float sum[N / 2];
#pragma unroll
        for (int k = 0; k < N / 2; ++k) sum[k] = 0;
#pragma unroll
        for (int k = 0; k < stages - 1; ++k) copy.load();
        unsigned stage = ring;
        for (int step = 0; step < tile.steps; ++step) {
            asm volatile("cp.async.wait_group %0;" ::"n"(stages - 2));
            wgmma::publish();
            __syncthreads();
            multiply_stage<T, N, exact>(sum, stage, lane, warp, [&] {
                copy.load();
                // The positions of this step have been read: those of the one that follows it.
                describe(step + stages);
            });
            stage += l::stage_bytes;
            if (stage == ring + l::ring_bytes) stage = ring;
        }
        asm volatile("cp.async.wait_group 0;");
        store_part<T, N>(q, sum, lane, tile.first_column + warp * 16, tile.first_out, tile.group,
            tile.part, tile.first, tile.last);
    }
}

/// f32. A warpgroup copies, and two multiply at their own pace, so that one splits terms and adds
/// to its sums while the other's products are under way.
namespace roles {

[[maybe_unused]] constexpr int
    copiers = 128,
    ring_stages = wgmma_roles_stages, lag = 2,
    known = 2 * 4;  // stages whose positions are kept: those of two times all copiers
template <int N, bool Exact>
using tile_layout = layout<float, N, Exact, copiers, ring_stages>;
template <int N, bool Exact>
constexpr bool is_ring = tile_layout<N, Exact>::ring_bytes + 1024
                         == wgmma_roles_shared(N, Exact ? 2 : 1);
using stage_ring = bulk::ring<ring_stages, 8, copiers + 1>;  // + 1: the copy engine

/// Rows of diff_dst, by one thread. Rows beside those of the group give sums that nobody stores.
template <int N, bool Exact>
__device__ inline void copy_turned(
    const dense_weights_args &q, const weights_tile &tile, int step, const stage_ring &stages_of) {
    using l = tile_layout<N, Exact>;
    const int position = static_cast<int>(tile.first) + step * l::depth,
              row = static_cast<int>(tile.group) * q.oc + static_cast<int>(tile.first_out);
    const unsigned to = stages_of.at() + l::a_bytes;
    bulk::expect(stages_of.is_full(), (Exact ? 2 : 1) * l::b_bytes);
    bulk::copy_box(to, q.turned, stages_of.is_full(), position, 0, row);
    if constexpr (Exact)
        bulk::copy_box(to + l::b_bytes, q.turned, stages_of.is_full(), position, 1, row);
}

template <int N, bool Exact>
__device__ inline void copy_tile(const dense_weights_args &q, position (*positions)[32],
    const weights_tile &tile, stage_ring &stages_of, unsigned memory) {
    using l = tile_layout<N, Exact>;
    const int t = static_cast<int>(threadIdx.x) % copiers;
    weights_copier<float, N, Exact, copiers, ring_stages, known> copy(q, positions, memory,
        tile.group, tile.first_out, tile.first_column, tile.first, tile.steps);
    copy.stage = static_cast<unsigned>(stages_of.stage) * l::stage_bytes;
    // Of as many steps as there are threads for: they take turns with those that are copied.
    constexpr int at_once = copiers / l::depth;
    static_assert(known == 2 * at_once);
    const auto describe = [&](int step) {
        step += t / l::depth;
        if (step < tile.steps)
            positions[step % known][t % l::depth] = find_position(
                q, tile.first + static_cast<wide>(step) * l::depth + t % l::depth, tile.last);
    };
    // What has come is told `lag` stages later, so that so many copies are under way.
    stage_ring told = stages_of;
    const auto tell = [&] {
        wgmma::publish();
        bulk::arrive(told.is_full());
        told.next();
    };
    bulk::meet(2);
    describe(0);
    for (int step = 0; step < tile.steps; ++step) {
        if (step % at_once == 0) {
            bulk::meet(2);
            describe(step + at_once);
        }
        bulk::wait(stages_of.is_empty(), stages_of.parity ^ 1U);
        if (t == 0) copy_turned<N, Exact>(q, tile, step, stages_of);
        copy.load();
        stages_of.next();
        if (step < lag) continue;
        asm volatile("cp.async.wait_group %0;" ::"n"(lag));
        tell();
    }
    asm volatile("cp.async.wait_group 0;");
    for (int step = 0; step < lag && step < tile.steps; ++step) tell();
}

template <int N, bool Exact>
__device__ inline void multiply_tile(
    const dense_weights_args &q, const weights_tile &tile, stage_ring &stages_of) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    float sum[N / 2];
#pragma unroll
    for (int k = 0; k < N / 2; ++k) sum[k] = 0;
    for (int step = 0; step < tile.steps; ++step) {
        bulk::wait(stages_of.is_full(), stages_of.parity);
        multiply_stage<float, N, Exact>(sum, stages_of.at(), lane, warp, [] {});
        if (lane == 0) bulk::arrive(stages_of.is_empty());
        stages_of.next();
    }
    store_part<float, N>(q, sum, lane, tile.first_column + warp * 16, tile.first_out, tile.group,
        tile.part, tile.first, tile.last);
}

template <int N, bool Exact>
__device__ void weights_product(const dense_weights_args &q) {
    using l = tile_layout<N, Exact>;
    extern __shared__ unsigned char shared_bytes[];
    static_assert(is_ring<N, Exact>);
    __shared__ position positions[known][l::depth];
    __shared__ std::uint64_t barriers[stage_ring::barriers];
    const unsigned memory =
        (static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes)) + 1023U) & ~1023U;
    stage_ring stages_of(
        memory, static_cast<unsigned>(__cvta_generic_to_shared(barriers)), l::stage_bytes);
    if (threadIdx.x == 0) stages_of.open();
    __syncthreads();
    if (threadIdx.x >= 256) {
        bulk::shrink<88>();
        for (wide i = blockIdx.x; i < q.weights.tiles; i += gridDim.x)
            copy_tile<N, Exact>(q, positions, weights_tile(q, i, N, l::depth), stages_of, memory);
    } else {
        bulk::grow<200>();
        for (wide i = blockIdx.x; i < q.weights.tiles; i += gridDim.x)
            multiply_tile<N, Exact>(q, weights_tile(q, i, N, l::depth), stages_of);
    }
}

}  // namespace roles

}  // namespace code

#define CONVGRAD_WEIGHTS(name, T, n, fast)                                                         \
    extern "C" __global__ void __launch_bounds__(threads, 2)                                       \
        name(const __grid_constant__ dense_weights_args p) {                                       \
        CONVGRAD_BODY(weights_product<T, n, fast>(p);)                                             \
    }
#define CONVGRAD_COLUMNS(n)                                                                        \
    CONVGRAD_WEIGHTS(wgmma_weights_n##n##_bf16, bf16, n, false)                                    \
    CONVGRAD_WEIGHTS(wgmma_weights_n##n##_f16, f16, n, false)
CONVGRAD_COLUMNS(32)
CONVGRAD_COLUMNS(64)
CONVGRAD_COLUMNS(128)
CONVGRAD_WEIGHTS(wgmma_weights_n32_f32, float, 32, false)
CONVGRAD_WEIGHTS(wgmma_weights_n32_tf32, float, 32, true)
#define CONVGRAD_ROLES(name, n, exact)                                                             \
    extern "C" __global__ void __launch_bounds__(wgmma_roles_threads, 1)                           \
        name(const __grid_constant__ dense_weights_args p) {                                       \
        CONVGRAD_BODY(roles::weights_product<n, exact>(p);)                                        \
    }
CONVGRAD_ROLES(wgmma_weights_n64_f32, 64, true)
CONVGRAD_ROLES(wgmma_weights_n64_tf32, 64, false)
CONVGRAD_ROLES(wgmma_weights_n128_f32, 128, true)
CONVGRAD_ROLES(wgmma_weights_n128_tf32, 128, false)

}  // namespace convgrad::cuda

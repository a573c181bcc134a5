// Backward weights on Hopper's tensor cores: taps and input channels by output channels, summed
// over the positions of a part.
//
// A block computes 128 columns (a tap and input channel each) by N output channels. 16-bit values:
// rows of channels, one for each position, lie in shared memory as they come, and the unit turns
// them. f32: the unit cannot turn, so diff_dst is turned (and split into TF32 parts) before, and
// src goes through registers, where it is split. Parts, merged groups and padding as in
// dense_weights.cu.
#include "positions.cuh"
#include "tensor.cuh"
#include "weights_sum.cuh"
#include "wgmma_tf32.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int threads = wgmma_threads;
[[maybe_unused]] constexpr int stages = wgmma_stages, columns = wgmma_rows;

template <typename T, int N, bool Exact>
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
                              ring_bytes = stages * stage_bytes;
    static constexpr int a_pieces = columns / chunk, a_step = threads / a_pieces;
    static constexpr int b_pieces = turns ? (N + 63) / 64 * 8 : 8, b_step = threads / b_pieces,
                         b_rows = turns ? depth : N;
};

/// Where piece `piece` of position k lies in swizzled blocks.
__device__ inline unsigned swizzled(int k, int piece, unsigned block) {
    return static_cast<unsigned>(piece / 8) * block + static_cast<unsigned>(k) * 128
           + static_cast<unsigned>(((piece & 7) ^ (k & 7)) << 4);
}

template <typename T, int N, bool Exact>
struct weights_copier {
    using l = layout<T, N, Exact>;
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
        : q(args), positions(at),
          reader(
              args, group, first_column / l::chunk + static_cast<int>(threadIdx.x) % l::a_pieces),
          first(first_position), steps(all_steps), ring(memory) {
        const int piece = static_cast<int>(threadIdx.x) % l::b_pieces;
        if constexpr (l::turns) {
            row = first_out + piece * l::chunk;
            dst = static_cast<const T *>(q.dst) + group * q.dst_group + row;
        } else {
            row = first_out + static_cast<int>(threadIdx.x) / l::b_pieces;
            dst = static_cast<const T *>(q.dst) + (group * q.oc + row) * q.turned_row
                  + piece * l::chunk;
        }
    }

    __device__ void load() {
        if (loaded < steps) {
            const int t = static_cast<int>(threadIdx.x);
            const unsigned base = ring + stage, b = base + l::a_bytes;
            const position *const at = positions[loaded % stages];
#pragma unroll
            for (int i = 0; i < l::depth / l::a_step; ++i) {
                const int k = t / l::a_pieces + i * l::a_step, piece = t % l::a_pieces;
                const position here = at[k];
                copy_16(base
                            + (l::turns ? swizzled(k, piece, l::block)
                                        : static_cast<unsigned>(k) * l::a_row
                                              + static_cast<unsigned>(piece) * 16),
                    reader.src + here.src, reader.is_inside(q.weights, here));
            }
#pragma unroll
            for (int i = 0; i < l::b_rows / l::b_step; ++i) {
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

template <typename T, int N, bool Fast>
__device__ void weights_product(const dense_weights_args &q) {
    constexpr bool exact = sizeof(T) == 4 && !Fast;
    using l = layout<T, N, exact>;
    static_assert(l::ring_bytes + 1024
                  <= (exact && N == 128 ? wgmma_weights_wide_shared : wgmma_weights_shared));
    extern __shared__ unsigned char shared_bytes[];
    __shared__ position positions[stages][l::depth];
    const unsigned ring =
        (static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes)) + 1023U) & ~1023U;
    const weights_args &p = q.weights;
    const int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32;
    for (wide tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        wide rest = tile;
        const wide first_column = rest % p.tiles_n * columns;
        rest /= p.tiles_n;
        const wide first_out = rest % p.tiles_m * N;
        rest /= p.tiles_m;
        const wide group = rest % q.groups, part = rest / q.groups;
        const wide first = part * p.part_length,
                   last = first + p.part_length < p.positions ? first + p.part_length : p.positions;
        const int steps =
            first < last ? static_cast<int>((last - first + l::depth - 1) / l::depth) : 0;
        const auto describe = [&](int step) {
            if (t < l::depth && step < steps)
                positions[step % stages][t] =
                    find_position(q, first + static_cast<wide>(step) * l::depth + t, last);
        };
        __syncthreads();
        for (int i = 0; i < stages; ++i) describe(i);
        __syncthreads();
        weights_copier<T, N, exact> copy(
            q, positions, ring, group, first_out, first_column, first, steps);
        float sum[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; ++i) sum[i] = 0;
#pragma unroll
        for (int i = 0; i < stages - 1; ++i) copy.load();
        unsigned stage = ring;
        for (int step = 0; step < steps; ++step) {
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
        store_part<T, N>(
            q, sum, lane, first_column + warp * 16, first_out, group, part, first, last);
    }
}

}  // namespace code

#define CONVGRAD_WEIGHTS(name, T, n, fast)                                                         \
    extern "C" __global__ void __launch_bounds__(                                                  \
        threads, sizeof(T) == 4 && !fast && n > 64 ? 1 : 2)                                        \
        name(const __grid_constant__ dense_weights_args p) {                                       \
        CONVGRAD_BODY(weights_product<T, n, fast>(p);)                                             \
    }
#define CONVGRAD_COLUMNS(n)                                                                        \
    CONVGRAD_WEIGHTS(wgmma_weights_n##n##_f32, float, n, false)                                    \
    CONVGRAD_WEIGHTS(wgmma_weights_n##n##_bf16, bf16, n, false)                                    \
    CONVGRAD_WEIGHTS(wgmma_weights_n##n##_f16, f16, n, false)                                      \
    CONVGRAD_WEIGHTS(wgmma_weights_n##n##_tf32, float, n, true)
CONVGRAD_COLUMNS(32)
CONVGRAD_COLUMNS(64)
CONVGRAD_COLUMNS(128)

}  // namespace convgrad::cuda

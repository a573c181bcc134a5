// Backward weights on tensor cores: output channels by taps and input channels, summed over the
// positions of a part.
//
// Rows of channels, one for each position, go through a ring of stages in shared memory, by
// asynchronous copies that write zeros where padding is; a thread copies the same tap and channels
// of each row. f32 is split into two TF32 parts, three products, and the sum of 16 terms is added
// to the total by a rounded addition. Groups of few channels are merged: what lies between them is
// computed and not stored.
#include "positions.cuh"
#include "tensor.cuh"
#include "weights_sum.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int threads = dense_weights_threads, stages = dense_weights_stages,
              tile_m = dense_weights_rows, tile_n = dense_weights_columns;

template <typename T>
struct layout {
    static constexpr int chunk = 16 / sizeof(T), depth = 128 / sizeof(T);  // positions of a stage
    // Rows are padded so that the eight rows of a fragment lie in different banks.
    static constexpr unsigned a_row = (tile_m + 8) * sizeof(T), b_row = (tile_n + 8) * sizeof(T),
                              a_bytes = a_row * depth, stage_bytes = (a_row + b_row) * depth;
    static constexpr int a_pieces = tile_m / chunk, b_pieces = tile_n / chunk;
    static constexpr int a_step = threads / a_pieces, b_step = threads / b_pieces;
    static_assert(stage_bytes * stages <= dense_weights_shared);
};

/// Fragments of 16 rows by 32 bytes, and of 32 bytes by 16 columns, of matrices whose rows are
/// terms of the sum.
template <typename T>
__device__ inline void load_a(unsigned at, int lane, unsigned (&a)[4]) {
    constexpr unsigned row = layout<T>::a_row;
    if constexpr (sizeof(T) == 2) {
        const unsigned from = at + static_cast<unsigned>((lane & 7) + (lane >> 4) * 8) * row
                              + static_cast<unsigned>((lane >> 3) & 1) * 16;
        load_matrices_turned(from, a);
    } else {
        const unsigned from =
            at + static_cast<unsigned>(lane % 4) * row + static_cast<unsigned>(lane / 4) * 4;
        a[0] = load_word(from);
        a[1] = load_word(from + 32);
        a[2] = load_word(from + 4 * row);
        a[3] = load_word(from + 4 * row + 32);
    }
}
template <typename T>
__device__ inline void load_b(unsigned at, int lane, unsigned (&b)[4]) {
    constexpr unsigned row = layout<T>::b_row;
    if constexpr (sizeof(T) == 2) {
        const unsigned from = at + static_cast<unsigned>((lane & 7) + ((lane >> 3) & 1) * 8) * row
                              + static_cast<unsigned>(lane >> 4) * 16;
        load_matrices_turned(from, b);
    } else {
        const unsigned from =
            at + static_cast<unsigned>(lane % 4) * row + static_cast<unsigned>(lane / 4) * 4;
        b[0] = load_word(from);
        b[1] = load_word(from + 4 * row);
        b[2] = load_word(from + 32);
        b[3] = load_word(from + 4 * row + 32);
    }
}

/// What a thread copies of each stage.
template <typename T>
struct weights_copier {
    using l = layout<T>;
    const dense_weights_args &q;
    const position (*positions)[l::depth];
    unsigned ring;
    tap_reader<T> reader;
    const T *dst;  // at this thread's channels
    bool a_there;
    int loaded = 0, steps;

    __device__ weights_copier(const dense_weights_args &args, const position (*at)[l::depth],
        unsigned memory, wide group, wide first_row, wide first_piece, int all_steps)
        : q(args), positions(at), ring(memory),
          reader(args, group, first_piece + static_cast<int>(threadIdx.x) % l::b_pieces),
          steps(all_steps) {
        const wide row = first_row + static_cast<int>(threadIdx.x) % l::a_pieces * l::chunk;
        a_there = row < q.oc;
        dst = static_cast<const T *>(q.dst) + group * q.dst_group + row;
    }

    __device__ void load() {
        if (loaded < steps) {
            const int t = static_cast<int>(threadIdx.x);
            const unsigned base = ring + static_cast<unsigned>(loaded % stages) * l::stage_bytes;
            const position *const at = positions[loaded % stages];
            // Nothing is read where zeros are written.
#pragma unroll
            for (int i = 0; i < l::depth / l::a_step; ++i) {
                const int k = t / l::a_pieces + i * l::a_step;
                const wide offset = at[k].dst;
                copy_16(base + static_cast<unsigned>(k) * l::a_row
                            + static_cast<unsigned>(t % l::a_pieces) * 16,
                    dst + offset, a_there && offset >= 0);
            }
#pragma unroll
            for (int i = 0; i < l::depth / l::b_step; ++i) {
                const int k = t / l::b_pieces + i * l::b_step;
                const position here = at[k];
                copy_16(base + l::a_bytes + static_cast<unsigned>(k) * l::b_row
                            + static_cast<unsigned>(t % l::b_pieces) * 16,
                    reader.src + here.src, reader.is_inside(q.weights, here));
            }
            ++loaded;
        }
        commit_copies();
    }
};

using warp_sums = float[2][8][4];

__device__ inline void clear(warp_sums &sum) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[i][j][e] = 0;
}
/// Where a warp's 32 rows and 64 columns of a stage lie.
template <typename T>
struct fragments {
    using l = layout<T>;
    static constexpr int terms = 32 / sizeof(T), steps = l::depth / terms;
    unsigned a_at, b_at;
    int lane;

    __device__ fragments(unsigned base, int of_lane, int warp_m, int warp_n)
        : a_at(base + static_cast<unsigned>(warp_m * 32) * sizeof(T)),
          b_at(base + l::a_bytes + static_cast<unsigned>(warp_n * 64) * sizeof(T)), lane(of_lane) {}
    __device__ void a(int i, int k, unsigned (&to)[4]) const {
        load_a<T>(a_at + static_cast<unsigned>(k * terms) * l::a_row
                      + static_cast<unsigned>(i * 16) * sizeof(T),
            lane, to);
    }
    __device__ void b(int j, int k, unsigned (&to)[4]) const {
        load_b<T>(b_at + static_cast<unsigned>(k * terms) * l::b_row
                      + static_cast<unsigned>(j * 8) * sizeof(T),
            lane, to);
    }
};

/// Adds the products of a stage: 16-bit values, or f32 rounded to TF32.
template <typename T>
__device__ inline void multiply_stage(warp_sums &sum, const fragments<T> &from) {
#pragma unroll
    for (int k = 0; k < from.steps; ++k) {
        unsigned a[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            from.a(i, k, a[i]);
            round_terms<T>(a[i]);
        }
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            unsigned b[4];
            from.b(j, k, b);
            round_terms<T>(b);
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int i = 0; i < 2; ++i) multiply<T>(sum[i][j + h], a[i], b + 2 * h);
        }
    }
}

/// The same of f32 by three products, those with a small part first, while the sum
/// is 2^-11 of what it will be, and sums of 16 terms are added: the unit cuts off, it does not
/// round.
__device__ inline void multiply_split(warp_sums &sum, const fragments<float> &from) {
#pragma unroll 1
    for (int first = 0; first < 4; first += 2) {
        warp_sums part;
        clear(part);
#pragma unroll
        for (int large = 0; large < 2; ++large)
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                unsigned a[2][4], a_small[2][4];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    from.a(i, first + k, a[i]);
                    split(a[i], a_small[i]);
                }
#pragma unroll
                for (int j = 0; j < 8; j += 2) {
                    unsigned b[4], b_small[4];
                    from.b(j, first + k, b);
                    split(b, b_small);
#pragma unroll
                    for (int h = 0; h < 2; ++h)
#pragma unroll
                        for (int i = 0; i < 2; ++i)
                            if (large == 0)
                                multiply<float>(part[i][j + h], a_small[i], b + 2 * h);
                            else
                                multiply<float>(part[i][j + h], a[i], b + 2 * h);
                    if (large == 0)
#pragma unroll
                        for (int h = 0; h < 2; ++h)
#pragma unroll
                            for (int i = 0; i < 2; ++i)
                                multiply<float>(part[i][j + h], a[i], b_small + 2 * h);
                }
            }
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j) add(sum[i][j], part[i][j]);
    }
}

/// Stores a part's sums where sum_parts looks for them; what lies between merged groups is left.
template <typename T>
__device__ inline void store_part(const dense_weights_args &q, const warp_sums &sum, int lane,
    wide first_row, wide first_column, wide group, wide part, wide first, wide last) {
    const weights_args &p = q.weights;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const weight_place w =
                find_weight(q, first_column + j * 8 + lane % 4 * 2 + e, layout<T>::chunk);
            if (!w.there) continue;
            const wide of = group * q.merged + w.own;
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const wide row = first_row + i * 16 + lane / 4 + h * 8, o = row - w.own * p.oc;
                    if (row >= q.oc || o < 0 || o >= p.oc) continue;
                    float v = sum[i][j][h * 2 + e];
                    if (!is_finite(v)) v = careful_weight<T, true>(p, of, o, w.k, first, last, v);
                    p.partial[((part * p.groups + of) * p.oc + o) * p.taps * p.ic + w.k] = v;
                }
        }
}

template <typename T, bool Fast>
__device__ void weights_product(const dense_weights_args &q) {
    using l = layout<T>;
    constexpr bool exact = sizeof(T) == 4 && !Fast;
    unsigned char *const shared_bytes = dynamic_shared();
    __shared__ position positions[stages][l::depth];
    const unsigned ring = shared_address(shared_bytes);
    const weights_args &p = q.weights;
    const int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32, warp_m = warp % 2,
              warp_n = warp / 2;
    for (wide tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        wide rest = tile;
        const wide first_column = rest % p.tiles_n * tile_n;
        rest /= p.tiles_n;
        const wide first_row = rest % p.tiles_m * tile_m;
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
        weights_copier<T> copy(
            q, positions, ring, group, first_row, first_column / l::chunk, steps);
        warp_sums sum;
        clear(sum);
#pragma unroll
        for (int i = 0; i < stages - 1; ++i) copy.load();
        for (int step = 0; step < steps; ++step) {
            await_copies<stages - 2>();
            __syncthreads();
            copy.load();
            // The positions of this step have been read: those of the one that follows its ring.
            describe(step + stages);
            const fragments<T> from(
                ring + static_cast<unsigned>(step % stages) * l::stage_bytes, lane, warp_m, warp_n);
            if constexpr (exact)
                multiply_split(sum, from);
            else
                multiply_stage<T>(sum, from);
        }
        await_copies<0>();
        store_part<T>(q, sum, lane, first_row + warp_m * 32, first_column + warp_n * 64, group,
            part, first, last);
    }
}

}  // namespace code

#define CONVGRAD_WEIGHTS(name, T, fast)                                                            \
    extern "C" __global__ void __launch_bounds__(threads, 2)                                       \
        name(const __grid_constant__ dense_weights_args p) {                                       \
        weights_product<T, fast>(p);                                                               \
    }
CONVGRAD_WEIGHTS(dense_weights_f32, float, false)
CONVGRAD_WEIGHTS(dense_weights_bf16, bf16, false)
CONVGRAD_WEIGHTS(dense_weights_f16, f16, false)
CONVGRAD_WEIGHTS(dense_weights_tf32, float, true)

}  // namespace convgrad::cuda

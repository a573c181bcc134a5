// Forward and backward data on Hopper's tensor cores: an implicit product of packed operands.
//
// A block computes 128 positions by N channels. Lines of 128 bytes along the sum (channels of one
// tap, or several taps of few channels) go through a ring of stages in shared memory, swizzled, by
// asynchronous copies that write zeros where padding is. f32 is split into two TF32 parts, three
// products, and sums of 16 terms are added to the total by a rounded addition: sums inside the
// tensor unit are cut off, not rounded. Groups of few channels are merged, with zeros for the
// weights between them.
#include "implicit.cuh"
#include "tensor.cuh"
#include "wgmma_tf32.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

constexpr int rows = wgmma_rows, threads = wgmma_threads;
[[maybe_unused]] constexpr int stages = wgmma_stages;
constexpr unsigned line = 128;
[[maybe_unused]] constexpr unsigned a_bytes = rows * line;

/// A tap of a phase: what it adds to a row's place in the input, and to one in the weights. Bytes.
struct __align__(16) tap_place {
    wide moved;
    wide weights;
};

/// A row of the input, in bytes: where tap 0 reads it, and a bit for each tap that is inside.
struct __align__(16) row_place {
    wide at;
    std::uint64_t inside;
};

struct data_tile {
    row_place in[rows];
    wide out_at[rows];  // -1: beyond the end
    wide add_at[rows];
    axis_phase<int> phase[3];
    tap_place tap[wgmma_most_taps];
};

/// One bit for each tap whose input is inside.
__device__ inline std::uint64_t find_inside(const axis_phase<int> *phase, const int (&j)[3]) {
    const auto inside = [&](int d, int t) {
        const axis_phase<int> &f = phase[d];
        return static_cast<unsigned>(f.in_first + f.in_step * j[d] + f.shift * t)
               < static_cast<unsigned>(f.in);
    };
    std::uint64_t inner = 0, all = 0;
    for (int t = 0; t < phase[2].taps; ++t)
        if (inside(2, t)) inner |= std::uint64_t{1} << t;
    for (int t0 = 0; t0 < phase[0].taps; ++t0)
        for (int t1 = 0; t1 < phase[1].taps; ++t1)
            if (inside(0, t0) && inside(1, t1))
                all |= inner << ((t0 * phase[1].taps + t1) * phase[2].taps);
    return all;
}

__device__ inline void describe_row(const wgmma_args &q, data_tile &s, int r, wide first_row,
    wide all_rows, wide group, int element) {
    const data_args &p = q.data;
    s.out_at[r] = -1;
    s.in[r] = {0, 0};
    if (first_row + r >= all_rows) return;
    int j[3];
    const int n = find_position(s.phase, static_cast<int>(first_row) + r, j);
    wide at = n * q.in_n + group * q.in_group;
    wide out = n * p.end.out_strides.n, add = n * p.end.add_strides.n;
    for (int d = 0; d < 3; ++d) {
        const axis_phase<int> &f = s.phase[d];
        const wide y = f.out_first + f.out_step * static_cast<wide>(j[d]);
        at += (f.in_first + f.in_step * j[d]) * q.in_x[d];
        out += y * p.end.out_strides.x[d];
        add += y * p.end.add_strides.x[d];
    }
    s.in[r] = {at * element, find_inside(s.phase, j)};
    s.out_at[r] = out;
    s.add_at[r] = add;
}

__device__ inline void describe_tap(const wgmma_args &q, data_tile &s, int t, int element) {
    const data_args &p = q.data;
    wide moved = 0, number = 0, weight = 1;
    for (int d = 2; d >= 0; --d) {
        const axis_phase<int> &f = s.phase[d];
        const int k = t % f.taps;
        t /= f.taps;
        moved += static_cast<wide>(f.shift * k) * q.in_x[d];
        number += (f.tap_first + f.tap_step * static_cast<wide>(k)) * weight;
        weight *= p.x[d].kernel;
    }
    s.tap[threadIdx.x] = {moved * element, number * q.channels * element};
}

/// What a thread copies: pieces of 16 bytes, in the same place of each line. Places are bytes.
template <typename T, int N, bool Exact>
struct copier {
    static constexpr int chunk = 16 / sizeof(T), a_rows = rows * 8 / threads,
                         b_rows = N * 8 / threads, step_rows = threads / 8;
    static constexpr unsigned stage_bytes = (rows + N * (Exact ? 2 : 1)) * line,
                              ring_bytes = stages * stage_bytes;

    const wgmma_args &q;
    const data_tile &s;
    const char *in, *weights;  // at this thread's channel
    wide weights_step, small;  // between this thread's rows; from large to small parts
    unsigned weights_there;    // bits of rows
    int tap, taps, tap_step, channel, loaded = 0, steps;
    unsigned to, stage = 0;

    __device__ copier(
        const wgmma_args &args, const data_tile &tile, unsigned ring, wide group, wide first_column)
        : q(args), s(tile) {
        const int t = static_cast<int>(threadIdx.x), piece = t % 8, row = t / 8;
        taps = s.phase[0].taps * s.phase[1].taps * s.phase[2].taps;
        tap = piece / q.tap_pieces;
        tap_step = 8 / q.tap_pieces;
        channel = piece % q.tap_pieces * chunk;
        steps = (taps + tap_step - 1) / tap_step * q.lines;
        to = ring + static_cast<unsigned>(row) * line
             + static_cast<unsigned>((piece ^ (row & 7)) << 4);
        in = static_cast<const char *>(q.in) + channel * static_cast<int>(sizeof(T));
        weights = static_cast<const char *>(q.weights)
                  + ((group * q.out_channels + first_column + row) * q.weights_row + channel)
                        * static_cast<int>(sizeof(T));
        weights_step = step_rows * q.weights_row * static_cast<int>(sizeof(T));
        small = q.small * static_cast<int>(sizeof(T));
        weights_there = 0;
#pragma unroll
        for (int i = 0; i < b_rows; ++i)
            if (first_column + row + step_rows * i < q.out_channels) weights_there |= 1U << i;
    }

    /// Copies the next line of all rows, if there is one; a group of copies in any case. Nothing is
    /// read where zeros are written.
    __device__ void load() {
        if (loaded < steps) {
            const unsigned base = to + stage;
            const bool there = tap < taps && channel < q.channels;
            const tap_place at = s.tap[there ? tap : 0];
            const char *const from = in + at.moved;
#pragma unroll
            for (int i = 0; i < a_rows; ++i) {
                const row_place row = s.in[static_cast<int>(threadIdx.x) / 8 + step_rows * i];
                copy_16(base + static_cast<unsigned>(i * step_rows) * line, from + row.at,
                    there && (row.inside >> tap & 1) != 0);
            }
            const char *w = weights + at.weights;
#pragma unroll
            for (int i = 0; i < b_rows; ++i) {
                const bool is = there && (weights_there >> i & 1) != 0;
                copy_16(base + a_bytes + static_cast<unsigned>(i * step_rows) * line, w, is);
                if constexpr (Exact)
                    copy_16(base + a_bytes + static_cast<unsigned>(N + i * step_rows) * line,
                        w + small, is);
                w += weights_step;
            }
            tap += tap_step;
            if (q.lines > 1 && tap >= taps) {
                tap = 0;
                channel += 8 * chunk;
                in += 128;
                weights += 128;
            }
            ++loaded;
            stage += stage_bytes;
            if (stage == ring_bytes) stage = 0;
        }
        asm volatile("cp.async.commit_group;");
    }
};

/// The lines of one stage: 16-bit values, or f32 by TF32 parts.
template <typename T, int N, bool Exact, typename Load>
__device__ inline void multiply_stage(
    float (&sum)[N / 2], unsigned base, int lane, int warp, Load &&load) {
    if constexpr (sizeof(T) == 2) {
        const std::uint64_t a = wgmma::describe(base + static_cast<unsigned>(warp / 4) * 64 * line),
                            b = wgmma::describe(base + a_bytes);
        wgmma::fence();
#pragma unroll
        for (int k = 0; k < 4; ++k)
            wgmma::product<T, N>::add(sum, a + static_cast<unsigned>(k) * wgmma::next_terms,
                b + static_cast<unsigned>(k) * wgmma::next_terms, 1);
        wgmma::commit();
        load();
        wgmma::await();
    } else {
        const unsigned a_at =
            base + static_cast<unsigned>(warp * 16 + (lane & 7) + ((lane >> 3) & 1) * 8) * line;
        unsigned terms[4][4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
            load_matrices(
                a_at + static_cast<unsigned>(((2 * k + (lane >> 4)) ^ (lane & 7)) << 4), terms[k]);
        wgmma::add_tf32<N, Exact>(sum, terms, base + a_bytes, base + a_bytes + N * line, load);
    }
}

/// A thread's sums: pairs of neighbouring channels, of two rows.
template <typename T, int N>
struct store {
    const wgmma_args &q;
    const data_tile &s;
    const float (&sum)[N / 2];
    wide first_row, first_channel;  // of the output
    int row;                        // of the tile, the first one
    int columns;                    // from this thread's first one on

    /// Calls body(channel, row, sum) for each sum that is stored.
    template <typename Body>
    __device__ void for_each(Body &&body) const {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            if (s.out_at[row + h * 8] < 0) continue;
#pragma unroll
            for (int j = 0; j < N / 8; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (j * 8 + e < columns) body(j * 8 + e, row + h * 8, sum[j * 4 + h * 2 + e]);
        }
    }
    __device__ T *out(int r) const {
        return static_cast<T *>(q.data.end.out) + s.out_at[r]
               + first_channel * q.data.end.out_strides.c;
    }
    __device__ bool all_finite() const {
        bool fine[4] = {true, true, true, true};
#pragma unroll
        for (int i = 0; i < N / 2; ++i) fine[i % 4] = fine[i % 4] && is_finite(sum[i]);
        return fine[0] && fine[1] && fine[2] && fine[3];
    }
    __device__ void pairs() const {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            if (s.out_at[row + h * 8] < 0) continue;
            T *const to = out(row + h * 8);
#pragma unroll
            for (int j = 0; j < N / 8; ++j) {
                if (j * 8 >= columns) break;
                T pair[2];
                round_to(pair[0], sum[j * 4 + h * 2]);
                round_to(pair[1], sum[j * 4 + h * 2 + 1]);
                store_pair(to + j * 8, pair);
            }
        }
    }
    __device__ void plain() const {
        const wide step = q.data.end.out_strides.c;
        for_each([&](int c, int r, float v) { round_to(out(r)[c * step], v); });
    }
    __device__ void with_all() const {
        const epilogue_args &end = q.data.end;
        for_each([&](int c, int r, float v) {
            const wide channel = first_channel + c;
            if (!is_finite(v))
                v = careful_output<T>(q.data, s.phase, static_cast<int>(first_row) + r, channel);
            store_result<T>(end, v, channel, s.out_at[r] + channel * end.out_strides.c,
                s.add_at[r] + channel * end.add_strides.c);
        });
    }
};

template <typename T, int N, bool Fast>
__device__ void data_product(const wgmma_args &q) {
    constexpr bool exact = sizeof(T) == 4 && !Fast;
    extern __shared__ unsigned char shared_bytes[];
    __shared__ data_tile s;
    const unsigned ring =
        (static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes)) + 1023U) & ~1023U;
    const data_args &p = q.data;
    const int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32;
    for (unsigned tile = blockIdx.x; tile < static_cast<unsigned>(p.tiles); tile += gridDim.x) {
        // 32 bits are enough, and 64-bit division is slow.
        unsigned rest = tile;
        const auto take = [&](wide of) {
            const unsigned length = static_cast<unsigned>(of), mine = rest % length;
            rest /= length;
            return static_cast<wide>(mine);
        };
        const wide first_column = take(p.tiles_n) * N, first_row = take(p.tiles_m) * rows,
                   group = take(q.groups);
        __syncthreads();
        if (t < 3) {
            unsigned phase = rest;
            for (int d = 2; d > t; --d) phase /= static_cast<unsigned>(p.phases[d]);
            s.phase[t] = make_phase<int>(
                p.x[t], p.backward != 0, phase % static_cast<unsigned>(p.phases[t]));
        }
        __syncthreads();
        const wide all_rows = p.mb * s.phase[0].count * s.phase[1].count * s.phase[2].count;
        if (first_row >= all_rows) continue;
        if (t < rows) describe_row(q, s, t, first_row, all_rows, group, sizeof(T));
        if (t < s.phase[0].taps * s.phase[1].taps * s.phase[2].taps)
            describe_tap(q, s, t, sizeof(T));
        __syncthreads();

        using copies = copier<T, N, exact>;
        copies copy(q, s, ring, group, first_column);
        float sum[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; ++i) sum[i] = 0;
#pragma unroll
        for (int i = 0; i < stages - 1; ++i) copy.load();
        unsigned stage = ring;
        for (int step = 0; step < copy.steps; ++step) {
            asm volatile("cp.async.wait_group %0;" ::"n"(stages - 2));
            wgmma::publish();
            __syncthreads();
            multiply_stage<T, N, exact>(sum, stage, lane, warp, [&] { copy.load(); });
            stage += copies::stage_bytes;
            if (stage == ring + copies::ring_bytes) stage = ring;
        }
        asm volatile("cp.async.wait_group 0;");
        const int column = lane % 4 * 2;
        const store<T, N> results{q, s, sum, first_row,
            group * q.out_channels + first_column + column, warp * 16 + lane / 4,
            static_cast<int>(q.out_channels - first_column) - column};
        if (q.plain == 0 || !results.all_finite())
            results.with_all();
        else if (q.pairs != 0)
            results.pairs();
        else
            results.plain();
    }
}

}  // namespace code

#define CONVGRAD_DATA(name, T, n, fast)                                                            \
    extern "C" __global__ void __launch_bounds__(threads,                                          \
        sizeof(T) == 4 && !fast && n > 64 ? 1 : 2) name(const __grid_constant__ wgmma_args p) {    \
        CONVGRAD_BODY(data_product<T, n, fast>(p);)                                                \
    }
#define CONVGRAD_COLUMNS(n)                                                                        \
    CONVGRAD_DATA(wgmma_data_n##n##_f32, float, n, false)                                          \
    CONVGRAD_DATA(wgmma_data_n##n##_bf16, bf16, n, false)                                          \
    CONVGRAD_DATA(wgmma_data_n##n##_f16, f16, n, false)                                            \
    CONVGRAD_DATA(wgmma_data_n##n##_tf32, float, n, true)
CONVGRAD_COLUMNS(32)
CONVGRAD_COLUMNS(64)
CONVGRAD_COLUMNS(128)

}  // namespace convgrad::cuda

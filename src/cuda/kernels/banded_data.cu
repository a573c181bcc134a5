// Forward and backward data of depthwise layers on tensor cores: see banded.cuh.
//
// A warp has channels of its own and computes each in place: outputs of a tile take the place of
// the window's first columns, which no later tile reads.
#include "banded.cuh"
#include "pack_two.cuh"

#if CONVGRAD_BANDED
namespace convgrad::cuda::banded {

/// Words of a channel's taps: for each row pairs (−1, 0), (0, 1) … (K − 1, K) of it, and no tap.
template <int K>
constexpr int tap_words = K *(K + 2);

/// Puts the taps of a block's channels, and their bias, into shared memory.
template <typename T, int K, bool Planes>
__device__ inline void load_taps(const banded_args &a, unsigned char *memory, int first_channel) {
    unsigned *const taps = reinterpret_cast<unsigned *>(memory + a.taps_at);
    float *const bias = reinterpret_cast<float *>(memory + a.bias_at);
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int down = static_cast<int>(a.base.flip != 0 ? -a.base.w_y : a.base.w_y),
              right = static_cast<int>(a.base.flip != 0 ? -a.base.w_x : a.base.w_x);
    for (int s = 0; s < slots_of_warp; ++s) {
        const int slot = warp * slots_of_warp + s;
        const int channel = first_channel + channel_of<Planes>(slot);
        const bool there = channel < a.base.channels;
        const unsigned short *w =
            static_cast<const unsigned short *>(a.base.weights) + channel * a.base.w_channel;
        if (a.base.flip != 0) w += (K - 1) * (a.base.w_y + a.base.w_x);
        for (int i = lane; i < tap_words<K>; i += 32) {
            const int row = i / (K + 2), pair = i % (K + 2);
            const unsigned low = there && pair >= 1 && pair <= K
                                     ? w[row * down + (pair - 1) * right]
                                     : 0U,
                           high = there && pair < K ? w[row * down + pair * right] : 0U;
            taps[slot * tap_words<K> + i] = low | high << 16;
        }
        if (lane == 0)
            bias[slot] = a.base.end.bias != nullptr && there ? to_f32(static_cast<const T *>(
                             a.base.end.bias)[channel * a.base.end.bias_stride])
                                                             : 0.0f;
    }
}

/// Offsets of a lane's two words of a band in a row of taps.
template <int K>
struct band_places {
    unsigned low, high;
    __device__ explicit band_places(int shift) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const auto place = [&](int k) {
            const int pair = k - lane / 4 - shift + 1;
            return static_cast<unsigned>(pair >= 0 && pair <= K ? pair : K + 1) * 4;
        };
        low = place(lane % 4 * 2);
        high = place(lane % 4 * 2 + 8);
    }
};

/// N tiles of 16 rows by 8 columns: `at` names rows of two chunks, `down_at` those of a chunk for
/// two rows of taps. What the unit multiplies at once are two rows of taps in one chunk, not one
/// row in two: a chunk then serves two tiles as it was loaded, without moves between registers.
template <typename T, int K, int N>
__device__ inline void multiply_tiles(unsigned at, unsigned down_at, int pitch,
    const unsigned (&low)[K], const unsigned (&high)[K], float (&sums)[N][4]) {
    constexpr int steps = K / 2 * (N + 1), ahead = 2;
    unsigned q[ahead + 1][4];
#pragma unroll
    for (int i = 0; i < ahead; ++i) load_matrices(down_at + i * 16, q[i]);
    static_assert(N + 1 >= ahead);
#pragma unroll
    for (int i = 0; i < steps; ++i) {
        const int c = i % (N + 1), ky = i / (N + 1) * 2, next = i + ahead;
        if (next < steps)
            load_matrices(
                down_at + next / (N + 1) * 2 * pitch + next % (N + 1) * 16, q[next % (ahead + 1)]);
        const unsigned lows[2] = {low[ky], low[ky + 1]}, highs[2] = {high[ky], high[ky + 1]};
        if (c < N) multiply<T>(sums[c % N], q[i % (ahead + 1)], lows);
        if (c > 0) multiply<T>(sums[(c + N - 1) % N], q[i % (ahead + 1)], highs);
    }
    unsigned last[N + 1][2];
    load_chunks<N + 1, false>(at + (K - 1) * pitch, last);
#pragma unroll
    for (int c = 0; c <= N; ++c) {
        if (c < N) multiply_half<T>(sums[c % N], last[c], low[K - 1]);
        if (c > 0) multiply_half<T>(sums[(c + N - 1) % N], last[c], high[K - 1]);
    }
}

/// Where tiles of an item are: rows of an image from `line` on, or of two images.
struct tile_rows {
    int image, line;
};

/// Sums of tiles that are not finite again, without the products that zeros of the band or padding
/// took part in.
template <typename T, int K>
__device__ __noinline__ void mend_slowly(const banded_args &a, float *sums, int count,
    const box &at, const tile_rows &tile, int first_tile, int channel, float bias) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int i = 0; i < count; ++i) {
        const int half = i % 4 / 2;
        const int image = tile.image + (a.pairs != 0 ? half : 0);
        const int line = tile.line + lane / 4 + (a.pairs != 0 ? 0 : half * 8);
        const int column = (first_tile + i / 4) * 8 + lane % 4 * 2 + i % 2;
        const int n = at.n + image, y = at.y + line, x = at.x + column;
        if (!is_finite(sums[i]) && image < a.images && n < a.mb && line < a.band_rows
            && y < a.base.out_rows && x < a.base.out_columns)
            sums[i] = bias + depthwise::careful_sum<T, K, 1, false>(a.base, n, channel, y, x);
    }
}
template <typename T, int K, int N>
__device__ inline void mend(const banded_args &a, float (&sums)[N][4], const box &at,
    const tile_rows &tile, int first_tile, int channel, float bias) {
    float low = 0, high = 0;
#pragma unroll
    for (int c = 0; c < N; ++c)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            low = fmaf(sums[c][e], 0.0f, low);
            high = fmaf(sums[c][e + 2], 0.0f, high);
        }
    // Rows behind the band are sums of whatever lay there.
    const int row = tile.line + static_cast<int>(threadIdx.x) % 32 / 4;
    const bool fine = (low == 0.0f || row >= a.band_rows)
                      && (high == 0.0f || row + (a.pairs != 0 ? 0 : 8) >= a.band_rows);
    if (fine) return;
    float some[N * 4];  // in memory, so that the sums themselves need not be
#pragma unroll
    for (int i = 0; i < N * 4; ++i) some[i] = sums[i / 4][i % 4];
    mend_slowly<T, K>(a, some, N * 4, at, tile, first_tile, channel, bias);
#pragma unroll
    for (int i = 0; i < N * 4; ++i) sums[i / 4][i % 4] = some[i];
}

/// One tile of a channel.
template <typename T, int K>
__device__ inline void compute_tile(const banded_args &a, unsigned from, unsigned down,
    const unsigned (&low)[K], const unsigned (&high)[K], float bias, const box &at,
    const tile_rows &tile, int channel) {
    for_each_group(a.column_tiles, [&](auto count, int first) {
        constexpr int N = decltype(count)::value;
        const unsigned here = from + first * 16;
        float sums[N][4];
#pragma unroll
        for (int c = 0; c < N; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[c][e] = bias;
        multiply_tiles<T, K, N>(here, here + down, a.in.pitch, low, high, sums);
        mend<T, K, N>(a, sums, at, tile, first, channel, bias);
        __syncwarp();
        unsigned v[N][2];
#pragma unroll
        for (int c = 0; c < N; ++c)
#pragma unroll
            for (int e = 0; e < 2; ++e) v[c][e] = pack_two<T>(sums[c][2 * e], sums[c][2 * e + 1]);
        store_chunks<N>(here, v);
    });
}

/// All tiles of a warp's channels.
template <typename T, int K, bool Planes>
__device__ inline void compute(
    const banded_args &a, unsigned shared, const box &at, int first_channel) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const band_places<K> band(a.shift);
    const int at_once = a.pairs != 0 ? 2 : 1;  // images
    // From rows of two chunks to those of a chunk and the row below.
    const unsigned down = static_cast<int>(threadIdx.x) % 32 / 16 * (a.in.pitch - 16);
    for (int s = 0; s < slots_of_warp; ++s) {
        const int slot = warp * slots_of_warp + s;
        const int channel = first_channel + channel_of<Planes>(slot);
        if (channel >= a.base.channels) continue;
        const float bias = __uint_as_float(load_word(shared + a.bias_at + slot * 4));
        unsigned low[K], high[K];
        const unsigned words = shared + a.taps_at + slot * tap_words<K> * 4;
#pragma unroll
        for (int ky = 0; ky < K; ++ky) {
            low[ky] = load_word(words + ky * (K + 2) * 4 + band.low);
            high[ky] = load_word(words + ky * (K + 2) * 4 + band.high);
        }
        unsigned plane = shared + a.in.at + lane_place(a.in, a.pairs != 0) + slot * a.in.slot_bytes;
        for (int image = 0; image < a.images; image += at_once) {
            unsigned from = plane;
            for (int line = 0; line < a.band_rows; line += 16) {
                compute_tile<T, K>(a, from, down, low, high, bias, at, {image, line}, channel);
                from += 16 * a.in.pitch;
            }
            plane += at_once * a.in.image_bytes;
        }
    }
}

/// What of a box is stored.
struct out_box {
    int rows, columns, images;  // images: above columns, as in tables
    __device__ out_box(const banded_args &a, const box &at)
        : rows(a.base.out_rows - at.y), columns(a.base.out_columns - at.x),
          images(min(a.mb - at.n, a.images) << image_bit) {}
    __device__ bool has(const int4 &unit) const {
        return unit.z < rows && unit.w < images && (unit.w & 0xffff) < columns;
    }
};
template <typename T>
__device__ inline T *out_of(const banded_args &a, const box &at, int channel) {
    const data_stride_args &out = a.base.end.out_strides;
    return static_cast<T *>(a.base.end.out) + at.n * out.n + channel * out.c + at.y * out.x[1]
           + at.x * out.x[2];
}

/// Channels side by side: planes are turned back, 16 pixels of all channels at a time.
template <typename T, bool Whole>
__device__ inline void store_pixels(const banded_args &a, const unsigned char *memory,
    unsigned shared, const box &at, int first_channel) {
    constexpr int E = channels / 4;  // of a lane
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int4 *const table = reinterpret_cast<const int4 *>(memory + a.out_table_at);
    const int channel = first_channel + lane % 4 * E, left = a.base.channels - channel;
    out_box inside(a, at);
    inside.columns -= lane / 4;
    if (left <= 0) inside.rows = 0;
    // Rows of matrices: the first and second pairs of each four channels, of two chunks.
    const int pair = lane / 8 % 2, row = lane % 8;
    const unsigned from =
        shared + a.in.at + slot_of(row / 2 * 4 + pair * 2 + row % 2) * a.in.slot_bytes;
    T *const to = out_of<T>(a, at, channel) + lane / 4 * a.base.end.out_strides.x[2];
    const int units = a.images * a.band_rows * a.column_tiles;
#pragma unroll 2
    for (int unit = warp * 2; unit < units; unit += 2 * banded_warps) {
        const bool two = unit + 1 < units;
        const int4 here[2] = {table[unit], table[unit + (two ? 1 : 0)]};
        unsigned v[4];
        load_matrices_turned(from + (lane < 16 ? here[0].x : here[1].x), v);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const bool stores = inside.has(here[i]) && (i == 0 || two);
            T *const pixel = to + here[i].y;
            if constexpr (Whole) {
                if (stores) *reinterpret_cast<uint2 *>(pixel) = make_uint2(v[2 * i], v[2 * i + 1]);
            } else {
#pragma unroll
                for (int e = 0; e < E; ++e)
                    if (stores && e < left)
                        reinterpret_cast<unsigned short *>(pixel)[e] =
                            static_cast<unsigned short>(v[2 * i + e / 2] >> e % 2 * 16);
            }
        }
    }
}

/// Planes: a warp stores its own, `Unit` columns at a time.
template <typename T, int Unit>
__device__ inline void store_rows(
    const banded_args &a, const unsigned char *memory, const box &at, int first_channel) {
    using some = depthwise::pack<T, Unit>;
    const int lane = static_cast<int>(threadIdx.x) % 32,
              first_slot = static_cast<int>(threadIdx.x) / 32 * slots_of_warp;
    const int4 *const table = reinterpret_cast<const int4 *>(memory + a.out_table_at);
    const int left = a.base.channels - first_channel - first_slot;
    const out_box inside(a, at);
    const unsigned char *const from = memory + a.in.at + first_slot * a.in.slot_bytes;
    T *const to = out_of<T>(a, at, first_channel + first_slot);
    const int units = a.images * a.band_rows * (a.strip_columns / Unit);
    for (int unit = lane; unit < units; unit += 32) {
        const int4 here = table[unit];
        if (!inside.has(here)) continue;
        some v[slots_of_warp];
#pragma unroll
        for (int s = 0; s < slots_of_warp; ++s)
            v[s] = *reinterpret_cast<const some *>(from + here.x + s * a.in.slot_bytes);
#pragma unroll
        for (int s = 0; s < slots_of_warp; ++s)
            if (s < left) {
                T *const place = to + here.y + s * a.base.end.out_strides.c;
                if (a.store_whole != 0)
                    *reinterpret_cast<some *>(place) = v[s];
                else
                    for (int i = 0; i < Unit; ++i) place[i] = v[s].v[i];
            }
    }
}

template <typename T, bool Planes>
__device__ inline void store(const banded_args &a, const unsigned char *memory, unsigned shared,
    const box &at, int first_channel) {
    if constexpr (!Planes) {
        if (a.store_whole != 0)
            store_pixels<T, true>(a, memory, shared, at, first_channel);
        else
            store_pixels<T, false>(a, memory, shared, at, first_channel);
    } else if (a.store_unit == 8)
        store_rows<T, 8>(a, memory, at, first_channel);
    else if (a.store_unit == 4)
        store_rows<T, 4>(a, memory, at, first_channel);
    else if (a.store_unit == 2)
        store_rows<T, 2>(a, memory, at, first_channel);
    else
        store_rows<T, 1>(a, memory, at, first_channel);
}

template <typename T, int K, bool Planes>
__device__ void data(const banded_args &a) {
    unsigned char *const memory = dynamic_shared();
    const unsigned shared = shared_address(memory);
    fill_table(memory, a, a.in);
    const int width = Planes ? a.store_unit : 8;
    fill_table(reinterpret_cast<int4 *>(memory + a.out_table_at), a.strip_columns / width,
        a.band_rows, a.images, width, a.in, a.base.end.out_strides);
    __syncthreads();
    for (int block = static_cast<int>(blockIdx.x); block < a.blocks;
         block += static_cast<int>(gridDim.x)) {
        const int first_channel = block % a.channel_blocks * channels;
        const int first = block / a.channel_blocks * a.part_items,
                  last = min(a.items, first + a.part_items);
        __syncthreads();
        load_taps<T, K, Planes>(a, memory, first_channel);
        const auto copy_item = [&](int item) {
            if (item < last)
                copy_planes<T, Planes>(a, a.in, a.base.in, memory, shared, item, first_channel);
        };
        if (!Planes) copy_item(first);
        for (int item = first; item < last; ++item) {
            prepare<Planes>(item, copy_item, [&] { turn_pixels(a, a.in, memory, shared); });
            const box at = box_of(a, item);
            compute<T, K, Planes>(a, shared, at, first_channel);
            sync<Planes>();
            store<T, Planes>(a, memory, shared, at, first_channel);
            sync<Planes>();
        }
    }
}

}  // namespace convgrad::cuda::banded
#endif

CONVGRAD_BANDED_SETS(data)

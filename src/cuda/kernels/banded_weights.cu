// Weights gradients of depthwise layers on tensor cores: see banded.cuh.
//
// A warp keeps the sums of its channels, 16 columns of src by 8 of diff_dst for each row of taps,
// through all items of a part; a tap is the sum of a diagonal.
#include "banded.cuh"

#if CONVGRAD_BANDED
namespace convgrad::cuda::banded {

/// N tiles of 16 rows by 8 columns of diff_dst, with the windows of src that they meet.
template <typename T, int K, int N>
__device__ inline void multiply_tiles(unsigned src, int pitch, unsigned dst, float (&sums)[K][4]) {
    unsigned b[N][2], a[2][N + 1][2];
    load_chunks<N, true>(dst, b);
    load_chunks<N + 1, true>(src, a[0]);
#pragma unroll
    for (int ky = 0; ky < K; ++ky) {
        src += pitch;
        if (ky + 1 < K) load_chunks<N + 1, true>(src, a[(ky + 1) % 2]);
#pragma unroll
        for (int c = 0; c < N; ++c) {
            const unsigned(&now)[N + 1][2] = a[ky % 2];
            const unsigned window[4] = {now[c][0], now[c + 1][0], now[c][1], now[c + 1][1]};
            multiply<T>(sums[ky], window, b[c]);
        }
    }
}

template <typename T, int K>
__device__ inline void compute(
    const banded_args &a, unsigned shared, float (&sums)[slots_of_warp][K][4]) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const bool pairs = a.pairs != 0;
    const unsigned src = shared + a.in.at + lane_place(a.in, pairs),
                   dst = shared + a.dst.at + lane_place(a.dst, pairs);
    const int at_once = pairs ? 2 : 1;  // images
    for (int image = 0; image < a.images; image += at_once)
        for (int line = 0; line < a.band_rows; line += 16) {
            const unsigned src_tile = src + image * a.in.image_bytes + line * a.in.pitch,
                           dst_tile = dst + image * a.dst.image_bytes + line * a.dst.pitch;
            for_each_group(a.column_tiles, [&](auto count, int first) {
#pragma unroll
                for (int s = 0; s < slots_of_warp; ++s) {
                    const int slot = warp * slots_of_warp + s;
                    multiply_tiles<T, K, decltype(count)::value>(
                        src_tile + slot * a.in.slot_bytes + first * 16, a.in.pitch,
                        dst_tile + slot * a.dst.slot_bytes + first * 16, sums[s]);
                }
            });
        }
}

/// One tap over a part's items, without the products that padding took part in.
template <typename T, int K>
__device__ __noinline__ float careful_tap(
    const banded_args &a, int channel, int ky, int kx, int first, int last) {
    const depthwise_args &p = a.base;
    float v = 0;
    for (int item = first; item < last; ++item) {
        const box at = box_of(a, item);
        for (int n = at.n; n < min(at.n + a.images, a.mb); ++n)
            for (int y = at.y; y < min(at.y + a.band_rows, p.out_rows); ++y)
                for (int x = at.x; x < min(at.x + a.strip_columns, p.out_columns); ++x) {
                    const int row = y + ky - p.pad_y, column = x + kx - p.pad_x;
                    if (row < 0 || row >= p.in_rows || column < 0 || column >= p.in_columns)
                        continue;
                    const T src = static_cast<const T *>(
                        p.in)[n * p.in_n + channel * p.in_c + row * p.in_y + column * p.in_x];
                    const T dst = static_cast<const T *>(
                        p.weights)[n * p.dst_n + channel * p.dst_c + y * p.dst_y + x * p.dst_x];
                    v = fmaf(to_f32(src), to_f32(dst), v);
                }
    }
    return v;
}

/// Adds diagonals of a channel's sums, which go through `room` of the warp's own, and stores them.
template <typename T, int K>
__device__ inline void finish(const banded_args &a, float *room, const float (&sums)[K][4],
    int channel, int part, int first, int last) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();
#pragma unroll
    for (int ky = 0; ky < K; ++ky)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            room[ky * 128 + (lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = sums[ky][e];
    __syncwarp();
    if (channel >= a.base.channels) return;
    for (int i = lane; i < K * K; i += 32) {
        const int ky = i / K, kx = i % K;
        float v = 0;
#pragma unroll
        for (int n = 0; n < 8; ++n) v += room[ky * 128 + (n + kx + a.shift) * 8 + n];
        if (!is_finite(v)) v = careful_tap<T, K>(a, channel, ky, kx, first, last);
        a.base.partial[(static_cast<wide>(part) * a.base.channels + channel) * (K * K) + i] = v;
    }
}

template <typename T, int K, bool Planes>
__device__ void weights(const banded_args &a) {
    unsigned char *const memory = dynamic_shared();
    const unsigned shared = shared_address(memory);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    for (int block = static_cast<int>(blockIdx.x); block < a.blocks;
         block += static_cast<int>(gridDim.x)) {
        const int first_channel = block % a.channel_blocks * channels,
                  part = block / a.channel_blocks;
        const int first = part * a.part_items, last = min(a.items, first + a.part_items);
        fill_table(memory, a, a.in);
        fill_table(memory, a, a.dst);
        __syncthreads();
        float sums[slots_of_warp][K][4];
#pragma unroll
        for (int s = 0; s < slots_of_warp; ++s)
#pragma unroll
            for (int i = 0; i < K * 4; ++i) sums[s][i / 4][i % 4] = 0;
        const auto copy_item = [&](int item) {
            if (item >= last) return;
            copy_planes<T, Planes>(a, a.in, a.base.in, memory, shared, item, first_channel);
            copy_planes<T, Planes>(a, a.dst, a.base.weights, memory, shared, item, first_channel);
        };
        if (!Planes) copy_item(first);
        for (int item = first; item < last; ++item) {
            prepare<Planes>(item, copy_item, [&] {
                turn_pixels(a, a.in, memory, shared);
                turn_pixels(a, a.dst, memory, shared);
            });
            compute<T, K>(a, shared, sums);
            sync<Planes>();
        }
        __syncthreads();  // planes of a warp become room of others
        float *const room = reinterpret_cast<float *>(memory) + warp * K * 128;
#pragma unroll
        for (int s = 0; s < slots_of_warp; ++s)
            finish<T, K>(a, room, sums[s],
                first_channel + channel_of<Planes>(warp * slots_of_warp + s), part, first, last);
        __syncthreads();
    }
}

}  // namespace convgrad::cuda::banded
#endif

CONVGRAD_BANDED_SETS(weights)

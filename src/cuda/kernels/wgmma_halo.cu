// Forward and backward data of 16-bit types with stride 1 on Hopper's tensor cores, where taps
// share what is copied.
//
// A block computes four blocks of 64 positions by N channels. Whole rows of the input, with the
// rows and columns that taps reach and zeros beside the image, come to shared memory once for 64
// channels; a tap reads them from its own pixel on. Positions run along rows of that width: those
// beside the output are computed and not stored. Weights come tap by tap through a ring of their
// own.
#include "bulk_frame.cuh"
#include "bulk_store.cuh"
#include "halo_args.hpp"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

[[maybe_unused]] constexpr unsigned line = 128;

struct halo_tile {
    const halo_args &h;
    int first_column, first_y, first_image, group;
    static constexpr int number = 0;

    __device__ halo_tile(const halo_args &args, unsigned tile, int columns) : h(args) {
        const auto take = [&](wide of) {
            const unsigned length = static_cast<unsigned>(of), mine = tile % length;
            tile /= length;
            return static_cast<int>(mine);
        };
        first_column = take(h.bulk.data.tiles_n) * columns;
        first_y = take(h.row_tiles) * h.rows;
        first_image = take(h.image_tiles) * h.images;
        group = static_cast<int>(tile);
    }
    /// The image and the place of a row of the tile; false: nothing is stored.
    __device__ bool find(int row, int &image, int &y, int &x) const {
        const int block = row / 64, at = block % h.image_blocks * 64 + row % 64;
        image = first_image + block / h.image_blocks;
        y = first_y + at / h.width;
        x = at % h.width;
        const bulk_phase &f = h.bulk.phase[0];
        return block < h.images * h.image_blocks && image < h.bulk.data.mb && at / h.width < h.rows
               && y < f.count[1] && x < f.count[2];
    }
    [[nodiscard]] __device__ int position(int row) const {
        int image, y, x;
        find(row, image, y, x);
        const bulk_phase &f = h.bulk.phase[0];
        return (image * f.count[1] + y) * f.count[2] + x;
    }
    [[nodiscard]] __device__ wide output(int row) const {
        int image, y, x;
        if (!find(row, image, y, x)) return -1;
        const data_stride_args &s = h.bulk.data.end.out_strides;
        return image * s.n + y * s.x[1] + x * s.x[2];
    }
    /// The first pixel of a block of 64 positions in a box; any, if nothing of it is stored.
    [[nodiscard]] __device__ int pixel(int block) const {
        if (block >= h.images * h.image_blocks) return 0;
        return block / h.image_blocks * h.box_pixels + block % h.image_blocks * 64;
    }
};

template <int N, int Boxes, int Taps>
__device__ inline void copy_tile(
    const halo_args &h, const halo_tile &tile, bulk::ring<Boxes> &boxes, bulk::ring<Taps> &taps) {
    const bulk_args &q = h.bulk;
    const bulk_phase &f = q.phase[0];
    for (int l = 0; l < q.lines; ++l) {
        bulk::wait(boxes.is_empty(), boxes.parity ^ 1U);
        bulk::expect(boxes.is_full(), static_cast<unsigned>(h.box_pixels * h.images) * line);
        bulk::copy_rows(boxes.at(), q.in[0], boxes.is_full(), tile.group * q.channels + l * 64,
            f.start[2], f.start[1] + tile.first_y, tile.first_image);
        boxes.next();
        for (int t = 0; t < f.taps[1] * f.taps[2]; ++t) {
            const int tap = (f.first_tap[1] + f.tap_step[1] * (t / f.taps[2])) * f.taps[2]
                            + f.first_tap[2] + f.tap_step[2] * (t % f.taps[2]);
            bulk::wait(taps.is_empty(), taps.parity ^ 1U);
            bulk::expect(taps.is_full(), N * line);
            bulk::copy_weights(taps.at(), q.weights, taps.is_full(), l * 64, tap,
                tile.group * q.out_channels + tile.first_column);
            taps.next();
        }
    }
}

template <typename T, int N, int Boxes, int Taps>
__device__ inline void multiply_tile(const halo_args &h, const halo_tile &tile,
    bulk::ring<Boxes> &boxes, bulk::ring<Taps> &taps, wide *out_at, unsigned box) {
    const bulk_args &q = h.bulk;
    const bulk_phase &f = q.phase[0];
    const int t = static_cast<int>(threadIdx.x), which = t / 128;
    bulk::meet(which);
    out_at[t] = tile.output(t);
    bulk::meet(which);
    float sum[2][N / 2];
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int k = 0; k < N / 2; ++k) sum[m][k] = 0;
    const unsigned first[2] = {static_cast<unsigned>(tile.pixel(which * 2)) * line,
        static_cast<unsigned>(tile.pixel(which * 2 + 1)) * line};
    unsigned tap_before = 0, box_before = 0;
    for (int l = 0; l < q.lines; ++l) {
        bulk::wait(boxes.is_full(), boxes.parity);
        for (int t1 = 0; t1 < f.taps[1]; ++t1)
            for (int t2 = 0; t2 < f.taps[2]; ++t2) {
                const unsigned moved =
                    boxes.at()
                    + static_cast<unsigned>((f.offset[1] + f.offset_step[1] * t1) * h.width
                                            + f.offset[2] + f.offset_step[2] * t2)
                          * line;
                bulk::wait(taps.is_full(), taps.parity);
                const std::uint64_t a[2] = {wgmma::describe(moved + first[0]),
                    wgmma::describe(moved + first[1])},
                                    b = wgmma::describe(taps.at());
                wgmma::fence();
#pragma unroll
                for (int k = 0; k < 4; ++k)
#pragma unroll
                    for (int m = 0; m < 2; ++m)
                        wgmma::product<T, N>::add(sum[m],
                            a[m] + static_cast<unsigned>(k) * wgmma::next_terms,
                            b + static_cast<unsigned>(k) * wgmma::next_terms, 1);
                wgmma::commit();
                // The products before these are done: what they read may be overwritten.
                wgmma::await<1>();
                if (t % 32 == 0) {
                    if (tap_before != 0) bulk::arrive(tap_before);
                    if (box_before != 0) bulk::arrive(box_before);
                }
                tap_before = taps.is_empty();
                box_before = 0;
                taps.next();
            }
        box_before = boxes.is_empty();
        boxes.next();
    }
    wgmma::await();
    if (t % 32 == 0) {
        if (tap_before != 0) bulk::arrive(tap_before);
        if (box_before != 0) bulk::arrive(box_before);
    }
    store_sums<T, 2, N>(q, tile, sum, out_at, box, which * 128, which);
}

template <typename T, int N>
__device__ inline void halo_data(const halo_args &h) {
    using shape = halo_tiles<N>;
    extern __shared__ unsigned char shared_bytes[];
    __shared__ __align__(8) std::uint64_t box_barriers[bulk::ring<shape::boxes>::barriers],
        tap_barriers[bulk::ring<shape::taps>::barriers];
    __shared__ wide out_at[256];
    const unsigned memory = bulk::stages_at(shared_bytes),
                   stage = static_cast<unsigned>(h.stage_bytes);
    bulk::ring<shape::boxes> boxes(
        memory, static_cast<unsigned>(__cvta_generic_to_shared(box_barriers)), stage);
    bulk::ring<shape::taps> taps(memory + shape::boxes * stage,
        static_cast<unsigned>(__cvta_generic_to_shared(tap_barriers)), shape::tap_bytes);
    const int t = static_cast<int>(threadIdx.x);
    if (t == 0) {
        boxes.open();
        taps.open();
    }
    __syncthreads();
    const unsigned box = memory + shape::boxes * stage + shape::taps * shape::tap_bytes
                         + static_cast<unsigned>(t / 128 * (bulk_box / 2));
    bulk::in_roles<shape::threads, shape::copy_registers, shape::registers>(
        static_cast<unsigned>(h.bulk.data.tiles),
        [&](unsigned i) { copy_tile<N>(h, halo_tile(h, i, N), boxes, taps); },
        [&](unsigned i) { multiply_tile<T, N>(h, halo_tile(h, i, N), boxes, taps, out_at, box); });
}

}  // namespace code

#define CONVGRAD_HALO(name, T, n)                                                                  \
    extern "C" __global__ void __launch_bounds__(halo_tiles<n>::threads, 1)                        \
        name(const __grid_constant__ halo_args p) {                                                \
        CONVGRAD_BODY(halo_data<T, n>(p);)                                                         \
    }
CONVGRAD_HALO(halo_64_bf16, bf16, 64)
CONVGRAD_HALO(halo_64_f16, f16, 64)
CONVGRAD_HALO(halo_128_bf16, bf16, 128)
CONVGRAD_HALO(halo_128_f16, f16, 128)

}  // namespace convgrad::cuda

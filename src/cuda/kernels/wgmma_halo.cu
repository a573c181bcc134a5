// Forward and backward data of 16-bit types with stride 1 on Hopper's tensor cores, where taps
// share what is copied.
//
// Pixels come to shared memory once for 64 channels and all taps, as one run through rows and
// images with zeros between them: the pad behind a row is the one before the next. A tap reads them
// from its own pixel on. Weights come tap by tap through a ring of their own. Two warpgroups
// compute every other tile each, 64 channels by 256 positions, so that one stores while the other
// multiplies: weights are the left operand, which leaves shared memory time for copies.
#include "bulk_frame.cuh"
#include "halo_store.cuh"

namespace convgrad::cuda {
inline namespace code {  // named: nvcc makes names of unnamed ones from the folder

[[maybe_unused]] constexpr unsigned line = 128;
using boxes_ring = bulk::ring<halo_tiles::boxes, 4>;
using taps_ring = bulk::ring<halo_tiles::taps, 4>;

__device__ inline void copy_tile(
    const halo_args &h, const halo_tile &tile, boxes_ring &boxes, taps_ring &taps) {
    const bulk_args &q = h.bulk;
    const bulk_phase &f = q.phase[0];
    int y, x;
    bulk::box box{0, {0, 0, 0}, tile.find(0, y, x), {0, 0, 0}};
    box.x[1] = f.start[1] + y;
    box.x[2] = f.start[2] + x;
    // What the loops need is in registers, and nothing is divided in them.
    const int lines = q.lines, rows = f.taps[1], columns = f.taps[2], column_step = f.tap_step[2],
              row_step = f.tap_step[1] * columns - column_step * columns,
              first_tap = f.first_tap[1] * columns + f.first_tap[2],
              first_weights = tile.group * q.out_channels + tile.first_column;
    const unsigned box_bytes = static_cast<unsigned>(h.box_pixels) * line;
    const bool turned = q.turned_weights != 0;
    box.channel = tile.group * q.channels;
    for (int l = 0; l < lines; ++l, box.channel += 64) {
        bulk::wait(boxes.is_empty(), boxes.parity ^ 1U);
        bulk::expect(boxes.is_full(), box_bytes);
        bulk::copy_pixels(boxes.at(), q.in[0], boxes.is_full(), box, false);
        boxes.next();
        int tap = first_tap;
        for (int t1 = 0; t1 < rows; ++t1, tap += row_step)
            for (int t2 = 0; t2 < columns; ++t2, tap += column_step) {
                bulk::wait(taps.is_empty(), taps.parity ^ 1U);
                bulk::expect(taps.is_full(), halo_tiles::tap_bytes);
                bulk::copy_box(taps.at(), q.weights, taps.is_full(),
                    turned ? tile.first_column : l * 64, tap, turned ? l * 64 : first_weights);
                taps.next();
            }
    }
}

/// The products of a tap. Turned weights are rows of output channels.
template <typename T, bool Turned>
__device__ inline void add_products(
    float (&sum)[halo_tiles::rows / 2], unsigned weights, unsigned pixels) {
    const std::uint64_t a = Turned ? wgmma::describe_turned(weights, halo_tiles::tap_bytes)
                                   : wgmma::describe(weights),
                        b = wgmma::describe(pixels);
#pragma unroll
    for (unsigned k = 0; k < 4; ++k)
        if constexpr (Turned)
            wgmma::left_turned_product<T, halo_tiles::rows>::add(
                sum, a + k * wgmma::next_turned_terms, b + k * wgmma::next_terms, 1);
        else
            wgmma::product<T, halo_tiles::rows>::add(
                sum, a + k * wgmma::next_terms, b + k * wgmma::next_terms, 1);
}

template <typename T, bool Turned>
__device__ inline void sum_tile(const halo_args &h, float (&sum)[halo_tiles::rows / 2],
    boxes_ring &boxes, taps_ring &taps, bool is_last) {
    const bulk_phase &f = h.bulk.phase[0];
    const int lines = h.bulk.lines, rows = f.taps[1], columns = f.taps[2];
    const unsigned column_move = static_cast<unsigned>(f.offset_step[2]) * line,
                   row_move = static_cast<unsigned>(f.offset_step[1] * h.width) * line
                              - column_move * static_cast<unsigned>(columns),
                   first_move = static_cast<unsigned>(f.offset[1] * h.width + f.offset[2]) * line;
    const bool speaks = threadIdx.x % 32 == 0;
    unsigned tap_before = 0, box_before = 0;
    const auto free_before = [&] {
        if (!speaks) return;
        if (tap_before != 0) bulk::arrive(tap_before);
        if (box_before != 0) bulk::arrive(box_before);
    };
    for (int l = 0; l < lines; ++l) {
        bulk::wait(boxes.is_full(), boxes.parity);
        unsigned moved = boxes.at() + first_move;
        for (int t1 = 0; t1 < rows; ++t1, moved += row_move)
            for (int t2 = 0; t2 < columns; ++t2, moved += column_move) {
                bulk::wait(taps.is_full(), taps.parity);
                wgmma::fence();
                add_products<T, Turned>(sum, taps.at(), moved);
                wgmma::commit();
                // The products before these are done: what they read may be overwritten.
                wgmma::await<1>();
                free_before();
                tap_before = taps.is_empty();
                box_before = 0;
                taps.next();
            }
        box_before = boxes.is_empty();
        boxes.next();
    }
    if (!is_last) bulk::pass_turn(static_cast<int>(threadIdx.x) / 128);
    wgmma::await();
    free_before();
}

template <typename T>
__device__ inline void multiply_tile(const halo_args &h, unsigned number, boxes_ring &boxes,
    taps_ring &taps, wide *out_at, unsigned room, bool is_first, bool is_last) {
    const int which = static_cast<int>(threadIdx.x) / 128;
    float sum[halo_tiles::rows / 2];
#pragma unroll
    for (int k = 0; k < halo_tiles::rows / 2; ++k) sum[k] = 0;
    // A barrier knows whether the phase before this one has ended, no more: the warpgroups wait for
    // stages one after the other.
    if (!is_first) bulk::take_turn(which);
    if (h.bulk.turned_weights != 0)
        sum_tile<T, true>(h, sum, boxes, taps, is_last);
    else
        sum_tile<T, false>(h, sum, boxes, taps, is_last);
    store_sums<T>(h, halo_tile(h, number), number, sum, out_at, room);
}

template <typename T>
__device__ inline void halo_data(const halo_args &h) {
    using shape = halo_tiles;
    extern __shared__ unsigned char shared_bytes[];
    __shared__ __align__(8) std::uint64_t box_barriers[boxes_ring::barriers],
        tap_barriers[taps_ring::barriers];
    const unsigned memory = bulk::stages_at(shared_bytes),
                   stage = static_cast<unsigned>(h.stage_bytes);
    boxes_ring boxes(memory, static_cast<unsigned>(__cvta_generic_to_shared(box_barriers)), stage);
    taps_ring taps(memory + shape::boxes * stage,
        static_cast<unsigned>(__cvta_generic_to_shared(tap_barriers)), shape::tap_bytes);
    const int t = static_cast<int>(threadIdx.x);
    if (t == 0) {
        boxes.open();
        taps.open();
    }
    __syncthreads();
    const unsigned tiles = static_cast<unsigned>(h.bulk.data.tiles);
    if (t >= 256) {
        bulk::shrink<shape::copy_registers>();
        if (t == 256)
            for (unsigned i = blockIdx.x; i < tiles; i += gridDim.x)
                copy_tile(h, halo_tile(h, i), boxes, taps);
        return;
    }
    bulk::grow<shape::registers>();
    const unsigned room = memory + shape::boxes * stage + shape::taps * shape::tap_bytes
                          + static_cast<unsigned>(t / 128 * shape::room);
    wide *const out_at = static_cast<wide *>(__cvta_shared_to_generic(room + shape::box));
    const int lines = h.bulk.lines;
    const bulk_phase &f = h.bulk.phase[0];
    bool mine = t < 128;
    for (unsigned i = blockIdx.x; i < tiles; i += gridDim.x, mine = !mine)
        if (mine) {
            multiply_tile<T>(
                h, i, boxes, taps, out_at, room, i == blockIdx.x, i + gridDim.x >= tiles);
        } else {
            boxes.skip(lines);
            taps.skip(lines * f.taps[1] * f.taps[2]);
        }
}

}  // namespace code

#define CONVGRAD_HALO(name, T)                                                                     \
    extern "C" __global__ void __launch_bounds__(halo_tiles::threads, 1)                           \
        name(const __grid_constant__ halo_args p) {                                                \
        CONVGRAD_BODY(halo_data<T>(p);)                                                            \
    }
CONVGRAD_HALO(halo_bf16, bf16)
CONVGRAD_HALO(halo_f16, f16)

}  // namespace convgrad::cuda

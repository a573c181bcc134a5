// TDPBF16PS on tiles that stay loaded: 2×2 blocks of C, as a product kernel has them.
#include <immintrin.h>

#include <algorithm>
#include <chrono>

#include "tools/peak.hpp"

namespace convgrad::cpu {
namespace {

#ifdef CONVGRAD_MODEL_TILES
#include "cpu/kernels/tile_model.inl"
#endif

constexpr int steps = 32;
constexpr double flops_per_tile = 2.0 * 16 * 16 * 32;
constexpr double flops_per_round = flops_per_tile * 4 * steps;

struct alignas(64) tile_config {
    std::uint8_t palette = 1, start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
};

void run_matrix(dim rounds) {
    tile_config config;
    for (int t = 0; t < 8; ++t) {
        config.row_bytes[t] = 64;
        config.rows[t] = 16;
    }
#ifndef CONVGRAD_MODEL_TILES
    // Not _tile_loadconfig, which tells GCC 12 that only the first 8 bytes are read.
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
#endif
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (dim i = 0; i < rounds * steps; ++i) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
#ifdef CONVGRAD_MODEL_TILES
    tile_time.wait();
#endif
}

}  // namespace

const peak_loop *peak_amx_amx_bf16() {
    static constexpr peak_loop loop{isa::amx_bf16, peak_unit::matrix, flops_per_round, run_matrix};
    return &loop;
}

}  // namespace convgrad::cpu

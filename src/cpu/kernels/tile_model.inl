// A model of the tile instructions' time, for a processor that lacks them (CMake option
// CONVGRAD_MODEL_TILES): nothing is computed, but a block of products takes as long as it would
// with tiles that are in L1: 16 cycles a product, or 8 a tile load and 16 a store where there are
// more of those, at the clock that gives 2,640 GFLOP/s a core. Everything around the products is
// real.
//
// The results of such a build are wrong; only `convgrad bench` and a profiler make sense with it.

/// Of the time stamp counter; known before the first measurement.
inline const double counts_per_ns = [] {
    const auto start = std::chrono::steady_clock::now();
    const auto first = __builtin_ia32_rdtsc();
    std::chrono::duration<double, std::nano> passed{};
    while (passed.count() < 1e6) passed = std::chrono::steady_clock::now() - start;
    return static_cast<double>(__builtin_ia32_rdtsc() - first) / passed.count();
}();

struct tile_model {
    long products = 0, loads = 0, stores = 0;
    long debt = 0;  // cycles of the time stamp counter

    void wait() {
        constexpr double cycle = 6.2 / 16;  // ns
        const auto cycles = static_cast<double>(std::max(16 * products, 8 * loads + 16 * stores));
        debt += static_cast<long>(cycles * cycle * counts_per_ns);
        products = loads = stores = 0;
        if (debt < 4000) return;  // reading the counter takes time too
        const auto start = __builtin_ia32_rdtsc();
        while (static_cast<long>(__builtin_ia32_rdtsc() - start) < debt) {
        }
        debt = 0;
    }
};
inline thread_local tile_model tile_time;

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_release
#define _tile_loadd(tile, from, pitch)                                                             \
    (static_cast<void>(from), static_cast<void>(pitch), tile_time.loads += 1)
#define _tile_stored(tile, to, pitch)                                                              \
    (static_cast<void>(to), static_cast<void>(pitch), tile_time.stores += 1)
#define _tile_zero(tile) static_cast<void>(0)
#define _tile_dpbf16ps(c, a, b) (tile_time.products += 1)
#define _tile_release() static_cast<void>(0)

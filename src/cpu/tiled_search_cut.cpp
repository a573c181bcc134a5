// How tiled_search cuts a layer into units, and units into tasks, for the threads that share them.
#include <algorithm>
#include <cmath>

#include "cpu/tiled_search.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {
namespace {

constexpr dim least_rows = 8;  // of C: fewer do not hide what a task costs
// Taps for each that meets the input, from which on tiles of a short axis are counted one by one.
constexpr double much_padding = 1.4;
constexpr dim few_positions = 64;

dim volume(const dim (&tile)[3]) {
    return tile[0] * tile[1] * tile[2];
}

}  // namespace

/// As fair_share_on(); a worker that comes to another block packs its weights first, which not all
/// do where blocks are not shared out evenly.
double tiled_search::share_on(int threads, double largest) const {
    if (threads <= 1) return 1;
    const dim tasks = count_tasks(), blocks = p_.groups * div_up(panels_, panels_per_block_);
    const double weights = static_cast<double>(taps_ * roles_.in_c * panels_per_block_)
                           * static_cast<double>(panel_width())
                           * static_cast<double>(size_of(p_.type));
    const double seconds = least_seconds_ / static_cast<double>(tasks);
    const bool even =
        blocks == 1 || !keep_weights_ || (threads % blocks == 0 && tasks % threads == 0);
    const double pack = even ? 0 : weights / nominal_bytes / seconds;
    const auto each = static_cast<double>(tasks) / threads;
    return std::max(each / (std::ceil(each) * largest + pack),
        each / (each + (largest + pack) * (threads - 1) / threads));
}

double tiled_search::share_up_to(int threads) const {
    double worst = fair_enough, sum = 0, count = 1;
    const double largest = skew();
    for (int n = 2; n <= threads; n *= 2, count += 1) {
        const double share = std::min(fair_enough, share_on(n, largest));
        worst = std::min(worst, share);
        sum += share;
    }
    return worst + 0.001 * sum / count;  // of two that are equal at worst, the better on the whole
}

/// Smaller tiles or blocks than the caches ask for, where that is needed to keep many threads busy:
/// the cheapest ones that do.
void tiled_search::choose_units(dim positions) {
    const int threads = cut_threads(p_, kernels_);
    const dim least_positions = div_up(least_rows, count_phases(walk_));
    dim best_positions = positions, best_panels = panels_per_block_;
    double best_share = 0, best_seconds = 0;
    for (;; panels_per_block_ = div_up(panels_per_block_, 2)) {
        choose_tile(positions);
        for (int tries = 0; tries < 64; ++tries) {
            const dim volume = tile_[0] * tile_[1] * tile_[2];
            const double share = share_up_to(threads);
            const double seconds = cut_seconds();
            if (share > best_share || (share == best_share && seconds < best_seconds)) {
                best_share = share, best_seconds = seconds;
                best_positions = volume, best_panels = panels_per_block_;
            }
            const dim smaller = std::min(volume - 1, volume - volume / 16);
            const bool found = best_share >= fair_enough && seconds > 1.3 * best_seconds;
            if (threads == 1 || smaller < least_positions || found) break;
            choose_tile(smaller);
        }
        if (threads == 1 || panels_per_block_ == 1) break;
    }
    panels_per_block_ = best_panels;
    choose_tile(best_positions);
    if (threads > 1) even_units();
}

/// As many units as halve often are shared out evenly in bundles of any size: 64 of 49 positions
/// rather than 63 of 50, which two threads share at 0.955.
void tiled_search::even_units() {
    const dim length = longest_row(), now = div_up(length, tile_[2]);
    if (now == 1 || length != walk_[2].longest) return;
    const dim others = count_tasks() / tiles_[2];
    const auto halves = [&](dim tiles) {
        const dim tasks = others * tiles;
        return std::min<dim>(tasks & -tasks, 8);
    };
    dim best = now;
    for (dim tiles = now + 1; 8 * tiles <= 9 * now; ++tiles) {
        const dim each = div_up(length, tiles);
        const bool even = 64 * each * tiles <= 65 * length;
        if (even && div_up(length, each) == tiles && halves(tiles) > halves(best)) best = tiles;
    }
    const dim tile[3] = {tile_[0], tile_[1], div_up(length, best)};
    set_tile(tile);
}

void tiled_search::use_units() {
    set_tile(unit_);
    panels_per_block_ = unit_panels_;
}

/// Tasks of one or more units each: the cheapest that keep `threads` threads busy.
void tiled_search::bundle_units(int threads) {
    struct {
        dim tile[3], panels;
        double share = -1, seconds = 0;
    } best{{unit_[0], unit_[1], unit_[2]}, unit_panels_};
    const auto consider = [&](const dim(&tile)[3]) {
        set_tile(tile);
        const double real_share = share_on(threads, skew());
        if (panels_per_block_ > near_panels_ && real_share < fair_enough) return;
        const double share = std::min(fair_enough, real_share);
        const double seconds = cut_seconds() / real_share;
        if (share > best.share || (share == best.share && seconds < best.seconds))
            best = {{tile[0], tile[1], tile[2]}, panels_per_block_, share, seconds};
    };
    for (dim panels = unit_panels_; panels < most_panels_ + unit_panels_; panels += unit_panels_) {
        panels_per_block_ = std::min(panels, panels_);
        const dim most = tile_positions();
        dim tile[3] = {unit_[0], unit_[1], unit_[2]};
        consider(tile);
        // Along the last axis until rows are whole (or hold the images of a tile), then along the
        // one before.
        for (int a = 2; a >= 0; --a) {
            const dim length = a == 2 ? longest_row() : walk_[a].longest;
            const dim units = div_up(length, unit_[a]), others = volume(tile) / tile[a];
            for (dim tiles = units; tiles > 1 && others * tile[a] <= most;) {
                const dim each = div_up(units, tiles);                 // units of a tile
                tiles = std::min(tiles - 1, div_up(units, each + 1));  // fewer of them
                tile[a] = std::min(div_up(units, tiles) * unit_[a], length);
                if (others * tile[a] <= most) consider(tile);
            }
            if (tile[a] < length || volume(tile) > most) break;
        }
    }
    set_tile(best.tile);
    panels_per_block_ = best.panels;
}

/// The largest task in terms of the mean: remainders of tiles and blocks, taps that padding skips.
double tiled_search::skew() const {
    const auto ratio = [](dim a, dim b) { return static_cast<double>(a) / static_cast<double>(b); };
    const dim blocks = div_up(panels_, panels_per_block_);
    double skew = blocks == 1 ? 1
                              : ratio(blocks * panels_per_block_ * panel_width(),
                                  round_up_to(roles_.out_c, kernels_.lanes));
    for (int a = 0; a < 3; ++a) {
        if (tiles_[a] == 1) continue;
        if (a < 2 && axes_[a].padding > much_padding && walk_[a].longest <= few_positions) {
            skew *= largest_tile(a);
            continue;
        }
        skew *= ratio(tiles_[a] * tile_[a], walk_[a].longest);
        if (a < 2) skew *= axes_[a].padding;
    }
    return skew;
}

/// The largest tile along an axis in terms of the mean, by taps that meet the input. (4×4 taps on
/// 1×1: each position has one, none has the four that padding counts.)
double tiled_search::largest_tile(int a) const {
    double most = 0, all = 0;
    for (dim t = 0; t < tiles_[a]; ++t) {
        double pairs = 0;
        for (const axis_phase &f : walk_[a].phases)
            if (const dim left = f.count - t * tile_[a]; left > 0)
                pairs += inside_pairs(walk_[a], f, t * tile_[a], std::min(left, tile_[a]));
        most = std::max(most, pairs);
        all += pairs;
    }
    return most * static_cast<double>(tiles_[a]) / all;
}

}  // namespace convgrad::cpu

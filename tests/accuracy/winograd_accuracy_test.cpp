// Where the default math mode allows a Winograd tile, its error is no larger than that of a plain
// f32 sum: by root mean square, on data of one scale, with and without a ReLU before it. And the
// factor that explain states is the one that is measured.
#include <gtest/gtest.h>

#include "accuracy/winograd_layers.hpp"

namespace convgrad::accuracy {
namespace {

using conv::pass;

/// Random, but the same on every run: what another draw of data would move.
constexpr double spread = 1.2;

void check(pass what) {
    for (const winograd_layer &l : winograd_layers(what))
        for (const cpu::winograd_tile tile : cpu::all_winograd_tiles)
            for (const isa set : test::usable_fma_isas()) {
                if (set != test::usable_fma_isas().back() && l.length > 512) continue;
                double worst = 0;
                for (const flavour f :
                    {flavour::random, flavour::normal, flavour::rectified, flavour::positive}) {
                    const double found = winograd_factor(l.p, tile, set, f);
                    if (f != flavour::positive) worst = std::max(worst, found);
                    if (!cpu::winograd_is_accurate(l.p, tile, set)) continue;
                    EXPECT_LE(found, 1)
                        << winograd_names[static_cast<std::size_t>(tile)] << ' ' << l.length << ' '
                        << to_string(f) << ' ' << convgrad::to_string(set);
                }
                const double stated = cpu::winograd_error(l.p, tile);
                EXPECT_LE(worst, spread * stated) << convgrad::to_string(set) << ' ' << l.length;
                if (set == test::usable_fma_isas().back()) {
                    EXPECT_GE(worst, stated / spread) << l.length << ' ' << static_cast<int>(tile);
                }
            }
}

void check_rule(const std::vector<winograd_layer> &layers) {
    for (const winograd_layer &l : layers)
        for (const cpu::winograd_tile tile : cpu::all_winograd_tiles) {
            for (const isa set : test::usable_fma_isas()) {
                if (!cpu::winograd_is_accurate(l.p, tile, set)) continue;
                if (set != test::usable_fma_isas().back() && l.length > 512) continue;
                // Portable kernels have no fused multiply-adds.
                const double stated = set == isa::portable ? 1 : cpu::winograd_error(l.p, tile);
                for (const flavour f : {flavour::random, flavour::rectified, flavour::positive})
                    EXPECT_LE(winograd_factor(l.p, tile, set, f), std::min(1.0, spread * stated))
                        << winograd_names[static_cast<std::size_t>(tile)] << ' ' << l.length << ' '
                        << to_string(f) << ' ' << convgrad::to_string(set);
            }
        }
}

TEST(winograd_accuracy, edges_no_larger_than_the_plain_sum) {
    for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights})
        check_rule(winograd_edge_layers(what));
}

TEST(winograd_accuracy, forward_no_larger_than_the_plain_sum) {
    check(pass::forward);
}

TEST(winograd_accuracy, data_gradient_no_larger_than_the_plain_sum) {
    check(pass::backward_data);
}

TEST(winograd_accuracy, weights_gradient_no_larger_than_the_plain_sum) {
    check(pass::backward_weights);
}

TEST(winograd_accuracy, stride_2_no_larger_than_the_plain_sum) {
    for (const dim kernel : {4, 3, 5})
        for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights})
            check_rule(winograd_stride_layers(what, kernel));
}

TEST(winograd_accuracy, other_taps_no_larger_than_the_plain_sum) {
    for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights}) {
        for (const dim kernel : {4, 5}) check_rule(winograd_tap_layers(what, kernel, false));
        for (const dim kernel : {2, 3, 4, 5}) check_rule(winograd_tap_layers(what, kernel, true));
    }
}

}  // namespace
}  // namespace convgrad::accuracy

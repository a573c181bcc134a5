// Where the default math mode allows a Winograd tile, its error is no larger than that of a plain
// f32 sum: by root mean square, on data of one scale, with and without a ReLU before it.
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "accuracy/problems.hpp"
#include "cpu/winograd.hpp"

namespace convgrad::accuracy {
namespace {

using conv::pass;
using conv::problem;

constexpr std::string_view names[] = {"winograd2x2.fma", "winograd4x2.fma", "winograd4x4.fma"};

/// Taps and stride.
struct filter {
    dim kernel, stride;
};
constexpr filter filter_3x3 = {3, 1}, filter_3x3_s2 = {3, 2}, filter_4x4 = {4, 2};

/// With `side` output positions along both axes, or (backward data) of diff_src for each residue.
problem layer(pass what, dim ic, dim oc, dim mb, dim side, filter of = filter_3x3) {
    problem p;
    p.what = what;
    p.mb = mb;
    p.ic = ic;
    p.oc = oc;
    p.x[1] = p.x[2] = test::make_axis(side * of.stride, of.kernel, of.stride, 1, 1, 1);
    test::set_layouts(p, test::data_layout::nxc, test::weights_layout::xio, test::data_layout::nxc);
    return p;
}

/// Error of a tile in terms of the plain sum's.
double factor(const problem &p, std::size_t tile, isa set, flavour f) {
    subject s(p, f, 1);
    const errors e = s.run({.max_isa = set, .only_algorithm = names[tile]}, math_mode::accurate);
    return e.rms_error() / s.plain().rms_error();
}

void check(const problem &p, const std::string &what, dim length) {
    for (const flavour f : {flavour::random, flavour::rectified, flavour::positive})
        for (std::size_t t = 0; t < 3; ++t)
            for (const isa set : test::usable_fma_isas()) {
                if (set != test::usable_fma_isas().back() && length > 512) continue;
                const double found = factor(p, t, set, f);
                if (std::getenv("WINOGRAD_TABLE") != nullptr)
                    std::printf("%s\t%s\t%ld\t%s\t%s\t%.2f\n", what.c_str(),
                        std::string(names[t]).c_str(), static_cast<long>(length),
                        std::string(to_string(f)).c_str(),
                        std::string(convgrad::to_string(set)).c_str(), found);
                if (!cpu::winograd_is_accurate(p, static_cast<cpu::winograd_tile>(t))) continue;
                EXPECT_LE(found, 1) << what << ' ' << names[t] << ' ' << length << ' '
                                    << to_string(f) << ' ' << convgrad::to_string(set);
            }
}

TEST(winograd_accuracy, forward_no_larger_than_the_plain_sum) {
    for (const dim channels : {16, 32, 64, 96, 128, 256, 384, 512})
        for (const dim side : {12, 7, 6})  // whole tiles; with edges
            check(
                layer(pass::forward, channels, 16, side == 12 ? 1 : 3, side), "forward", channels);
}

TEST(winograd_accuracy, data_gradient_no_larger_than_the_plain_sum) {
    for (const dim channels : {16, 32, 64, 96, 128, 256, 384})
        for (const dim side : {12, 7})
            check(layer(pass::backward_data, 16, channels, side == 12 ? 1 : 3, side),
                "data gradient", channels);
}

TEST(winograd_accuracy, weights_gradient_no_larger_than_the_plain_sum) {
    for (const dim side : {4, 7, 10, 14, 16, 23, 26, 28, 32, 40, 46, 64})
        check(layer(pass::backward_weights, 16, 16, 1, side), "weights gradient", side * side);
    for (const dim images : {6, 14, 16, 32, 42})  // small maps, all edges
        check(layer(pass::backward_weights, 16, 16, images, 7), "weights gradient", images * 49);
    for (const dim images : {4, 8, 11})
        check(layer(pass::backward_weights, 16, 16, images, 14), "weights gradient", images * 196);
}

// Forward four residues are summed up, as if they were channels.
TEST(winograd_accuracy, stride_2_no_larger_than_the_plain_sum) {
    for (const filter of : {filter_4x4, filter_3x3_s2}) {
        const std::string taps = std::to_string(of.kernel) + "x" + std::to_string(of.kernel) + "/2";
        for (const dim side : {15, 7, 4}) {
            const dim mb = side == 15 ? 1 : 4;
            for (const dim channels : {16, 32, 64, 128, 256, 384, 704})
                check(
                    layer(pass::forward, channels, 16, mb, side, of), "forward " + taps, channels);
            for (const dim channels : {16, 32, 64, 128, 256, 512, 1024, 1536})
                check(layer(pass::backward_data, 16, channels, mb, side, of),
                    "data gradient " + taps, channels);
        }
        for (const dim side : {4, 7, 10, 14, 16, 23, 26, 28, 32, 40, 46, 56, 64})
            check(layer(pass::backward_weights, 16, 16, 1, side, of), "weights gradient " + taps,
                side * side);
        for (const dim images : {16, 32, 48, 64, 128, 192})
            check(layer(pass::backward_weights, 16, 16, images, 4, of), "weights gradient " + taps,
                images * 16);
    }
}

}  // namespace
}  // namespace convgrad::accuracy

// Walks, patches and runs by themselves: every tap of every position finds its element.
#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "cpu/tiled.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using cpu::axis_patch;
using cpu::axis_walk;

constexpr dim nowhere = -1;

/// A problem's walk along three axes, and an odd tile of it.
struct scene {
    conv::problem p;
    axis_walk walk[3];
    axis_patch patch[3];
    dim tile[3] = {1, 1, 1};
    cpu::phase_list list;

    /// False: nothing to walk over, or too much.
    bool draw(std::uint64_t seed) {
        rng random(seed);
        p = random_problem(random);
        const bool back = p.what == conv::pass::backward_data;
        dim positions = 1;
        for (std::size_t a = 0; a < 3; ++a) {
            walk[a] = back ? cpu::walk_backward(p.x[a]) : cpu::walk_forward(p.x[a]);
            if (walk[a].longest == 0 || walk[a].phases.empty()) return false;
            tile[a] = random.between(1, walk[a].longest);
            patch[a] = cpu::make_patch(walk[a], tile[a], a == 2 && random.chance(0.5));
            positions *= walk[a].longest;
        }
        list = cpu::list_phases(walk, patch, p.weights, back ? p.dst : p.src);
        return positions <= 3000;
    }
    /// The tile that holds position 0, or the last one.
    [[nodiscard]] cpu::tile_place place(bool last) const {
        dim tiles[3], index = 0;
        for (int a = 0; a < 3; ++a) {
            tiles[a] = cpu::div_up(walk[a].longest, tile[a]);
            index = index * tiles[a] + (last ? tiles[a] - 1 : 0);
        }
        cpu::tile_place at{};
        EXPECT_EQ(cpu::place_tile(walk, tile, tiles, index, at), 0);
        return at;
    }
    [[nodiscard]] dim patch_size() const {
        return patch[0].length * patch[1].length * patch[2].length;
    }
};

/// Number of an input element; `nowhere` outside.
dim element(const axis_walk (&walk)[3], const dim (&at)[3]) {
    dim number = 0;
    for (int a = 0; a < 3; ++a) {
        if (at[a] < 0 || at[a] >= walk[a].in_length) return nowhere;
        number = number * walk[a].in_length + at[a];
    }
    return number;
}

/// The patch of a tile, filled with the numbers of its elements.
std::vector<dim> fill_patch(const scene &s, const cpu::tile_place &at) {
    std::vector<dim> patch(static_cast<std::size_t>(s.patch_size()), dim{-2});
    cpu::for_each_patch_row(
        s.walk, s.patch, s.tile, at.t0, at.length, [&](const cpu::patch_row &row) {
            for (dim x = 0; x < row.count; ++x) {
                const dim in[3] = {row.in[0], row.in[1], row.in[2] + x * s.walk[2].in_step};
                const dim number = x >= row.lo && x < row.hi ? element(s.walk, in) : nowhere;
                // What exists is within [lo, hi), and nothing else.
                EXPECT_EQ(number, element(s.walk, in));
                EXPECT_TRUE(x < row.lo || x >= row.hi || number != nowhere);
                patch.at(static_cast<std::size_t>(row.at + x)) = number;
            }
        });
    return patch;
}

template <typename Body>
void for_each_position(const dim (&length)[3], Body &&body) {
    for (dim d = 0; d < length[0]; ++d)
        for (dim h = 0; h < length[1]; ++h)
            for (dim w = 0; w < length[2]; ++w) body(std::array<dim, 3>{d, h, w});
}

/// Calls body(index of the tap in the list, taps) for the taps of a phase.
template <typename Body>
void for_each_tap(const cpu::conv_phase &f, Body &&body) {
    dim tap = f.first_tap;
    for (const cpu::axis_tap &kd : f.axis[0]->taps)
        for (const cpu::axis_tap &kh : f.axis[1]->taps)
            for (const cpu::axis_tap &kw : f.axis[2]->taps)
                body(tap++, std::array<dim, 3>{kd.off, kh.off, kw.off});
    EXPECT_EQ(tap, f.first_tap + f.taps);
}

TEST(patches, hold_what_every_tap_reads) {
    int seen = 0, padded = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        scene s;
        if (!s.draw(seed)) continue;
        for (const bool last : {false, true}) {
            const cpu::tile_place at = s.place(last);
            const std::vector<dim> patch = fill_patch(s, at);
            bool outside = false;
            for (const cpu::conv_phase &f : s.list.phases) {
                dim length[3];
                if (!cpu::phase_length(f, at, length)) continue;
                for_each_tap(f, [&](dim tap, const std::array<dim, 3> &off) {
                    for_each_position(length, [&](const std::array<dim, 3> &t) {
                        dim in[3];
                        for (std::size_t a = 0; a < 3; ++a)
                            in[a] = (at.t0[a] + t[a]) * s.walk[a].in_step + off[a];
                        const dim where = s.list.patch[static_cast<std::size_t>(tap)]
                                          + (t[0] * s.patch[1].length + t[1]) * s.patch[2].row
                                          + t[2];
                        const dim found = element(s.walk, in);
                        outside = outside || found == nowhere;
                        EXPECT_EQ(patch.at(static_cast<std::size_t>(where)), found)
                            << "seed " << seed << ' ' << to_text(s.p);
                        ++seen;
                    });
                });
            }
            EXPECT_TRUE(at.padded || !outside) << "seed " << seed << ' ' << to_text(s.p);
            padded += at.padded ? 1 : 0;
        }
        if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(seen, 10000);
    EXPECT_GT(padded, 20);
}

// Exactly the taps of which some position of a row lies inside the input.
TEST(runs, leave_out_taps_that_meet_padding_only) {
    int left_out = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        scene s;
        if (!s.draw(seed)) continue;
        const cpu::tile_place at = s.place(seed % 2 == 0);
        std::vector<dim> numbers(s.list.weights.size()), first(numbers), second(numbers);
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<dim>(i);
        for (const cpu::conv_phase &f : s.list.phases) {
            dim length[3];
            if (!cpu::phase_length(f, at, length)) continue;
            const dim rows = std::min<dim>(length[1], 2);
            const dim runs = cpu::list_runs(s.walk, f, at, {0, 0, rows, 0, length[2]},
                {numbers.data(), numbers.data()}, {first.data(), second.data()});
            std::vector<dim> expected;
            for_each_tap(f, [&](dim tap, const std::array<dim, 3> &off) {
                // Axis by axis: a row of planes outside has no element inside.
                bool inside = true;
                const dim counts[3] = {1, rows, length[2]};
                for (std::size_t a = 0; a < 3; ++a) {
                    const dim low = at.t0[a] * s.walk[a].in_step + off[a];
                    const dim high = low + (counts[a] - 1) * s.walk[a].in_step;
                    inside = inside && high >= 0 && low < s.walk[a].in_length;
                }
                if (inside) expected.push_back(tap);
            });
            left_out += static_cast<int>(f.taps) - static_cast<int>(expected.size());
            ASSERT_EQ(std::vector<dim>(first.begin(), first.begin() + runs), expected)
                << "seed " << seed << ' ' << to_text(s.p);
            ASSERT_EQ(std::vector<dim>(second.begin(), second.begin() + runs), expected);
        }
    }
    EXPECT_GT(left_out, 20);
}

TEST(runs, pieces_of_a_row_meet_the_same_taps) {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        scene s;
        if (!s.draw(seed)) continue;
        const axis_walk &walk = s.walk[2];
        for (const cpu::axis_phase &phase : walk.phases)
            for (dim first = 0; first < phase.count; first += 3) {
                const dim count = phase.count - first;
                const dim piece = cpu::same_taps(walk, phase, first, count);
                ASSERT_GE(piece, 1);
                ASSERT_LE(piece, count);
                const auto meets = [&](dim x) {
                    std::vector<bool> inside;
                    for (const cpu::axis_tap &tap : phase.taps) {
                        const dim in = x * walk.in_step + tap.off;
                        inside.push_back(in >= 0 && in < walk.in_length);
                    }
                    return inside;
                };
                for (dim x = 1; x < piece; ++x)
                    ASSERT_EQ(meets(first + x), meets(first)) << to_text(s.p);
            }
    }
}

TEST(patches, clip_to_what_exists) {
    for (dim first = -9; first <= 9; ++first)
        for (dim step = 1; step <= 3; ++step)
            for (dim length = 0; length <= 6; ++length)
                for (dim count = 0; count <= 5; ++count) {
                    dim lo = -1, hi = -1;
                    cpu::clip(first, step, count, length, lo, hi);
                    ASSERT_TRUE(0 <= lo && lo <= hi && hi <= count);
                    for (dim x = 0; x < count; ++x) {
                        const dim in = first + x * step;
                        ASSERT_EQ(x >= lo && x < hi, in >= 0 && in < length)
                            << first << ' ' << step << ' ' << length << ' ' << count;
                    }
                }
}

}  // namespace
}  // namespace convgrad::test

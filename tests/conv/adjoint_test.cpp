// ⟨conv(x, w), y⟩ = ⟨x, backward_data(y, w)⟩ = ⟨w, backward_weights(x, y)⟩ for what the library
// computes: exactly on integers, within the bound on real data.
#include <cmath>
#include <utility>

#include <gtest/gtest.h>

#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

/// Three problems on the same x, w, y.
class triple {
public:
    void load(problem p, fill how, std::uint64_t seed) {
        p.bias = p.add = p.relu = p.accumulate = false;
        p.diff_bias = conv::bias_gradient::none;
        p.out_type = p.type;
        for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights}) {
            p.what = what;
            of(what).load(p, how, seed);
        }
        rng random(seed);
        for (const role r : {role::src, role::weights, role::dst})
            for_each_element(extents_of(p, r), [&](const auto &, dim offset) {
                const double v = how == fill::integers ? static_cast<double>(random.between(-1, 1))
                                                       : 2 * random.unit() - 1;
                for (workbench &bench : benches_)
                    if (output_of(bench.problem()) != r) bench.write(r, offset, v);
            });
    }
    void run(isa set) {
        for (workbench &bench : benches_) bench.run({.max_isa = set});
    }
    /// ⟨output, the tensor in whose place it stands⟩, the latter from a pass that reads it.
    [[nodiscard]] double product(pass what) const {
        const workbench &bench = benches_[static_cast<std::size_t>(what)];
        const role r = output_of(bench.problem());
        const workbench &input = benches_[what == pass::forward ? 1 : 0];
        double sum = 0;
        for_each_element(extents_of(bench.problem(), r), [&](const auto &, dim offset) {
            sum += input.read(r, offset) * bench.read(r, offset);
        });
        return sum;
    }
    /// Whether each result is a whole number that its type holds exactly.
    [[nodiscard]] bool exact() const {
        for (const workbench &bench : benches_) {
            double largest = 0;
            const role r = output_of(bench.problem());
            for_each_element(extents_of(bench.problem(), r), [&](const auto &, dim offset) {
                largest = std::max(largest, std::fabs(bench.read(r, offset)));
            });
            if (largest > (bench.problem().type == data_type::bf16 ? 256 : 2048)) return false;
        }
        return true;
    }
    /// Σ |x · w · y| over all triples that meet, and the most terms of one sum.
    [[nodiscard]] std::pair<double, double> magnitude() const {
        const workbench &bench = benches_[0];
        double sum = 0;
        dim terms = 0;
        for_each_element(extents_of(bench.problem(), role::dst), [&](const auto &at, dim offset) {
            const auto v = conv::reference_at(
                bench.problem(), bench.data(), {at[0], at[1], {at[2], at[3], at[4]}});
            sum += v.magnitude * std::fabs(benches_[1].read(role::dst, offset));
            terms = std::max(terms, v.terms);
        });
        // The other passes' sums run over output channels or over positions.
        const problem &p = bench.problem();
        double positions = static_cast<double>(p.mb), taps = static_cast<double>(p.oc);
        for (const conv::axis &a : p.x) {
            positions *= static_cast<double>(a.dst);
            taps *= static_cast<double>(a.kernel);
        }
        return {sum, std::max({static_cast<double>(terms), positions, taps})};
    }

private:
    workbench &of(pass what) { return benches_[static_cast<std::size_t>(what)]; }
    std::array<workbench, 3> benches_;
};

TEST(adjoint, exact_on_integers) {
    triple t;
    int checked = 0;
    for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
        rng random(seed);
        const problem p = random_problem(random, 5e4, inputs::apart);
        t.load(p, fill::integers, seed);
        for (const isa set : affordable_isas(seed)) {
            t.run(set);
            if (!t.exact()) break;
            ++checked;
            const double forward = t.product(pass::forward);
            ASSERT_EQ(t.product(pass::backward_data), forward) << to_string(set) << to_text(p);
            ASSERT_EQ(t.product(pass::backward_weights), forward) << to_string(set) << to_text(p);
        }
    }
    EXPECT_GT(checked, 1000);
}

TEST(adjoint, within_bound_on_reals) {
    triple t;
    for (std::uint64_t seed = 5001; seed <= 5400; ++seed) {
        rng random(seed);
        const problem p = random_problem(random, 5e4, inputs::apart);
        t.load(p, fill::reals, seed);
        const auto [magnitude, terms] = t.magnitude();
        const double half_ulp = p.type == data_type::f32    ? 0x1p-24
                                : p.type == data_type::bf16 ? 0x1p-8
                                                            : 0x1p-11;
        // Each side is off by the relative error of its sums.
        const double bound = 2 * ((terms + 4) * 0x1p-24 + half_ulp) * magnitude + 0x1p-20;
        for (const isa set : affordable_isas(seed)) {
            t.run(set);
            const double forward = t.product(pass::forward);
            ASSERT_NEAR(t.product(pass::backward_data), forward, bound) << to_text(p);
            ASSERT_NEAR(t.product(pass::backward_weights), forward, bound) << to_text(p);
        }
    }
}

}  // namespace
}  // namespace convgrad::test

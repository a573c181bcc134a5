// The bounds behind the CUDA tables of docs/accuracy.md.
#include <cmath>

#include "accuracy/engine_runs.hpp"
#include "accuracy/problems.hpp"
#include "cuda/machine.hpp"

namespace convgrad::accuracy {
namespace {

using conv::pass;
using conv::problem;
using test::why_no_gpu;

/// In u·Σ|terms|: six standard deviations of roundings that walk at random. `fast` rounds both
/// operands to 11 bits, 2^-10 of a product together.
double bound(const problem &p, engines::accuracy kept) {
    const double n = longest_sum(p), of_sum = std::min(n + 1, 6 * std::sqrt(n) + 2);
    const bool tf32 = kept == engines::accuracy::fast && p.type == data_type::f32;
    return of_sum + (tf32 ? 1.01 * 0x1p14 : 0);
}

void check_bounds(data_type type) {
    CONVGRAD_NEEDS_GPU();
    engine_runs on({.kind = engine_kind::cuda});
    for (const family f : engine_families)
        for_each_subject(engine_problems_of(f, type), 1, [&](const named_problem &n, subject &s) {
            for (const engine_method &m : on.methods_for(n.p)) {
                const errors e = on.run(s, *m.plan);
                const engines::accuracy kept = m.plan->facts().kept;
                // TF32 ends at 2^-136: what that leaves of a subnormal number is not bounded by it.
                if (kept == engines::accuracy::strict || type != data_type::f32
                    || s.data() != flavour::subnormal) {
                    EXPECT_LE(e.sum, bound(n.p, kept))
                        << m.name << ", " << to_string(s.data()) << ", " << n.name;
                }
                EXPECT_EQ(e.unlike, 0) << m.name << ", " << to_string(s.data()) << ", " << n.name;
            }
        });
}

TEST(cuda_accuracy, f32_within_bounds) {
    check_bounds(data_type::f32);
}
TEST(cuda_accuracy, bf16_within_bounds) {
    check_bounds(data_type::bf16);
}
TEST(cuda_accuracy, f16_within_bounds) {
    check_bounds(data_type::f16);
}

// The unit cuts off six times in 16 terms (three products of eight terms, twice), by 2 u of what is
// summed so far each; products with small parts come first, so that this is no more than 2^-10 of
// the sum four times of them. The parts of both operands and their smallest product, which is not
// computed, miss 3 · 2^-22 of a term; the sums of 16 terms are added in f32. So errors hardly grow
// with the length of a sum.
TEST(cuda_accuracy, three_products_cut_off_no_more_than_the_unit_does) {
    CONVGRAD_NEEDS_GPU();
    engine_runs on({.kind = engine_kind::cuda});
    int split = 0;
    for (const family f : all_families)
        for (const named_problem &n : problems_of(f, data_type::f32)) {
            const auto plan = on.chosen(n.p, math_mode::accurate);
            if (plan->facts().kept != engines::accuracy::accurate) continue;
            ++split;
            const double most = 4 + 0.01 + 12 + 6 * std::sqrt(longest_sum(n.p) / 16);
            for (const flavour what : {flavour::random, flavour::positive, flavour::cancelling})
                for (std::uint64_t seed = 1; seed <= 2; ++seed) {
                    subject s(n.p, what, seed);
                    EXPECT_LE(on.run(s, *plan).sum, most) << n.name << ", " << to_string(what);
                }
        }
    EXPECT_GE(split, 5);  // tensor cores were chosen at all
}

/// Of sums that no stride cuts short.
double shortest_sum(const problem &p) {
    double terms = longest_sum(p);
    if (p.what == pass::backward_data)
        for (const conv::axis &a : p.x) terms /= static_cast<double>(a.stride);
    return terms;
}

// Two sums of 16 terms are cut off where a plain sum is rounded 16 times. Where neighbours cancel,
// a plain sum has next to no error, and what the parts miss of each term shows.
TEST(cuda_accuracy, long_sums_of_three_products_are_no_less_exact_than_plain_ones) {
    CONVGRAD_NEEDS_GPU();
    engine_runs on({.kind = engine_kind::cuda});
    constexpr double is_long = 32;
    int split = 0;
    for (const named_problem &n : problems_of(family::dense, data_type::f32)) {
        if (shortest_sum(n.p) < is_long) continue;
        for (const engine_method &m : on.methods_for(n.p)) {
            if (m.plan->facts().kept != engines::accuracy::accurate) continue;
            ++split;
            for (const flavour what : {flavour::random, flavour::positive}) {
                errors ours, plain;
                for (std::uint64_t seed = 1; seed <= 2; ++seed) {
                    subject s(n.p, what, seed);
                    plain.merge(s.plain());
                    ours.merge(on.run(s, *m.plan));
                }
                EXPECT_LE(ours.rms(), plain.rms())
                    << m.name << ", " << n.name << ", " << to_string(what);
            }
        }
    }
    EXPECT_GE(split, 10);
}

}  // namespace
}  // namespace convgrad::accuracy

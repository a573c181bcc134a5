// Results are rounded to the output's type once, to nearest even: sums that lie exactly between two
// numbers, or a hair beside, formed of terms that are scattered over the whole reduction. Partial
// sums rounded to 16 bits, results rounded to f32 by way of a 16-bit type, or ties away from even
// would all show.
#include <cmath>
#include <limits>
#include <stdexcept>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "conv/convert.hpp"
#include "support/workbench.hpp"

namespace convgrad::accuracy {
namespace {

using conv::pass;
using conv::problem;
using test::data_layout;
using test::output_of;
using test::role;
using test::weights_layout;

double rounded(data_type type, double v) {
    return type == data_type::bf16 ? conv::to_float(conv::round_to<bf16>(v))
                                   : conv::to_float(conv::round_to<f16>(v));
}

struct format {
    int digits, least;  // significand bits; exponent of the smallest positive number
};
format format_of(data_type type) {
    return type == data_type::bf16 ? format{8, -133} : format{11, -24};
}

/// The distance of neighbours at v.
double step_at(data_type type, double v) {
    const auto [digits, least] = format_of(type);
    return std::ldexp(1.0, std::max(std::ilogb(v) - digits + 1, least));
}

/// Sums in f32 that are hard to round: at, just below and just above the middle between
/// neighbours, with odd and even lower neighbours. They are to be made of terms `scale` · v with v
/// of the type.
std::vector<double> hard_sums(data_type type, std::initializer_list<int> exponents, double scale) {
    std::vector<double> sums;
    for (const int exponent : exponents)
        for (const double lower : {0.0, 1.0, 2.0, 5.0, 6.0}) {
            const double first = std::ldexp(1.0, exponent), step = step_at(type, first);
            const double middle = first + (lower + 0.5) * step;
            // The smallest difference that both f32 and the terms can express.
            const double hair = std::max(std::ldexp(1.0, std::max(exponent - 22, -149)),
                scale * std::ldexp(1.0, format_of(type).least));
            for (const double v : {middle, middle - hair, middle + hair})
                if (hair <= step / 4) sums.insert(sums.end(), {v, -v});
        }
    return sums;
}

/// The value as a sum of numbers of the type, largest first; every partial sum of them is exact in
/// f32.
std::vector<double> parts_of(data_type type, double v) {
    std::vector<double> parts;
    while (v != 0) {
        const double step = step_at(type, v);
        // Downwards, so that the first part does not overflow.
        parts.push_back(std::trunc(v / step) * step);
        if (parts.back() == 0) throw std::logic_error("no sum of numbers of the type");
        v -= parts.back();
    }
    return parts;
}

/// One sum per output channel; `reduction` terms each.
problem make_problem(pass what, data_type type, dim outputs, dim reduction, data_layout layout) {
    problem p;
    p.what = what;
    p.type = p.out_type = type;
    p.mb = 1;
    p.ic = what == pass::forward ? reduction : what == pass::backward_data ? outputs : 1;
    p.oc = what == pass::backward_data ? reduction : outputs;
    if (what == pass::backward_weights) p.x[2] = test::make_axis(reduction, 1, 1, 1, 0, 0);
    test::set_layouts(p, layout, weights_layout::xio, layout);
    return p;
}

/// `scale` in one operand, the parts of the sums in the other.
class scattered_sums {
public:
    scattered_sums(const problem &p, const std::vector<double> &sums, double scale = 1)
        : p_(p), sums_(sums) {
        bench_.load(p, test::fill::integers, 1);
        fill(p.what == pass::backward_data ? role::dst : role::src, scale);
        const role other = p.what == pass::backward_weights ? role::dst : role::weights;
        fill(other, 0);
        test::rng random(static_cast<std::uint64_t>(p.ic + 3 * p.oc));
        for (std::size_t i = 0; i < sums.size(); ++i)
            for (const double part : parts_of(p.type, sums[i] / scale)) {
                dim at = 0;  // a free place
                do at = offset_of(static_cast<dim>(i), random);
                while (bench_.read(other, at) != 0);
                bench_.write(other, at, part);
            }
    }
    test::workbench &bench() { return bench_; }

    /// What rounds wrongly; empty if nothing does.
    [[nodiscard]] std::string check(double added) const {
        for (std::size_t i = 0; i < sums_.size(); ++i) {
            const auto c = static_cast<dim>(i);
            const double expected = rounded(p_.type, sums_[i] + added);
            const double got = p_.what == pass::forward ? bench_.read(role::dst, c * p_.dst.c)
                               : p_.what == pass::backward_data
                                   ? bench_.read(role::src, c * p_.src.c)
                                   : bench_.read(role::weights, c * p_.weights.o);
            if (got != expected)
                return "sum " + std::to_string(i) + " = " + std::to_string(sums_[i]) + ": got "
                       + std::to_string(got) + ", expected " + std::to_string(expected);
        }
        return {};
    }

private:
    void fill(role r, double value) {
        test::for_each_element(
            extents_of(p_, r), [&](const auto &, dim offset) { bench_.write(r, offset, value); });
    }
    /// Some term of output channel c.
    [[nodiscard]] dim offset_of(dim c, test::rng &random) const {
        if (p_.what == pass::forward)
            return c * p_.weights.o + random.between(0, p_.ic - 1) * p_.weights.i;
        if (p_.what == pass::backward_data)
            return c * p_.weights.i + random.between(0, p_.oc - 1) * p_.weights.o;
        return c * p_.dst.c + random.between(0, p_.x[2].dst - 1) * p_.dst.x[2];
    }

    problem p_;
    std::vector<double> sums_;
    test::workbench bench_;
};

/// Every algorithm on every instruction set.
void expect_rounded_once(scattered_sums &sums, double added = 0) {
    int ran = 0;
    for (const isa set : test::usable_isas())
        for (const std::string_view algorithm : cpu::algorithm_names()) {
            try {
                sums.bench().run({.max_isa = set, .algorithm = algorithm});
            } catch (const error &e) {
                ASSERT_EQ(e.code(), error_code::unsupported) << e.what();
                continue;
            }
            ++ran;
            ASSERT_EQ(sums.check(added), "") << algorithm << ' ' << to_string(set) << ' '
                                             << test::to_text(sums.bench().problem());
        }
    ASSERT_GE(ran, 2);
}

constexpr pass all_passes[] = {pass::forward, pass::backward_data, pass::backward_weights};

void check_hard_sums(data_type type, std::initializer_list<int> exponents, double scale) {
    const auto sums = hard_sums(type, exponents, scale);
    ASSERT_GE(sums.size(), 20U);
    for (const pass what : all_passes)
        for (const dim reduction : {7, 64, 1200})
            for (const data_layout layout : {data_layout::nxc, data_layout::ncx}) {
                scattered_sums s(
                    make_problem(what, type, static_cast<dim>(sums.size()), reduction, layout),
                    sums, scale);
                expect_rounded_once(s);
                if (testing::Test::HasFailure()) return;
            }
}

TEST(rounding, ties_and_near_ties_once_to_even) {
    check_hard_sums(data_type::bf16, {-120, -100, -1, 0, 60, 126}, 1);
    check_hard_sums(data_type::f16, {-2, 0, 5, 14}, 1);
}

TEST(rounding, subnormal_results_once_to_even) {
    check_hard_sums(data_type::bf16, {-130, -128, -126, -125}, 0x1p-40);
    check_hard_sums(data_type::f16, {-20, -16, -14, -13}, 0x1p-6);
}

// Long sums of small terms onto a large one: a partial sum kept in 16 bits would lose all of them.
TEST(rounding, blocks_are_not_rounded) {
    for (const data_type type : {data_type::bf16, data_type::f16})
        for (const pass what : all_passes) {
            const dim reduction = 4096;
            const problem p = make_problem(what, type, 16, reduction, data_layout::nxc);
            scattered_sums s(p, std::vector<double>(16, 0));
            const role other = what == pass::backward_weights ? role::dst : role::weights;
            test::for_each_element(extents_of(p, other),
                [&](const auto &, dim offset) { s.bench().write(other, offset, 0x1p-12); });
            s.bench().run_reference();
            for (const isa set : test::usable_isas()) {
                s.bench().run({.max_isa = set});
                ASSERT_EQ(s.bench().compare_exact(), "") << to_string(set);
            }
        }
}

// bias and what was there before are added in f32, before the one rounding: 1 + (2^-8 + 2^-20) is
// above the middle, while 2^-8 + 2^-20 rounded by itself would leave a tie.
TEST(rounding, what_is_added_counts_before_rounding) {
    for (const data_type type : {data_type::bf16, data_type::f16}) {
        const int digits = type == data_type::bf16 ? 8 : 11;
        const double half = std::ldexp(1.0, -digits), hair = std::ldexp(1.0, -20);
        std::vector<double> sums;
        for (const double v : {half, half + hair, half - hair, 3 * half, 3 * half - hair, hair})
            sums.push_back(v);
        for (const pass what : all_passes)
            for (const bool accumulate : {false, true}) {
                if (what == pass::backward_weights && !accumulate) continue;  // has no bias
                problem p =
                    make_problem(what, type, static_cast<dim>(sums.size()), 40, data_layout::nxc);
                p.accumulate = accumulate;
                p.bias = !accumulate;
                scattered_sums s(p, sums);
                const role with = accumulate ? output_of(p) : role::bias;
                test::for_each_element(extents_of(p, with), [&](const auto &, dim offset) {
                    if (accumulate)
                        s.bench().write_initial(with, offset, 1);
                    else
                        s.bench().write(with, offset, 1);
                });
                expect_rounded_once(s, 1);
                if (testing::Test::HasFailure()) return;
            }
    }
}

// The largest number and half a unit more.
TEST(rounding, overflow_at_half_a_unit_beyond_the_largest_number) {
    const std::vector<double> bf16_sums = {0x1.fep127, 0x1.fefffep127, 0x1.ffp127, -0x1.ffp127};
    const std::vector<double> f16_sums = {65504, 65519.99609375, 65520, -65520, 65519};
    for (const data_type type : {data_type::bf16, data_type::f16})
        for (const pass what : all_passes) {
            const auto &sums = type == data_type::bf16 ? bf16_sums : f16_sums;
            scattered_sums s(
                make_problem(what, type, static_cast<dim>(sums.size()), 40, data_layout::ncx),
                sums);
            expect_rounded_once(s);
        }
}

}  // namespace
}  // namespace convgrad::accuracy

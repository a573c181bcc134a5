// How far results are from f64: problems with data, and the measure.
//
// Two units. With u = 2^-24, f32's largest relative rounding error:
//
//   sum   |result − exact| / (u · Σ|terms|). What summing in f32 cost. The result's own rounding is
//         part of it for f32 outputs (at most 1); for 16-bit outputs the half unit in the last
//         place of the one rounding is taken off first. Nothing is finer than f32's smallest
//         number: the divisor is at least 2^-149.
//   ulp   |result − exact| / the distance of neighbouring numbers of the output's type at the exact
//         value. 0.5 is the best that any output can have.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "cpu/plan.hpp"
#include "support/workbench.hpp"

namespace convgrad::accuracy {

/// What the tensors hold.
enum class flavour : std::uint8_t {
    random,      // both signs, |v| < 1, uniform
    positive,    // 0 < v < 1: nothing cancels, partial sums grow
    scaled,      // both signs, magnitudes over many powers of two
    cancelling,  // neighbouring terms have opposite signs and nearly the same magnitude
    subnormal,   // operands, products or sums below the smallest normal number
    special,     // random, with NaN, infinities, signed zeros and the type's largest number
    normal,      // both signs, normally distributed
    rectified,   // the first operand max(0, normal): what follows a ReLU
};
inline constexpr flavour all_flavours[] = {flavour::random, flavour::positive, flavour::scaled,
    flavour::cancelling, flavour::subnormal, flavour::special};
std::string_view to_string(flavour f);

struct errors {
    double sum = 0, ulp = 0;  // the largest ones
    double squares = 0;       // of `sum`
    double norm = 0;          // the largest error in u · the largest Σ|terms| of the problem
    double energy = 0;        // sum of all errors' squares, in no unit
    dim elements = 0;         // with a finite exact value
    dim unlike = 0;           // NaN, infinities or zeros' place not as in the plain sum
    [[nodiscard]] double rms() const;
    [[nodiscard]] double rms_error() const;  // in no unit
    void merge(const errors &other);
};

/// One problem with its data, every output's exact value and plain f32 sum.
class subject {
public:
    subject(const conv::problem &p, flavour f, std::uint64_t seed);

    [[nodiscard]] const conv::problem &problem() const { return problem_; }
    [[nodiscard]] flavour data() const { return flavour_; }
    /// Of one f32 sum in the order of taps and channels (or images and positions) by fused
    /// multiply-add, rounded to the output's type at the end.
    [[nodiscard]] const errors &plain() const { return plain_; }
    /// Of a plan.
    errors run(const cpu::plan_limits &limits, math_mode math);
    /// Of whatever computes from these tensors into the output among them.
    errors run_by(const std::function<void(const conv::buffers &)> &compute);
    /// Of results from elsewhere, in the order of for_each_element.
    [[nodiscard]] errors of(const std::vector<double> &results) const;
    /// The elements of an input in that order, as written.
    [[nodiscard]] std::vector<double> input(test::role r) const;

private:
    struct element {
        dim offset;
        double value, magnitude;
    };
    void evaluate();
    void add_error(errors &e, const element &expected, double got) const;

    conv::problem problem_;
    flavour flavour_;
    test::workbench bench_;
    std::vector<element> exact_;
    double largest_ = 0;  // Σ|terms| of a finite element
    errors plain_;
};

/// The inputs of a pass.
std::array<test::role, 2> inputs_of(const conv::problem &p);

}  // namespace convgrad::accuracy

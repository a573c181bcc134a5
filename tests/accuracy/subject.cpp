#include "accuracy/subject.hpp"

#include <cmath>
#include <limits>

#include "accuracy/terms.hpp"
#include "conv/convert.hpp"

namespace convgrad::accuracy {
namespace {

using conv::pass;
using conv::problem;
using test::output_of;
using test::rng;
using test::role;

constexpr double unit = 0x1p-24;
constexpr double infinity = std::numeric_limits<double>::infinity();

struct type_limits {
    int digits, least;  // significand bits; exponent of the smallest positive number
    double most;
};
type_limits limits_of(data_type type) {
    switch (type) {
    case data_type::bf16:
        return {8, -133, 0x1.fep127};
    case data_type::f16:
        return {11, -24, 65504};
    default:
        return {24, -149, 0x1.fffffep127};
    }
}

/// The distance of neighbours at v.
double ulp_at(data_type type, double v) {
    const type_limits t = limits_of(type);
    if (v == 0) return std::ldexp(1.0, t.least);
    return std::ldexp(1.0, std::max(std::ilogb(v) - t.digits + 1, t.least));
}

double round_to(data_type type, double v) {
    switch (type) {
    case data_type::bf16:
        return conv::to_float(conv::round_to<bf16>(v));
    case data_type::f16:
        return conv::to_float(conv::round_to<f16>(v));
    default:
        return static_cast<float>(v);
    }
}

double signed_unit(rng &random) {
    return 2 * random.unit() - 1;
}

/// Normally distributed.
double bell(rng &random) {
    constexpr double turn = 6.283185307179586;
    const double length = std::sqrt(-2 * std::log(1 - random.unit()));  // before the next is drawn
    return length * std::cos(turn * random.unit());
}

/// ±2^e · [1, 2), e uniform in [low, high].
double with_exponent(rng &random, int low, int high) {
    const double v = std::ldexp(1 + random.unit(), static_cast<int>(random.between(low, high)));
    return random.chance(0.5) ? v : -v;
}

/// Where an element stands in the sum that cancels: channels that are summed over, or positions.
bool odd_term(const problem &p, const std::array<dim, 6> &at) {
    if (p.what == pass::backward_weights || p.what == pass::backward_bias)
        return (at[2] + at[3] + at[4]) % 2 != 0;  // of dst
    const dim channels = p.what == pass::forward ? p.ic : p.oc;
    if (channels == 1) return (at[3] + at[4] + at[5]) % 2 != 0;  // taps
    return (p.what == pass::forward ? at[2] : at[1]) % 2 != 0;
}

double draw_subnormal(const problem &p, role r, bool first, std::uint64_t seed, rng &random) {
    const bool f16 = p.type == data_type::f16;
    if (r == role::weights && p.what == pass::backward_weights) return 0;
    if (seed % 2 == 0 && !f16
        && p.what != pass::backward_bias)  // normal operands, products around the smallest numbers
        return first ? with_exponent(random, -86, -70) : with_exponent(random, -80, -60);
    if (!first) return with_exponent(random, -2, 0);
    return f16 ? with_exponent(random, -24, -16) : with_exponent(random, -148, -124);
}

double draw(const problem &p, flavour f, role r, bool first, const std::array<dim, 6> &at,
    std::uint64_t seed, rng &random) {
    const int range = p.type == data_type::f16 ? 6 : 20;
    switch (f) {
    case flavour::positive:
        return random.unit();
    case flavour::scaled:
        return with_exponent(random, -range, range);
    case flavour::cancelling: {
        const double v = 1 + (p.type == data_type::f32 ? 0x1p-10 : 0x1p-4) * signed_unit(random);
        const bool signs = p.what == pass::backward_bias || !first;  // of this operand
        return signs && odd_term(p, at) ? -v : v;
    }
    case flavour::subnormal:
        return draw_subnormal(p, r, first, seed, random);
    case flavour::rectified:
        return first ? std::max(0.0, bell(random)) : bell(random);
    case flavour::normal:
        return bell(random);
    default:
        return signed_unit(random);
    }
}

void sprinkle_specials(test::workbench &bench, rng &random) {
    const problem &p = bench.problem();
    const double most = limits_of(p.type).most;
    for (const role r : inputs_of(p)) {
        std::vector<dim> offsets;
        test::for_each_element(
            extents_of(p, r), [&](const auto &, dim offset) { offsets.push_back(offset); });
        if (offsets.empty()) continue;
        const auto anywhere = [&] { return offsets[random.next() % offsets.size()]; };
        // What is drawn first must not depend on the compiler.
        for (std::size_t i = 0; i < offsets.size() / 8; ++i) {
            const double zero = random.chance(0.5) ? 0.0 : -0.0;
            bench.write(r, anywhere(), zero);
        }
        const double unbounded = random.pick({infinity, -infinity});
        bench.write(r, anywhere(), unbounded);
        bench.write(r, anywhere(), std::nan(""));
        // One value near overflow among values below 1: its sums stay finite.
        bench.write(r, anywhere(), most / 2);
    }
}

}  // namespace

std::string_view to_string(flavour f) {
    constexpr std::string_view names[] = {"random", "positive", "scaled", "cancelling", "subnormal",
        "special", "normal", "rectified"};
    return names[static_cast<std::size_t>(f)];
}

double errors::rms() const {
    return elements > 0 ? std::sqrt(squares / static_cast<double>(elements)) : 0;
}

double errors::rms_error() const {
    return elements > 0 ? std::sqrt(energy / static_cast<double>(elements)) : 0;
}

void errors::merge(const errors &other) {
    sum = std::max(sum, other.sum);
    ulp = std::max(ulp, other.ulp);
    squares += other.squares;
    norm = std::max(norm, other.norm);
    energy += other.energy;
    elements += other.elements;
    unlike += other.unlike;
}

std::array<role, 2> inputs_of(const problem &p) {
    switch (p.what) {
    case pass::forward:
        return {role::src, role::weights};
    case pass::backward_data:
        return {role::dst, role::weights};
    case pass::backward_weights:
        return {role::src, role::dst};
    case pass::backward_bias:  // weights that have no elements
        break;
    }
    return {role::dst, role::weights};
}

subject::subject(const conv::problem &p, flavour f, std::uint64_t seed) : problem_(p), flavour_(f) {
    bench_.load(p, test::fill::reals, seed);
    rng random(seed * 1000003 + static_cast<std::uint64_t>(f));
    const auto inputs = inputs_of(p);
    for (const role r : inputs)
        test::for_each_element(extents_of(p, r), [&](const auto &at, dim offset) {
            bench_.write(r, offset, draw(p, f, r, r == inputs[0], at, seed, random));
        });
    if (f == flavour::special) sprinkle_specials(bench_, random);
    evaluate();
}

void subject::evaluate() {
    const auto inputs = inputs_of(problem_);
    // Reading element by element through the workbench is too slow here.
    std::array<std::vector<float>, 2> values;
    for (std::size_t i = 0; i < 2; ++i) {
        values[i].resize(static_cast<std::size_t>(span_of(problem_, inputs[i])));
        test::for_each_element(extents_of(problem_, inputs[i]), [&](const auto &, dim offset) {
            values[i][static_cast<std::size_t>(offset)] =
                static_cast<float>(bench_.read(inputs[i], offset));
        });
    }
    if (problem_.what == pass::backward_bias) values[1] = {1};
    const role out = output_of(problem_);
    std::vector<float> sums;
    test::for_each_element(extents_of(problem_, out), [&](const auto &at, dim offset) {
        double sum = 0, magnitude = 0;
        float plain = 0;
        for_each_term(problem_, at, [&](dim first, dim second) {
            const float a = values[0][static_cast<std::size_t>(first)];
            const float b = values[1][static_cast<std::size_t>(second)];
            const double term = static_cast<double>(a) * static_cast<double>(b);
            sum += term;
            magnitude += std::fabs(term);
            plain = std::fma(a, b, plain);
        });
        exact_.push_back({offset, sum, magnitude});
        sums.push_back(plain);
        if (std::isfinite(magnitude)) largest_ = std::max(largest_, magnitude);
    });
    for (std::size_t i = 0; i < sums.size(); ++i)
        add_error(plain_, exact_[i], round_to(problem_.out_type, sums[i]));
}

void subject::add_error(errors &e, const element &expected, double got) const {
    const data_type type = problem_.out_type;
    const double rounded = round_to(type, expected.value);
    if (!std::isfinite(rounded)) {
        e.unlike += std::isnan(rounded) ? !std::isnan(got) : got != rounded;
        return;
    }
    if (!std::isfinite(got)) {
        ++e.unlike;
        return;
    }
    const double error = std::fabs(got - expected.value), ulp = ulp_at(type, expected.value);
    const double own = type == data_type::f32 ? 0 : std::max(ulp, ulp_at(type, got)) / 2;
    const double sum = std::max(0.0, error - own) / std::max(unit * expected.magnitude, 0x1p-149);
    e.sum = std::max(e.sum, sum);
    e.ulp = std::max(e.ulp, error / ulp);
    e.squares += sum * sum;
    e.norm = std::max(e.norm, std::max(0.0, error - own) / std::max(unit * largest_, 0x1p-149));
    e.energy += error * error;
    ++e.elements;
}

errors subject::run(const cpu::plan_limits &limits, math_mode math) {
    conv::problem p = problem_;
    p.math = math;
    const auto plan = cpu::make_plan(p, limits);
    std::vector<std::byte> workspace(plan->workspace() + 64);
    void *aligned = workspace.data();
    std::size_t room = workspace.size();
    std::align(64, plan->workspace(), aligned, room);
    return run_by([&](const conv::buffers &data) {
        plan->run(data, aligned, cpu::executor(nullptr, limits.threads));
    });
}

errors subject::run_by(const std::function<void(const conv::buffers &)> &compute) {
    bench_.restore_outputs();
    compute(bench_.data());
    errors e;
    for (const element &x : exact_) add_error(e, x, bench_.read(output_of(problem_), x.offset));
    return e;
}

errors subject::of(const std::vector<double> &results) const {
    errors e;
    for (std::size_t i = 0; i < exact_.size(); ++i) add_error(e, exact_[i], results.at(i));
    return e;
}

std::vector<double> subject::input(role r) const {
    std::vector<double> values;
    test::for_each_element(extents_of(problem_, r),
        [&](const auto &, dim offset) { values.push_back(bench_.read(r, offset)); });
    return values;
}

}  // namespace convgrad::accuracy

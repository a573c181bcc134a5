#include "check.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <new>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include <convgrad/error.hpp>

#include "conv/convert.hpp"
#include "op/schema.hpp"
#include "options.hpp"
#include "runner.hpp"

namespace convgrad::cli {
namespace {

/// Products that one comparison evaluates at most, unless told to be exhaustive: about ten
/// milliseconds. At least `least_samples` elements are checked whatever that costs.
constexpr double term_budget = 2e6;
constexpr dim least_samples = 16;
/// Tensors of more elements together are checked packed only: moving one takes some nanoseconds.
constexpr dim most_arranged = dim{1} << 22;

double load(const void *data, data_type type, dim offset) {
    switch (type) {
    case data_type::bf16:
        return conv::to_float(static_cast<const bf16 *>(data)[offset]);
    case data_type::f16:
        return conv::to_float(static_cast<const f16 *>(data)[offset]);
    default:
        return static_cast<const float *>(data)[offset];
    }
}

double round_once(double value, data_type type) {
    switch (type) {
    case data_type::bf16:
        return conv::to_float(conv::round_to<bf16>(value));
    case data_type::f16:
        return conv::to_float(conv::round_to<f16>(value));
    default:
        return conv::round_to<float>(value);
    }
}

/// Largest relative error of rounding to a type, and its smallest positive number.
struct precision {
    double unit, tiny;
};
precision precision_of(data_type type) {
    switch (type) {
    case data_type::bf16:
        return {0x1p-8, 0x1p-133};
    case data_type::f16:
        return {0x1p-11, 0x1p-24};
    default:
        return {0x1p-24, 0x1p-149};
    }
}

/// The output elements to check: all of them in order, or a random sample.
class points {
public:
    points(const conv::problem &p, bool exhaustive, std::uint64_t seed)
        : extents_(output_extents(p)) {
        total_ = 1;
        for (dim d : extents_) total_ *= d;
        const double terms = std::max(1.0, terms_of(p));
        all_ = exhaustive || static_cast<double>(total_) * terms <= term_budget;
        count_ =
            all_ ? total_
                 : std::min(total_, std::max(least_samples, static_cast<dim>(term_budget / terms)));
        state_ = seed;
    }
    [[nodiscard]] dim count() const { return count_; }
    [[nodiscard]] bool all() const { return all_; }

    /// The i-th point; a sample's depend on the seed and i alone.
    [[nodiscard]] conv::point at(dim i) const {
        std::array<dim, 5> index{};
        if (all_) {
            for (std::size_t d = 5; d-- > 0; i /= extents_[d]) index[d] = i % extents_[d];
        } else {
            std::uint64_t random = state_ ^ (static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U);
            for (std::size_t d = 0; d < 5; ++d) index[d] = pick(extents_[d], i, random);
        }
        return {index[0], index[1], {index[2], index[3], index[4]}};
    }

private:
    /// First and last positions are where mistakes sit: the very first and last element are always
    /// in the sample, and a quarter of all coordinates is each.
    static dim pick(dim extent, dim i, std::uint64_t &random) {
        random = (random ^ (random >> 29)) * 0xbf58476d1ce4e5b9U + 0x94d049bb133111ebU;
        const std::uint64_t bits = random ^ (random >> 32);
        if (i == 0 || (i > 1 && (bits & 3U) == 0)) return 0;
        if (i == 1 || (bits & 3U) == 1) return extent - 1;
        return static_cast<dim>((bits >> 2) % static_cast<std::uint64_t>(extent));
    }

    std::array<dim, 5> extents_;
    dim total_ = 0, count_ = 0;
    bool all_ = false;
    std::uint64_t state_ = 0;
};

/// The element that is furthest beyond its bound, and how many are beyond.
struct worst {
    dim wrong = 0;
    double excess = 0;
    dim index = -1;
    conv::point at;
    double expected = 0, got = 0, bound = 0;
    dim terms = 0;

    void add(const worst &other) {
        const bool further =
            other.excess > excess || (other.excess == excess && other.index < index);
        const dim sum = wrong + other.wrong;
        if (other.index >= 0 && (index < 0 || further)) *this = other;
        wrong = sum;
    }
};

/// One run of a case: its call, data and results.
struct run {
    const op_case &c;
    op_call call;
    filling with;
    conv::buffers data;  // what the library is given
    void *output = nullptr;
    std::string plan;
    conv::buffers before;  // the same, with what outputs hold before an accumulating run
    std::vector<float> diff_bias, diff_bias_before;
    arrangement::kind how = arrangement::kind::packed;
    std::vector<std::vector<std::byte>> arranged;  // memory of tensors that are not packed
    std::vector<std::byte> output_before;          // of such an output
};

/// "integer data", "integer data with accumulate, f32 diff_weights, diff_bias".
std::string name_of_data(const run &r) {
    std::string text = r.with.what == filling::kind::integers ? "integer data" : "real data";
    if (r.call.problem.accumulate) text += " with accumulate";
    if (r.call.problem.add) text += " with add in place";
    if (r.call.problem.out_type != r.call.problem.type)
        text += fmt::format(", f32 {}", ops::schema_of(r.c.kind).outputs[0].name);
    if (!r.diff_bias.empty()) text += ", diff_bias";
    if (r.how == arrangement::kind::gaps) text += ", gaps between elements";
    if (r.how == arrangement::kind::overlapping) text += ", inputs that overlap themselves";
    return text;
}

/// Sums of small integers are exact, except by Winograd tiles whose points are fractions.
bool exact(const run &r) {
    return r.with.what == filling::kind::integers && r.plan.find("winograd4x") == std::string::npos;
}

worst compare_at(const run &r, const points &which, dim i) {
    worst w;
    w.at = which.at(i);
    w.index = i;
    const data_type type = r.call.problem.out_type;
    const conv::reference_value reference = conv::reference_at(r.call.problem, r.before, w.at);
    w.expected = exact(r) ? round_once(reference.value, type) : reference.value;
    w.got = load(r.output, type, offset_of(r.call.problem, w.at));
    w.terms = reference.terms;
    w.bound = exact(r) ? 0 : error_bound(reference, r.call.problem.type, type, r.call.problem.math);
    const double error = std::fabs(w.got - w.expected);
    // Not `error > bound`: NaN must fail. Equal infinities pass.
    const bool good = error <= w.bound || w.got == w.expected;
    w.wrong = good ? 0 : 1;
    w.excess = good ? 0 : std::isnan(error) ? INFINITY : error / std::max(w.bound, 1e-30);
    return w;
}

worst compare(const run &r, const points &which) {
    worst all;
    std::mutex lock;
    const dim piece = std::max<dim>(1, std::min<dim>(256, which.count() / 64));
    for_pieces(which.count(), piece, [&](dim first, dim last) {
        worst mine;
        for (dim i = first; i < last; ++i) {
            const worst one = compare_at(r, which, i);
            if (one.wrong != 0) mine.add(one);
        }
        const std::lock_guard guard(lock);
        all.add(mine);
    });
    return all;
}

/// Elements that hold NaN or infinity, which no filling can cause: never written, or garbage.
dim count_garbage(const run &r) {
    std::atomic<dim> found{0};
    const data_type type = r.call.problem.out_type;
    const auto scan = [&]<typename Word>(Word exponent_mask) {
        const auto *words = static_cast<const Word *>(r.output);
        for_pieces(r.call.elements_of(r.call.output), dim{1} << 17, [&](dim first, dim last) {
            dim here = 0;
            for (dim i = first; i < last; ++i) here += (words[i] & exponent_mask) == exponent_mask;
            found += here;
        });
    };
    if (type == data_type::f32)
        scan(std::uint32_t{0x7f800000U});
    else if (type == data_type::bf16)
        scan(std::uint16_t{0x7f80U});
    else
        scan(std::uint16_t{0x7c00U});
    return found;
}

std::string describe_failure(const run &r, const worst &w, const points &which) {
    const std::string_view name = ops::schema_of(r.c.kind).outputs[0].name;
    return fmt::format("{}: {}{} expected {:.9g}, got {:.9g} ({}; {} terms); {} of {} {} wrong",
        name_of_data(r), name, index_text(r.c, r.call.problem, w.at), w.expected, w.got,
        exact(r)
            ? "must be equal"
            : fmt::format("error {:.3g}, bound {:.3g}", std::fabs(w.got - w.expected), w.bound),
        w.terms, w.wrong, which.count(), which.all() ? "elements" : "sampled elements");
}

/// Memory between the elements of an output must be left alone, and every element be written.
/// Empty if all is well.
std::string judge_gaps(const run &r) {
    const auto at = static_cast<std::size_t>(r.call.output);
    const data_type type = r.call.problem.out_type;
    const std::size_t size = size_of(type);
    if (r.call.strides[at].empty()) return {};
    const std::vector<bool> used = element_places(r.call.shapes[at], r.call.strides[at]);
    const auto *bytes = static_cast<const std::byte *>(r.output);
    for (std::size_t i = 0; i < used.size(); ++i) {
        const bool changed =
            std::memcmp(bytes + i * size, r.output_before.data() + i * size, size) != 0;
        if (!used[i] && changed)
            return fmt::format("{}: memory between the elements of {} was written (offset {})",
                name_of_data(r), ops::schema_of(r.c.kind).outputs[0].name, i);
        if (used[i] && !std::isfinite(load(r.output, type, static_cast<dim>(i))))
            return fmt::format(
                "{}: the element at offset {} of {} is NaN or infinite (never written?)",
                name_of_data(r), i, ops::schema_of(r.c.kind).outputs[0].name);
    }
    return {};
}

/// Empty if all is well.
std::string judge(const run &r, const check_options &options) {
    const points which(r.call.problem, options.exhaustive, options.seed);
    const worst w = compare(r, which);
    if (w.wrong > 0) return describe_failure(r, w, which);
    if (r.how != arrangement::kind::packed) return judge_gaps(r);
    const dim garbage = which.all() ? 0 : count_garbage(r);
    if (garbage > 0)
        return fmt::format("{}: {} elements of {} are NaN or infinite (never written?)",
            name_of_data(r), garbage, ops::schema_of(r.c.kind).outputs[0].name);
    return {};
}

/// Empty if all is well.
std::string judge_diff_bias(const run &r) {
    for (std::size_t i = 0; i < r.diff_bias.size(); ++i) {
        const auto expected = static_cast<float>(
            conv::reference_bias_at(r.call.problem, r.before, static_cast<dim>(i)).value);
        if (r.diff_bias[i] != expected)
            return fmt::format("{}: diff_bias[{}] expected {:.9g}, got {:.9g}", name_of_data(r), i,
                expected, r.diff_bias[i]);
    }
    return {};
}

/// Whether forward ops have a bias, and gradients accumulate and so on; how tensors lie in memory.
struct variant {
    filling::kind what;
    bool bias, extras;
    arrangement::kind how;
};

void *&slot(conv::buffers &b, role which) {
    return which == role::src       ? b.src
           : which == role::weights ? b.weights
           : which == role::bias    ? b.bias
                                    : b.dst;
}

/// Moves packed tensors to where the call wants them. Inputs are the same in both sets of buffers.
void move_apart(run &r) {
    const std::size_t in = size_of(r.call.problem.type), out = size_of(r.call.problem.out_type);
    const auto moved = [&](role which, std::size_t size, const void *packed) -> void * {
        const auto at = static_cast<std::size_t>(which);
        const dims &shape = r.call.shapes[at], &strides = r.call.strides[at];
        r.arranged.push_back(
            scatter(packed, size, shape, strides.empty() ? packed_strides(shape) : strides));
        return r.arranged.back().data();
    };
    for (role which : r.call.inputs)
        slot(r.data, which) = slot(r.before, which) = moved(which, in, slot(r.data, which));
    slot(r.before, r.call.output) = moved(r.call.output, out, slot(r.before, r.call.output));
    r.output = slot(r.data, r.call.output) = moved(r.call.output, out, r.output);
    r.output_before = r.arranged.back();
    if (!r.call.problem.add) return;
    r.data.add = r.output;
    r.before.add = slot(r.before, r.call.output);
}

/// Inputs, and what outputs hold before the run.
void prepare(run &r, tensor_store &store) {
    // The largest of the three passes, so that they share tensors.
    conv::problem any = r.call.problem;
    for (const auto pass :
        {conv::pass::forward, conv::pass::backward_data, conv::pass::backward_weights}) {
        any.what = pass;
        r.with.terms = std::max(r.with.terms, terms_of(any));
    }
    r.data = fill_tensors(r.call, store, r.with);
    r.output = slot(r.data, r.call.output);
    r.before = r.data;
    if (!r.call.problem.accumulate && !r.call.problem.add) return;
    const data_type type = r.call.problem.out_type;
    const dim elements = r.call.elements_of(r.call.output);
    slot(r.before, r.call.output) = store.input(r.call.output, type, elements, r.with);
    std::memcpy(r.output, slot(r.before, r.call.output),
        static_cast<std::size_t>(elements) * size_of(type));
    r.data.add = r.output;
    r.before.add = slot(r.before, r.call.output);
    if (r.call.output != role::weights || r.call.problem.diff_bias == conv::bias_gradient::none)
        return;
    const auto *filled =
        static_cast<const float *>(store.bias(data_type::f32, r.call.bias_elements, r.with));
    r.diff_bias.assign(filled, filled + r.call.bias_elements);
    r.diff_bias_before = r.diff_bias;
    r.data.bias = r.diff_bias.data();
    r.before.bias = r.diff_bias_before.data();
}

/// The arrangement of memory depends on the case, so that many are drawn, but not on the engine, so
/// that failures can be compared.
std::uint64_t seed_of(const op_case &c, const check_options &options) {
    const std::string text = to_text(*c.problem);
    const auto what =
        static_cast<std::uint64_t>(c.kind) * 64 + static_cast<std::uint64_t>(c.type) * 16
        + static_cast<std::uint64_t>(c.data) * 4 + static_cast<std::uint64_t>(c.weights);
    return hash_bytes(text.data(), text.size()) ^ (options.seed * 0x9e3779b97f4a7c15U) ^ what;
}

dim elements_of(const op_call &call) {
    return std::accumulate(call.elements.begin(), call.elements.end(), dim{0});
}

check_result check_data(
    const op_case &c, const engine &on, tensor_store &store, const check_options &options) {
    check_result result;
    constexpr auto integers = filling::kind::integers, reals = filling::kind::reals;
    constexpr auto packed = arrangement::kind::packed, gaps = arrangement::kind::gaps,
                   overlapping = arrangement::kind::overlapping;
    for (const variant v : {variant{integers, true, false, packed}, {integers, false, true, packed},
             {reals, false, false, packed}, {integers, false, true, gaps},
             {integers, true, false, overlapping}}) {
        run r{c, make_call(c, v.bias, v.extras, {v.how, seed_of(c, options)}),
            {v.what, 1, options.seed}, {}, nullptr, {}, {}, {}, {}, v.how, {}, {}};
        if (v.how != packed && elements_of(r.call) > most_arranged) continue;
        prepare(r, store);
        if (v.how != packed) move_apart(r);
        const runner ready(r.call, r.data, on);
        r.plan = ready.describe();
        ready.execute();
        ready.fetch();
        result.detail = judge(r, options);
        if (result.detail.empty()) result.detail = judge_diff_bias(r);
        if (!result.detail.empty()) {
            result.what = outcome::failed;
            result.detail += "\n  plan: " + r.plan;
            return result;
        }
        if (v.what == reals && options.want_bits)
            result.bits =
                hash_bytes(r.output, static_cast<std::size_t>(r.call.elements_of(r.call.output))
                                         * size_of(r.call.problem.out_type));
    }
    return result;
}

}  // namespace

double error_bound(
    const conv::reference_value &exact, data_type input, data_type output, math_mode math) {
    // Rounding errors of a sum behave like a random walk: their total grows with the root of the
    // number of additions, not with the number itself. Six standard deviations leave a false alarm
    // in 10^9 elements; for few terms the strict bound is smaller.
    constexpr double f32_unit = 0x1p-24;
    const auto n = static_cast<double>(exact.terms);
    double relative = f32_unit * std::min(n + 1, 6 * std::sqrt(n) + 2);
    // Operands rounded to bf16: half a unit of bf16 each.
    if (math == math_mode::fast && input == data_type::f32)
        relative += 2.1 * precision_of(data_type::bf16).unit;
    const auto [unit, tiny] = precision_of(output);
    return relative * exact.magnitude * (1 + unit) + unit * std::fabs(exact.value) + tiny;
}

check_result check_case(
    const op_case &c, const engine &on, tensor_store &store, const check_options &options) {
    try {
        const double needed = bytes_of(make_call(c, false, true)),
                     limit = 0.85 * (available_memory() + store.held());
        if (needed > limit)
            return {outcome::skipped,
                fmt::format("needs {}, and {} of memory are available", bytes_text(needed),
                    bytes_text(limit)),
                0};
        return check_data(c, on, store, options);
    } catch (const error &e) {
        const bool memory = e.code() == error_code::out_of_memory;
        return {memory ? outcome::skipped : outcome::failed,
            fmt::format("{}: {}", to_string(e.code()), e.what()), 0};
    } catch (const std::bad_alloc &) {
        return {outcome::skipped, "not enough memory", 0};
    } catch (const std::exception &e) {
        return {outcome::failed, fmt::format("unexpected exception: {}", e.what()), 0};
    }
}

}  // namespace convgrad::cli

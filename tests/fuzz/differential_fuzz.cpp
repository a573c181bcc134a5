// Legal problems on every algorithm and instruction set against the reference, between guard pages.
//
// Whole numbers must come out exactly, real ones within the derived bound; the same bits for any
// number of threads. Problems lean to what goes wrong: tails and remainders of channels, pads
// beyond the kernel, odd strides, tiny channels or none, gaps, inputs that overlap themselves, add
// in place; values to NaN, infinities, subnormals and
// the ends of the range.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <vector>

#include <convgrad/error.hpp>

#include "fuzz/input.hpp"
#include "support/pools.hpp"
#include "support/winograd_bound.hpp"
#include "support/workbench.hpp"

namespace convgrad::fuzz {
namespace {

using conv::pass;
using conv::problem;
using test::role;

constexpr double most_macs = 8e3;

enum class values { integers, reals, special, wide, subnormal };

conv::axis draw_axis(input &in) {
    const dim kernel = in.pick({dim{1}, dim{3}, dim{2}, dim{3}, dim{4}, dim{5}, dim{7}});
    const dim stride = in.pick({dim{1}, dim{1}, dim{2}, dim{2}, dim{3}, dim{4}, dim{5}, dim{9}});
    const dim dilation = in.pick({dim{1}, dim{1}, dim{1}, dim{2}, dim{3}, dim{6}});
    const dim src = in.between(1, 40), extent = dilation * (kernel - 1) + 1;
    // Up to four kernels of padding: most outputs see nothing but it.
    const auto pad = [&] {
        return in.byte() % (in.chance(6) ? 4 * extent + 8 : std::max<dim>(extent, 1));
    };
    const dim begin = pad(), end = std::max(pad(), extent - src - begin);
    conv::axis a = test::make_axis(src, kernel, stride, dilation, begin, end);
    // Fewer outputs than fit: what output_padding leads to.
    a.dst = std::max<dim>(1, a.dst - (in.chance(8) ? in.between(1, 3) : 0));
    return a;
}

dim draw_channels(input &in) {
    // Around the blocks of all instruction sets.
    static constexpr dim near[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 24, 31, 32, 33, 47, 48,
        49, 63, 64, 65, 95, 96, 97, 127, 128, 129, 160, 200};
    return in.pick(near);
}

/// Smaller until it is worth a fuzzer's time.
void shrink(problem &p) {
    while (conv::macs(p) > most_macs) {
        dim *sizes[] = {&p.mb, &p.groups, &p.ic, &p.oc, &p.x[0].dst, &p.x[1].dst, &p.x[2].dst};
        dim &largest = **std::ranges::max_element(sizes, {}, [](const dim *d) { return *d; });
        if (largest == 1) {
            dim *taps[] = {&p.x[0].kernel, &p.x[1].kernel, &p.x[2].kernel};
            dim &most = **std::ranges::max_element(taps, {}, [](const dim *d) { return *d; });
            if (most == 1) return;
            --most;
        } else {
            largest -= (largest + 1) / 3 > 0 ? (largest + 1) / 3 : 1;
        }
    }
}

void draw_extras(input &in, problem &p) {
    p.out_type = p.type;
    if (p.what == pass::backward_weights) {
        if (in.chance(3)) p.out_type = data_type::f32;
        p.diff_bias = in.pick({conv::bias_gradient::none, conv::bias_gradient::none,
            conv::bias_gradient::from_dst, conv::bias_gradient::from_src});
        p.diff_bias_type = in.chance(3) ? data_type::f32 : p.type;
    } else {
        p.bias = in.chance(3);
        p.add = in.chance(5);
        p.relu = in.chance(5);
    }
    p.accumulate = in.chance(4);
    p.math = in.pick({math_mode::accurate, math_mode::strict, math_mode::fast});
}

void draw_layouts(input &in, problem &p) {
    const auto data = [&] { return in.pick(test::all_data_layouts); };
    const auto src = data(), dst = in.chance(4) ? data() : src;
    test::set_layouts(p, src, in.pick(test::all_weights_layouts), dst);
    p.bias_stride = in.chance(5) ? 3 : 1;
    if (p.add && in.chance(3)) {
        problem other = p;
        test::set_layouts(other, data(), test::weights_layout::oix, data());
        p.add_strides = other.add_strides;
    }
}

problem draw_problem(input &in) {
    problem p;
    p.what = in.pick({pass::forward, pass::backward_data, pass::backward_weights});
    p.type = in.pick({data_type::f32, data_type::bf16, data_type::f16});
    p.mb = in.pick({dim{1}, dim{2}, dim{3}, dim{5}, dim{17}});
    p.ic = draw_channels(in);
    p.oc = draw_channels(in);
    if (in.chance(3)) {
        p.groups = in.pick({dim{2}, dim{3}, dim{8}, dim{15}, dim{16}, dim{17}, dim{33}, dim{64}});
        if (in.chance(2)) p.ic = 1;
        if (in.chance(2)) p.oc = in.between(1, 3);
    }
    const dim rank = in.between(1, 3);
    for (auto d = static_cast<std::size_t>(3 - rank); d < 3; ++d) p.x[d] = draw_axis(in);
    shrink(p);
    if (in.chance(24)) (in.chance(2) ? p.ic : p.oc) = 0;
    draw_extras(in, p);
    draw_layouts(in, p);
    if (in.chance(8)) {
        test::rng random(in.byte());
        test::overlap_inputs(random, p);
    }
    return p;
}

bool is_input(const problem &p, role r) {
    const bool gradient = r == role::bias && p.what == pass::backward_weights;
    return r != test::output_of(p) && !gradient && test::span_of(p, r) > 0;
}

/// Replaces some of the inputs' values.
void draw_values(input &in, test::workbench &bench, values kind) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    constexpr double special[] = {
        infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 0, -0.0};
    const bool half = bench.problem().type == data_type::f16;
    test::rng random(in.byte());
    const auto draw = [&](double old) {
        const int exponent = static_cast<int>(random.between(half ? -14 : -70, half ? 9 : 70));
        switch (kind) {
        case values::special:
            return random.chance(0.02) ? special[random.next() % std::size(special)] : old;
        case values::wide:
            return random.chance(0.02) ? std::ldexp(old, half ? 15 : 127)
                                       : std::ldexp(old, exponent);
        case values::subnormal:
            return std::ldexp(old, half ? -20 : random.chance(0.5) ? -130 : -70);
        default:
            return old;
        }
    };
    for (const role r : test::all_roles) {
        if (!is_input(bench.problem(), r)) continue;
        // Elements may share memory: each place once.
        std::vector<bool> drawn(static_cast<std::size_t>(test::span_of(bench.problem(), r)));
        test::for_each_element(test::extents_of(bench.problem(), r), [&](const auto &, dim offset) {
            const auto place = static_cast<std::size_t>(offset);
            if (!drawn[place]) bench.write(r, offset, draw(bench.read(r, offset)));
            drawn[place] = true;
        });
    }
}

/// The workbench takes over the signals of crashes; the fuzzer must hear of them to keep its input.
struct kept_handlers {
    static constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE};
    struct sigaction before[3]{};
    kept_handlers() {
        for (std::size_t i = 0; i < 3; ++i) sigaction(signals[i], nullptr, &before[i]);
    }
    void restore() const {
        for (std::size_t i = 0; i < 3; ++i) sigaction(signals[i], &before[i], nullptr);
    }
};

/// One instruction set most of the time, else all of them. Emulation is slow: more rarely.
std::span<const isa> sets_for(std::uint8_t which) {
    constexpr std::uint64_t never = std::uint64_t{1} << 60;
    if (which % 32 == 31) return test::usable_isas();
    const std::span<const isa> sets =
        which % 16 == 0 ? test::usable_isas() : test::affordable_isas(1, never);
    if (which % 8 == 7) return sets;
    return which % 16 == 0 ? sets.last(1) : sets.subspan(which / 16 % sets.size(), 1);
}

class checker {
public:
    checker() { handlers_.restore(); }

    void check(input &in) {
        const problem p = draw_problem(in);
        const auto kind = in.pick({values::integers, values::reals, values::special, values::wide,
            values::subnormal, values::integers});
        const int threads = static_cast<int>(in.between(1, 5));
        const std::uint8_t which = in.byte();
        const auto side =
            in.chance(2) ? test::guarded_memory::side::begin : test::guarded_memory::side::end;
        bench_.load(p, kind == values::integers ? test::fill::integers : test::fill::reals,
            in.byte(), side);
        gaps_ = in.chance(4);
        draw_values(in, bench_, kind);
        bench_.run_reference();
        for (const isa set : sets_for(which)) check_set(set, threads, kind);
    }

private:
    void compare(isa set, std::string_view algorithm, values kind) {
        const problem &p = bench_.problem();
        const bool loses = p.math == math_mode::fast && p.type == data_type::f32;
        const test::leniency allowed = {.product_error = loses ? 0x1p-14 : 0,
            .overflow = kind == values::wide || p.type == data_type::f16};
        const bool exact = kind == values::integers && !loses && !test::winograd_tile_of(algorithm);
        const std::string difference =
            exact ? bench_.compare_exact()
                  : bench_.compare_bounded(test::leniency_of(bench_, algorithm, allowed));
        if (!difference.empty()) report(set, algorithm, difference);
    }

    void report(isa set, std::string_view algorithm, const std::string &what) const {
        std::string text(to_string(set));
        text.append(" ").append(algorithm).append(": ").append(what);
        require(false, (text + "\n  in " + test::to_text(bench_.problem())).c_str());
    }

    /// One algorithm, or the one that is chosen: the reference's results, whatever the threads.
    std::string check_algorithm(isa set, std::string_view algorithm, int threads, values kind) {
        const test::run_report ran = bench_.run({.max_isa = set, .algorithm = algorithm});
        compare(set, ran.algorithm, kind);
        if (threads > 1) {
            const auto once = bench_.output_bytes();
            bench_.run(
                {.max_isa = set, .threads = threads, .pool = &reversing_, .algorithm = algorithm});
            if (bench_.output_bytes() != once) report(set, ran.algorithm, "threads change bits");
        }
        if (gaps_) {
            const auto poisoned = bench_.output_bytes();
            bench_.fill_gaps(std::byte{0});
            bench_.run({.max_isa = set, .algorithm = algorithm});
            if (bench_.output_bytes() != poisoned) report(set, ran.algorithm, "gaps change bits");
            bench_.fill_gaps(std::byte{0xff});
        }
        return ran.algorithm;
    }

    void check_set(isa set, int threads, values kind) {
        const std::string chosen = check_algorithm(set, {}, threads, kind);
        for (const std::string_view algorithm : cpu::algorithm_names()) {
            if (algorithm == chosen) continue;
            try {
                const auto plan =
                    cpu::make_plan(bench_.problem(), {.max_isa = set, .only_algorithm = algorithm});
                if (plan->instruction_set() != set) continue;  // had its turn with a weaker one
            } catch (const error &e) {
                require(e.code() == error_code::unsupported, e.what());
                continue;
            }
            check_algorithm(set, algorithm, threads, kind);
        }
    }

    bool gaps_ = false;       // whether to try other contents between the inputs' elements
    kept_handlers handlers_;  // before the workbench sets its own
    test::workbench bench_;
    test::reversing_pool reversing_;
};

}  // namespace
}  // namespace convgrad::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static convgrad::fuzz::checker checker;
    convgrad::fuzz::input in(data, size);
    checker.check(in);
    return 0;
}

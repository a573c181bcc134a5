// Which algorithm computes a problem: of those that have their kernels, keep the accuracy that the
// math mode asks for and fit, the one with the lowest prediction. Within two parts of a hundred
// predictions mean nothing: there the least workspace decides, then the order of the list. Of rows
// that differ in the length of vectors only, the first that the machine has stands for all.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>

#include <convgrad/error.hpp>

#include "cpu/algorithm.hpp"
#include "cpu/fits.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/work_cut.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

using conv::problem;
using engines::accuracy;

constexpr double as_fast = 1.02;

/// What predictions are compared by. Threads that share few pieces wait for the last of them, for
/// half a piece on average; drivers whose pieces are not counted cut four or more for each. Counted
/// for as many threads as there is work for, never for those at hand: bits would follow their
/// number.
double weight_of(const prediction &cost) {
    constexpr double least_seconds = 20e-6;            // of a thread's share
    constexpr double fewest = 16, most_waiting = 0.5;  // which bounds what one thread may lose
    constexpr double of_a_piece = 0.5, usual = 0.25;   // pieces for a thread: 4
    const double threads = std::min<double>(most_cut_threads, cost.seconds / least_seconds);
    if (cost.pieces == 0 || threads < fewest) return cost.seconds;
    const double waiting = of_a_piece * ((threads - 1) / cost.pieces - usual);
    return cost.seconds * (1 + std::clamp(waiting, 0.0, most_waiting));
}

constexpr std::size_t most_rows = 64;

/// A row that can compute the problem.
struct candidate {
    const algorithm *row = nullptr;
    const kernel_set *kernels = nullptr;
    prediction cost{};
    double weight = 0;  // of the cost, by which it is compared
    accuracy kept = accuracy::strict;
    bool running = true;      // false: could not be built, or
    bool spare = false;       // the same algorithm is there with longer vectors,
    bool half_empty = false;  // or with shorter ones that are better filled
};

/// The rows that can compute a problem, and, where somebody asks, why the others cannot.
class candidates {
public:
    candidates(const problem &p, const plan_limits &limits, std::vector<engines::verdict> *verdicts)
        : p_(p), limits_(limits), sizes_(p), verdicts_(verdicts) {
        for (const algorithm &row : all_algorithms()) weigh(row);
    }

    /// The one to try next, or null: the fastest, or of those as fast the one that takes least
    /// memory.
    candidate *next() {
        candidate *best = nullptr;
        for (candidate &c : rows())
            if (c.running && (best == nullptr || c.weight < best->weight)) best = &c;
        if (best == nullptr) return nullptr;
        const double most = as_fast * best->weight;
        candidate *leanest = nullptr;
        for (candidate &c : rows())
            if (c.running && c.weight <= most
                && (leanest == nullptr || c.cost.bytes < leanest->cost.bytes))
                leanest = &c;
        return leanest;
    }

    [[nodiscard]] std::unique_ptr<plan> build(const candidate &c) const {
        auto made = c.row->how->build(c.row->name, p_, limits_, *c.kernels);
        check_workspace(p_.what == conv::pass::backward_bias ? "bias gradient" : "convolution",
            made->workspace(), limits_.workspace);
        made->set_choice(c.cost.seconds, c.kept, error_of(*c.row));
        return made;
    }

    /// `c` cannot be built within the limits. Shorter vectors may take less.
    void drop(candidate &c, const std::string &why) {
        add_verdict(c, why);
        c.running = false;
        for (candidate *same = &c + 1; same != rows_.data() + count_; ++same) {
            if (!same->spare || same->row->name != c.row->name) break;
            same->spare = false;
            same->running = true;
            set_cost(*same, same->row->how->predict(sizes_, *same->kernels));
            break;
        }
    }

    /// Verdicts on all that lost against `taken`.
    void explain(const candidate &taken) {
        if (verdicts_ == nullptr) return;
        for (const candidate &c : rows()) {
            if (&c == &taken || (!c.running && !c.spare)) continue;
            const double times = c.weight / taken.weight;
            char text[64] = "the same with shorter vectors";
            if (c.half_empty)
                std::snprintf(text, sizeof text, "%s", "would leave its vectors half empty");
            else if (times > as_fast)
                std::snprintf(text, sizeof text, "predicted %.*f times as long",
                    times < 1.1   ? 2
                    : times < 100 ? 1
                                  : 0,
                    times);
            else if (!c.spare)
                std::snprintf(text, sizeof text, "as fast, but %s",
                    c.cost.bytes > taken.cost.bytes ? "takes more workspace" : "later in the list");
            add_verdict(c, text);
        }
    }

private:
    std::span<candidate> rows() { return {rows_.data(), count_}; }

    void set_cost(candidate &c, const prediction &cost) const {
        c.cost = cost;
        // Cores with a matrix engine take pairs of bf16 at half the rate of f32: 1.9 times what the
        // rates say (3,000 cases of an Intel Xeon, beside the FMA kernels).
        if (c.kernels->format == operand_format::dot2 && limits_.max_isa.include(isa::amx_bf16))
            c.cost.seconds *= 1.9;
        c.weight = weight_of(c.cost);
    }

    [[nodiscard]] double error_of(const algorithm &row) const {
        return row.how->error == nullptr ? 0 : row.how->error(sizes_.p);
    }

    void add_verdict(const candidate &c, const std::string &why) const {
        if (verdicts_ != nullptr)
            verdicts_->push_back({c.row->name, to_string(c.row->set), c.cost.seconds, c.kept,
                error_of(*c.row), why});
    }

    void weigh(const algorithm &row) {
        candidate c;
        c.row = &row;
        std::string reason;
        if (!accepts(row, c, verdicts_ == nullptr ? nullptr : &reason)) {
            if (verdicts_ != nullptr)
                verdicts_->push_back(
                    {row.name, to_string(row.set), 0, c.kept, 0, std::move(reason)});
            return;
        }
        const bool random = limits_.random_estimates != 0;
        c.spare = !random && count_ > 0 && rows_[count_ - 1].row->name == row.name;
        const bool replaces = c.spare && is_better_filled(c, rows_[count_ - 1]);
        if (replaces) {
            rows_[count_ - 1].running = c.spare = false;
            rows_[count_ - 1].spare = rows_[count_ - 1].half_empty = true;
        }
        c.running = !c.spare;
        if (replaces)
            set_cost(c, rows_[count_ - 1].cost);
        else if (random)
            set_cost(c, {random_estimate(row), 0});
        else if (!c.spare || verdicts_ != nullptr)
            set_cost(c, row.how->predict(sizes_, *c.kernels));
        if (count_ < most_rows) rows_[count_++] = c;
    }

    /// Half empty vectors take as long as full ones of half the length, and need masks (16
    /// depthwise channels with AVX-512: 1.4 to 1.9 times as long as with AVX2). Who asks by name
    /// gets the longest; portable vectors round products by themselves and are no match.
    [[nodiscard]] bool is_better_filled(const candidate &shorter, const candidate &longer) const {
        const auto fills = shorter.row->how->fills;
        return fills != nullptr && limits_.only_algorithm.empty() && longer.running
               && shorter.row->set != isa::portable && !fills(sizes_, *longer.kernels)
               && fills(sizes_, *shorter.kernels);
    }

    bool accepts(const algorithm &row, candidate &c, std::string *why) const {
        const bool asked = !limits_.only_algorithm.empty();
        if (asked && limits_.only_algorithm != row.name) return refuse(why, "not asked for");
        if (!limits_.max_isa.include(row.set))
            return refuse(why, "needs ", to_string(row.set), ", but at most ",
                to_string(name_of(limits_.max_isa)), " may be used");
        c.kernels = find_kernels(row.set, row.format, p_.type, p_.math);
        if (c.kernels == nullptr) return refuse(why, "no kernels for ", to_string(p_.type));
        if (!row.how->fits(sizes_, *c.kernels, why)) return false;
        c.kept = row.how->keeps(sizes_.p, *c.kernels);
        if (!asked && !engines::is_allowed(c.kept, p_.math))
            return refuse(why, "accuracy is ", to_string(engines::mode_of(c.kept)),
                " for this problem, the math mode asks for ", to_string(p_.math));
        return true;
    }

    [[nodiscard]] double random_estimate(const algorithm &row) const {
        std::uint64_t h = limits_.random_estimates;
        const auto mix = [&h](std::uint64_t v) {
            h = (h ^ v) * 0x9e3779b97f4a7c15U;
            h ^= h >> 32;
        };
        mix(static_cast<std::uint64_t>(row.set));
        for (const char c : row.name) mix(static_cast<unsigned char>(c));
        mix(0);
        return 1e-6 * static_cast<double>(1 + (h >> 48));
    }

    const problem &p_;
    const plan_limits &limits_;
    problem_sizes sizes_;
    std::vector<engines::verdict> *verdicts_;
    std::array<candidate, most_rows> rows_;
    std::size_t count_ = 0;
};

}  // namespace

std::unique_ptr<const plan> make_plan(
    const problem &p, const plan_limits &limits, std::vector<engines::verdict> *verdicts) {
    candidates all(p, limits, verdicts);
    std::optional<workspace_shortage> least;
    while (candidate *best = all.next()) {
        try {
            auto made = all.build(*best);
            all.explain(*best);
            return made;
        } catch (const workspace_shortage &e) {
            // Another row may do with less.
            if (!least || e.need() < least->need()) least = e;
            all.drop(*best, e.what());
        }
    }
    if (least) throw workspace_shortage(*least);
    throw error(error_code::unsupported,
        "no algorithm \"" + std::string(limits.only_algorithm) + "\" for this problem");
}

std::vector<std::string_view> algorithm_names() {
    std::vector<std::string_view> names;
    for (const algorithm &a : all_algorithms())
        if (names.empty() || names.back() != a.name) names.push_back(a.name);
    return names;
}

}  // namespace convgrad::cpu

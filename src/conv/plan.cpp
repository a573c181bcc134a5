#include "conv/plan.hpp"

#include <convgrad/error.hpp>

#include "conv/simplify.hpp"
#include "cpu/channel_sums.hpp"
#include "cpu/depthwise.hpp"
#include "cpu/depthwise_planes.hpp"
#include "cpu/folded_data.hpp"
#include "cpu/folded_weights.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/merged_weights.hpp"
#include "cpu/narrow_data.hpp"
#include "cpu/narrow_weights.hpp"
#include "cpu/pointwise.hpp"
#include "cpu/tiled_data.hpp"
#include "cpu/tiled_weights.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::conv {
namespace {

using cpu::kernel_set;
using cpu::operand_format;

/// Best fma kernels up to `most`.
const kernel_set *best_fma(isa most) {
    for (isa set : {isa::avx512, isa::avx2, isa::portable})
        if (set <= most) return cpu::find_kernels(set, operand_format::fma, data_type::f32, {});
    return nullptr;
}

/// Of both gradients of a layer: the tensor that they share, and the other, read and written.
double joint_bytes(const problem &p) {
    double src = static_cast<double>(p.ic), dst = static_cast<double>(p.oc);
    for (const axis &x : p.x) {
        src *= static_cast<double>(x.src);
        dst *= static_cast<double>(x.dst);
    }
    return static_cast<double>(size_of(p.type)) * static_cast<double>(p.mb * p.groups)
           * (p.what == pass::forward ? src + 2 * dst : 2 * src + dst);
}

/// Whether the tensors exceed what caches hold from one gradient to the other, the one that both
/// read is a fair share of them, and arithmetic does not take so much longer than memory that
/// nothing is left to gain. Groups that lie side by side are read in short runs, which costs memory
/// twice its time.
bool bound_by_memory(const problem &p, const kernel_set &kernels) {
    constexpr double cached = 16 << 20, bytes_per_second = 12e9;
    const double memory = joint_bytes(p) / bytes_per_second;
    const double arithmetic = 2 * macs(p) / cpu::nominal_speed(kernels);
    const bool scattered = p.groups > 1 && p.src.c == 1;
    const dim shared = p.what == pass::forward ? p.ic : p.oc, other = p.ic + p.oc - shared;
    const bool depthwise = p.ic == 1;
    return joint_bytes(p) > cached && (depthwise || shared >= other)
           && arithmetic < (scattered ? 8 : 4) * memory;
}

/// A driver behind the interface of a plan, and the bias gradient beside it.
template <typename Driver>
class driver_plan final : public plan {
public:
    template <typename... Args>
    driver_plan(std::string_view name, const problem &p, const plan_limits &limits,
        const kernel_set &kernels, Args... exact)
        : name_(name), set_(kernels.set), threads_(threads_for(p, limits, kernels)),
          worthwhile_(cpu::cut_threads(p, kernels)),
          driver_(simplify(p), kernels, exact..., threads_, limits.workspace),
          bias_(p, *best_fma(kernels.set), sums_of(driver_), limits.workspace),
          bytes_(joint_bytes(p)),
          worth_joining_(p.what == pass::backward_weights || bound_by_memory(p, kernels)) {}

    [[nodiscard]] std::string_view algorithm() const override { return name_; }
    [[nodiscard]] isa instruction_set() const override { return set_; }
    // The two run one after the other in the same memory.
    [[nodiscard]] std::size_t workspace() const override {
        return std::max(driver_.workspace(), bias_.workspace());
    }
    [[nodiscard]] std::string describe() const override { return driver_.describe(); }
    [[nodiscard]] cpu::work_cut cut(int threads) const override {
        cpu::work_list work = driver_.work();
        bias_.add_work(work, threads_);
        cpu::work_cut cut = cpu::cut_work(work, threads);
        cut.worthwhile = worthwhile_;
        return cut;
    }
    void execute(
        const buffers &data, void *workspace, const cpu::executor &threads) const override {
        const cpu::executor mine = threads.limited(threads_);
        driver_.execute(data, static_cast<char *>(workspace), mine);
        bias_.execute(data, static_cast<char *>(workspace), mine);
    }

    [[nodiscard]] std::size_t joint_workspace() const override {
        if constexpr (requires { driver_.joins(); })
            if (driver_.joins() && balanced(sums_of(driver_)) && bias_.follows())
                return driver_bytes() + whole_lines(bias_.workspace() + 64);
        return 0;
    }
    [[nodiscard]] bool worth_joining() const override { return worth_joining_; }
    void start(const buffers &data, void *workspace, const cpu::executor &threads,
        cpu::joint_pass &pass) const override {
        char *memory = static_cast<char *>(workspace);
        if constexpr (requires { driver_.sums(); }) {
            pass.sums = driver_.start(data, memory, threads.limited(threads_));
            start_bias(data, memory + driver_bytes(), pass.sums);
        } else if constexpr (requires { driver_.joins(); }) {
            pass.data = driver_.start(data, memory, threads.limited(threads_));
            pass.bytes = bytes_;
        }
    }

private:
    static std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
    [[nodiscard]] std::size_t driver_bytes() const { return whole_lines(driver_.workspace()); }

    static cpu::sum_cut sums_of(const Driver &driver) {
        if constexpr (requires { driver.sums(); })
            if (driver.joins()) return driver.sums();
        return {};
    }
    /// Whether the parts of a weights gradient, which a joint pass hands out, keep all threads
    /// busy.
    [[nodiscard]] bool balanced(const cpu::sum_cut &cut) const {
        return cut.parts == 0 || threads_ == 1
               || cpu::fair_share(cut.parts * cut.groups, 1, threads_) >= cpu::fair_enough;
    }
    void start_bias(const buffers &data, char *memory, cpu::sum_walk &sums) const {
        auto run = std::move(sums.run);
        sums.run = [this, &data, memory, run = std::move(run)](
                       int worker, dim part, dim group, dim first, dim last) {
            run(worker, part, group, first, last);
            bias_.add_piece(data, memory, part, group, first, last);
        };
        auto finish = std::move(sums.finish);
        sums.finish = [this, &data, memory, finish = std::move(finish)](const cpu::executor &pool) {
            finish(pool);
            bias_.finish(data, memory);
        };
    }
    static int threads_for(const problem &p, const plan_limits &limits, const kernel_set &kernels) {
        if (!limits.save_threads) return limits.threads;
        return cpu::worthwhile_threads(p, kernels, limits.threads);
    }

    std::string_view name_;
    isa set_;
    int threads_;
    int worthwhile_;
    Driver driver_;
    cpu::channel_sums bias_;
    double bytes_;        // of a joint pass
    bool worth_joining_;  // the data gradient decides
};

enum class shape : std::uint8_t { depthwise, planes, narrow, pointwise, folded, merged, tiled };

struct algorithm {
    std::string_view name;
    shape form;
    operand_format format;
    isa set;
};

/// In order of preference; the first that fits is taken. The last fits every legal problem.
constexpr algorithm algorithms[] = {
    {"depthwise.fma", shape::depthwise, operand_format::fma, isa::avx512},
    {"depthwise.fma", shape::depthwise, operand_format::fma, isa::avx2},
    {"depthwise.fma", shape::depthwise, operand_format::fma, isa::portable},
    {"planes.fma", shape::planes, operand_format::fma, isa::avx512},
    {"planes.fma", shape::planes, operand_format::fma, isa::avx2},
    {"planes.fma", shape::planes, operand_format::fma, isa::portable},
    {"folded.amx", shape::folded, operand_format::amx, isa::amx_bf16},
    {"merged.amx", shape::merged, operand_format::amx, isa::amx_bf16},
    {"merged.dot2", shape::merged, operand_format::dot2, isa::avx512_bf16},
    {"narrow.fma", shape::narrow, operand_format::fma, isa::avx512},
    {"narrow.fma", shape::narrow, operand_format::fma, isa::avx2},
    {"narrow.fma", shape::narrow, operand_format::fma, isa::portable},
    {"folded.dot2", shape::folded, operand_format::dot2, isa::avx512_bf16},
    {"folded.fma", shape::folded, operand_format::fma, isa::avx512},
    {"folded.fma", shape::folded, operand_format::fma, isa::avx2},
    {"folded.fma", shape::folded, operand_format::fma, isa::portable},
    {"pointwise.fma", shape::pointwise, operand_format::fma, isa::avx512},
    {"pointwise.fma", shape::pointwise, operand_format::fma, isa::avx2},
    {"pointwise.fma", shape::pointwise, operand_format::fma, isa::portable},
    {"tiled.amx", shape::tiled, operand_format::amx, isa::amx_bf16},
    {"tiled.dot2", shape::tiled, operand_format::dot2, isa::avx512_bf16},
    {"tiled.fma", shape::tiled, operand_format::fma, isa::avx512},
    {"tiled.fma", shape::tiled, operand_format::fma, isa::avx2},
    {"tiled.fma", shape::tiled, operand_format::fma, isa::portable},
};

/// Channels that would run along a vector of the product form, which wastes the rest of it.
dim vector_channels(const problem &p) {
    if (p.what == pass::forward) return p.oc;
    return p.what == pass::backward_data ? p.ic : std::max(p.ic, p.oc);
}

/// Products that an output sums up away from the borders (by the phase with the fewest taps).
dim shortest_sum(const problem &p) {
    dim terms = p.what == pass::forward ? p.ic : p.what == pass::backward_data ? p.oc : p.mb;
    for (const axis &x : p.x)
        terms *= p.what == pass::forward         ? x.kernel
                 : p.what == pass::backward_data ? std::max<dim>(1, x.kernel / x.stride)
                                                 : x.dst;
    return terms;
}

/// Products of split f32 values drop what lies below their last bit, which in a sum of one or two
/// shows: up to 1.5 half units instead of 1. From eight terms on f32's own rounding is larger.
constexpr dim shortest_split_sum = 8;

/// Rough cycles of a core for a problem with the matrix engine, and with vectors. Tiles waste what
/// channels do not fill; splitting f32 or f16 into parts costs as much as many products.
struct engine_cycles {
    double matrix, vectors;
};

engine_cycles estimate_cycles(const problem &p, const kernel_set &amx) {
    const auto share = [](dim channels, dim tile) {
        const dim whole = (channels + tile - 1) / tile * tile;
        return whole == 0 ? 1 : static_cast<double>(channels) / static_cast<double>(whole);
    };
    const bool weights = p.what == pass::backward_weights;
    const double products = amx.parts == 1 ? 1 : amx.parts == 2 ? 4 : 6;
    const double used = weights                   ? share(p.oc, 16) * share(p.ic, 16)
                        : p.what == pass::forward ? share(p.ic, 32) * share(p.oc, 16)
                                                  : share(p.oc, 32) * share(p.ic, 16);
    const auto ic = static_cast<double>(p.ic), oc = static_cast<double>(p.oc);
    double macs = ic * oc, src = ic, dst = oc;
    for (const axis &x : p.x) {
        macs *= static_cast<double>(x.dst) * static_cast<double>(x.kernel);
        src *= static_cast<double>(x.src);
        dst *= static_cast<double>(x.dst);
    }
    // Cycles an element, and multiply-adds of vectors a cycle: fitted to 1x1 and 3x3 layers.
    const double data = p.src.c == 1 ? 0.7 : 0.9;
    const double split = amx.parts == 1   ? 0
                         : amx.parts == 2 ? (weights ? 1.2 : 0.7 * data)
                                          : (weights ? 4 : data);
    const double speed = p.type == data_type::bf16 ? 70 : amx.parts > 1 ? 27 : 35;
    return {macs * products / (512 * used) + split * (src + dst), macs / speed};
}

/// Whether the matrix engine is there and faster than vectors.
bool suits_matrix(const problem &p, const plan_limits &limits) {
    if (limits.max_isa < isa::amx_bf16) return false;
    const kernel_set *amx = cpu::find_kernels(isa::amx_bf16, operand_format::amx, p.type, p.math);
    if (amx == nullptr) return false;
    const engine_cycles cycles = estimate_cycles(p, *amx);
    return cycles.matrix <= cycles.vectors;
}

/// Whether few channels leave so much of a tile empty that vectors are faster, or (vectors along
/// positions) the other way round.
std::string refuse_by_speed(const algorithm &a, const problem &p, const plan_limits &limits) {
    if (limits.max_isa < isa::amx_bf16) return {};
    const kernel_set *amx = cpu::find_kernels(isa::amx_bf16, operand_format::amx, p.type, p.math);
    if (amx == nullptr) return {};
    const bool enough = suits_matrix(p, limits);
    if (a.form == shape::tiled && a.format == operand_format::amx && !enough)
        return amx->parts > 1 ? "splitting, or half empty tiles, would cost more than tiles save"
                              : "few channels leave most of a tile empty";
    if (a.form != shape::tiled && enough) return "the matrix engine takes as few channels as these";
    return {};
}

/// Why `a` cannot run `p`; empty if it can.
std::string refuse(const algorithm &a, const problem &p, const plan_limits &limits) {
    const bool asked = !limits.only_algorithm.empty();
    if (asked && limits.only_algorithm != a.name) return "not asked for";
    if (a.set > limits.max_isa)
        return "needs " + std::string(to_string(a.set)) + ", but at most "
               + std::string(to_string(limits.max_isa)) + " may be used";
    const kernel_set *kernels = cpu::find_kernels(a.set, a.format, p.type, p.math);
    if (kernels == nullptr) return "no kernels for " + std::string(to_string(p.type));
    if (a.form == shape::depthwise) return cpu::refuse_depthwise(p);
    if (a.form == shape::planes) return cpu::refuse_planes(p);
    if (a.format == operand_format::amx && p.type == data_type::f32 && p.math == math_mode::accurate
        && !asked && shortest_sum(p) < shortest_split_sum)
        return "sums of " + std::to_string(shortest_sum(p))
               + " products are more exact without splitting";
    if (a.form == shape::folded && p.what == pass::backward_weights
        && a.format == operand_format::fma) {
        const bool pairs = p.type == data_type::bf16 && limits.max_isa >= isa::avx512_bf16;
        if (!asked && pairs && (suits_matrix(p, limits) || !cpu::folding_beats_pairs(p, *kernels)))
            return "products of bf16 pairs are faster";
        return cpu::refuse_folded_weights(simplify(p), asked);
    }
    if (a.form == shape::pointwise) {
        // Narrow vectors leave less of the last one empty, but are no reason to go without wide
        // ones.
        if (!asked && a.set < best_fma(limits.max_isa)->set) return "wider vectors are there";
        std::string reason = cpu::refuse_pointwise(simplify(p), *kernels, limits.workspace, asked);
        return reason.empty() && !asked ? refuse_by_speed(a, p, limits) : reason;
    }
    if (a.form == shape::folded) return cpu::refuse_folded(simplify(p), *kernels, asked);
    if (a.form == shape::merged) return cpu::refuse_merged(p, *kernels, asked);
    if (std::string reason = refuse_by_speed(a, p, limits); !asked && !reason.empty())
        return reason;
    if (a.form == shape::narrow && !asked && 2 * vector_channels(p) > kernels->lanes)
        return std::to_string(vector_channels(p))
               + " channels per group fill more than half of the " + std::to_string(kernels->lanes)
               + " lanes of a vector";
    return {};
}

std::unique_ptr<const plan> build(const algorithm &a, const problem &p, const plan_limits &limits) {
    const kernel_set &kernels = *cpu::find_kernels(a.set, a.format, p.type, p.math);
    const kernel_set *exact = a.format == operand_format::fma ? nullptr : best_fma(a.set);
    const bool weights = p.what == pass::backward_weights;
    if (a.form == shape::depthwise && weights)
        return std::make_unique<driver_plan<cpu::depthwise_weights>>(a.name, p, limits, kernels);
    if (a.form == shape::depthwise)
        return std::make_unique<driver_plan<cpu::depthwise_data>>(a.name, p, limits, kernels);
    if (a.form == shape::folded && weights)
        return std::make_unique<driver_plan<cpu::folded_weights>>(a.name, p, limits, kernels);
    if (a.form == shape::folded)
        return std::make_unique<driver_plan<cpu::folded_data>>(a.name, p, limits, kernels, exact);
    if (a.form == shape::merged)
        return std::make_unique<driver_plan<cpu::merged_weights>>(
            a.name, p, limits, kernels, exact);
    if (a.form == shape::planes && weights)
        return std::make_unique<driver_plan<cpu::plane_weights>>(a.name, p, limits, kernels);
    if (a.form == shape::planes)
        return std::make_unique<driver_plan<cpu::plane_data>>(a.name, p, limits, kernels);
    if (a.form == shape::pointwise)
        return std::make_unique<driver_plan<cpu::pointwise_data>>(a.name, p, limits, kernels);
    if (a.form == shape::narrow && weights)
        return std::make_unique<driver_plan<cpu::narrow_weights>>(a.name, p, limits, kernels);
    if (a.form == shape::narrow)
        return std::make_unique<driver_plan<cpu::narrow_data>>(a.name, p, limits, kernels);
    if (weights)
        return std::make_unique<driver_plan<cpu::tiled_weights>>(a.name, p, limits, kernels, exact);
    return std::make_unique<driver_plan<cpu::tiled_data>>(a.name, p, limits, kernels, exact);
}

}  // namespace

std::unique_ptr<const plan> make_plan(
    const problem &p, const plan_limits &limits, std::vector<refusal> *refusals) {
    std::unique_ptr<const plan> chosen;
    for (const algorithm &a : algorithms) {
        std::string reason = refuse(a, p, limits);
        if (reason.empty() && chosen) reason = "ranked lower";
        if (reason.empty()) {
            chosen = build(a, p, limits);
            cpu::check_workspace("convolution", chosen->workspace(), limits.workspace);
            if (refusals == nullptr) return chosen;
            continue;
        }
        if (refusals != nullptr) refusals->push_back({a.name, a.set, std::move(reason)});
    }
    if (!chosen)
        throw error(error_code::unsupported,
            "no algorithm \"" + std::string(limits.only_algorithm) + "\" for this problem");
    return chosen;
}

std::vector<std::string_view> algorithm_names() {
    std::vector<std::string_view> names;
    for (const algorithm &a : algorithms)
        if (names.empty() || names.back() != a.name) names.push_back(a.name);
    return names;
}

}  // namespace convgrad::conv

// The algorithms of the CPU backend: one list that drives selection, explain and the tests.
#include <array>

#include <convgrad/error.hpp>

#include "conv/simplify.hpp"
#include "cpu/bias_plan.hpp"
#include "cpu/depthwise.hpp"
#include "cpu/depthwise_planes.hpp"
#include "cpu/driver_plan.hpp"
#include "cpu/folded_data.hpp"
#include "cpu/folded_weights.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/long_kernel.hpp"
#include "cpu/merged_weights.hpp"
#include "cpu/narrow_data.hpp"
#include "cpu/narrow_weights.hpp"
#include "cpu/pointwise.hpp"
#include "cpu/tiled_data.hpp"
#include "cpu/tiled_weights.hpp"
#include "cpu/winograd_data.hpp"
#include "cpu/winograd_weights.hpp"
#include "cpu/workspace_limit.hpp"

namespace convgrad::cpu {
namespace {

using conv::axis;
using conv::pass;
using conv::problem;
using conv::simplify;

enum class shape : std::uint8_t {
    unlisted,
    depthwise,
    planes,
    narrow,
    pointwise,
    folded,
    merged,
    winograd,
    tiled,
    sums,
};

/// One way to compute, with operands of one format.
struct method {
    std::string_view name;
    shape form;
    operand_format format;
    winograd_tile tile = {};
};

/// In order of preference; the first that fits is taken. `sums` fits bias gradients, the last fits
/// every convolution.
constexpr method methods[] = {
    {"sums.fma", shape::sums, operand_format::fma},
    {"long.fma", shape::unlisted, operand_format::fma},
    {"depthwise.fma", shape::depthwise, operand_format::fma},
    {"planes.fma", shape::planes, operand_format::fma},
    {"folded.amx", shape::folded, operand_format::amx},
    {"merged.amx", shape::merged, operand_format::amx},
    {"merged.dot2", shape::merged, operand_format::dot2},
    {"narrow.fma", shape::narrow, operand_format::fma},
    {"folded.dot2", shape::folded, operand_format::dot2},
    {"folded.fma", shape::folded, operand_format::fma},
    {"pointwise.fma", shape::pointwise, operand_format::fma},
    {"winograd4x4.fma", shape::winograd, operand_format::fma, winograd_tile::f4x4},
    {"winograd4x2.fma", shape::winograd, operand_format::fma, winograd_tile::f4x2},
    {"winograd2x2.fma", shape::winograd, operand_format::fma, winograd_tile::f2x2},
    {"tiled.amx", shape::tiled, operand_format::amx},
    {"tiled.dot2", shape::tiled, operand_format::dot2},
    {"tiled.fma", shape::tiled, operand_format::fma},
};

/// A method with the kernels of an instruction set.
struct algorithm : method {
    isa set = isa::portable;
};

/// Each method with all kernels of its format, best first: what is in kernels.inc runs everywhere.
constexpr auto algorithms = [] {
    constexpr auto fits = [](const method &m, const kernel_line &k) {
        return m.format == k.format;
    };
    constexpr std::size_t count = [&] {
        std::size_t n = 0;
        for (const method &m : methods)
            for (const kernel_line &k : kernel_lines) n += fits(m, k) ? 1 : 0;
        return n;
    }();
    std::array<algorithm, count> rows{};
    std::size_t n = 0;
    for (const method &m : methods)
        for (const kernel_line &k : kernel_lines)
            if (fits(m, k)) rows[n++] = {m, k.set};
    return rows;
}();

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
    if (!limits.max_isa.include(isa::amx_bf16)) return false;
    const kernel_set *amx = find_kernels(isa::amx_bf16, operand_format::amx, p.type, p.math);
    if (amx == nullptr) return false;
    const engine_cycles cycles = estimate_cycles(p, *amx);
    return cycles.matrix <= cycles.vectors;
}

/// Whether few channels leave so much of a tile empty that vectors are faster, or (vectors along
/// positions) the other way round.
std::string refuse_by_speed(const algorithm &a, const problem &p, const plan_limits &limits) {
    if (!limits.max_isa.include(isa::amx_bf16)) return {};
    const kernel_set *amx = find_kernels(isa::amx_bf16, operand_format::amx, p.type, p.math);
    if (amx == nullptr) return {};
    const bool enough = suits_matrix(p, limits);
    if (a.form == shape::tiled && a.format == operand_format::amx && !enough)
        return amx->parts > 1 ? "splitting, or half empty tiles, would cost more than tiles save"
                              : "few channels leave most of a tile empty";
    if (a.form != shape::tiled && enough) return "the matrix engine takes as few channels as these";
    return {};
}

/// Winograd's algorithm, f32 inside.
std::string refuse_tile(const algorithm &a, const problem &p, const plan_limits &limits,
    const kernel_set &kernels, bool asked) {
    const problem simple = simplify(p);
    std::string reason = refuse_winograd(simple, a.tile, kernels, limits.workspace);
    if (asked || !reason.empty()) return reason;
    if (a.set != best_fma(limits.max_isa)->set) return "wider vectors are there";
    if (suits_matrix(p, limits)) return "the matrix engine is there";
    const kernel_set *pairs = find_kernels(isa::avx512_bf16, operand_format::dot2, p.type, p.math);
    const bool dot2 = pairs != nullptr && limits.max_isa.include(isa::avx512_bf16);
    return winograd_rival(simple, a.tile, kernels, nominal_speed(dot2 ? *pairs : kernels));
}

/// Why `a` cannot run `p`; empty if it can.
std::string refuse(const algorithm &a, const problem &p, const plan_limits &limits) {
    const bool asked = !limits.only_algorithm.empty();
    if (asked && limits.only_algorithm != a.name) return "not asked for";
    if (!limits.max_isa.include(a.set))
        return "needs " + std::string(to_string(a.set)) + ", but at most "
               + std::string(to_string(name_of(limits.max_isa))) + " may be used";
    const kernel_set *kernels = find_kernels(a.set, a.format, p.type, p.math);
    if (kernels == nullptr) return "no kernels for " + std::string(to_string(p.type));
    const bool sums = p.what == pass::backward_bias;
    if (a.form == shape::sums) return sums ? "" : "computes bias gradients only";
    if (sums) return "computes convolutions only";
    if (a.form == shape::unlisted) return refuse_long(p, asked);
    if (a.form == shape::depthwise) return refuse_depthwise(p);
    if (a.form == shape::planes) return refuse_planes(p);
    if (a.format == operand_format::amx && p.type == data_type::f32 && p.math == math_mode::accurate
        && !asked && shortest_sum(p) < shortest_split_sum)
        return "sums of " + std::to_string(shortest_sum(p))
               + " products are more exact without splitting";
    if (a.form == shape::folded && p.what == pass::backward_weights
        && a.format == operand_format::fma) {
        const bool pairs = p.type == data_type::bf16 && limits.max_isa.include(isa::avx512_bf16);
        if (!asked && pairs && (suits_matrix(p, limits) || !folding_beats_pairs(p, *kernels)))
            return "products of bf16 pairs are faster";
        return refuse_folded_weights(simplify(p), asked);
    }
    if (a.form == shape::pointwise) {
        // Narrow vectors leave less of the last one empty, but are no reason to go without wide
        // ones.
        if (!asked && a.set != best_fma(limits.max_isa)->set) return "wider vectors are there";
        std::string reason = refuse_pointwise(simplify(p), *kernels, limits.workspace, asked);
        return reason.empty() && !asked ? refuse_by_speed(a, p, limits) : reason;
    }
    if (a.form == shape::folded) return refuse_folded(simplify(p), *kernels, asked);
    if (a.form == shape::merged) return refuse_merged(p, *kernels, asked);
    if (a.form == shape::winograd) return refuse_tile(a, p, limits, *kernels, asked);
    if (std::string reason = refuse_by_speed(a, p, limits); !asked && !reason.empty())
        return reason;
    if (a.form == shape::narrow && !asked && 2 * vector_channels(p) > kernels->lanes)
        return std::to_string(vector_channels(p))
               + " channels per group fill more than half of the " + std::to_string(kernels->lanes)
               + " lanes of a vector";
    return {};
}

std::unique_ptr<const plan> build(const algorithm &a, const problem &p, const plan_limits &limits) {
    const kernel_set &kernels = *find_kernels(a.set, a.format, p.type, p.math);
    const kernel_set *exact = a.format == operand_format::fma ? nullptr : best_fma(a.set);
    if (a.form == shape::sums) return std::make_unique<bias_plan>(a.name, p, limits, kernels);
    const bool weights = p.what == pass::backward_weights;
    if (a.form == shape::unlisted)
        return std::make_unique<driver_plan<long_kernel>>(a.name, p, limits, kernels);
    if (a.form == shape::depthwise && weights)
        return std::make_unique<driver_plan<depthwise_weights>>(a.name, p, limits, kernels);
    if (a.form == shape::depthwise)
        return std::make_unique<driver_plan<depthwise_data>>(a.name, p, limits, kernels);
    if (a.form == shape::folded && weights)
        return std::make_unique<driver_plan<folded_weights>>(a.name, p, limits, kernels);
    if (a.form == shape::folded)
        return std::make_unique<driver_plan<folded_data>>(a.name, p, limits, kernels, exact);
    if (a.form == shape::merged)
        return std::make_unique<driver_plan<merged_weights>>(a.name, p, limits, kernels, exact);
    if (a.form == shape::planes && weights)
        return std::make_unique<driver_plan<plane_weights>>(a.name, p, limits, kernels);
    if (a.form == shape::planes)
        return std::make_unique<driver_plan<plane_data>>(a.name, p, limits, kernels);
    if (a.form == shape::pointwise)
        return std::make_unique<driver_plan<pointwise_data>>(a.name, p, limits, kernels);
    if (a.form == shape::narrow && weights)
        return std::make_unique<driver_plan<narrow_weights>>(a.name, p, limits, kernels);
    if (a.form == shape::narrow)
        return std::make_unique<driver_plan<narrow_data>>(a.name, p, limits, kernels);
    if (a.form == shape::winograd && weights)
        return std::make_unique<driver_plan<winograd_weights>>(a.name, p, limits, kernels, a.tile);
    if (a.form == shape::winograd)
        return std::make_unique<driver_plan<winograd_data>>(a.name, p, limits, kernels, a.tile);
    if (weights)
        return std::make_unique<driver_plan<tiled_weights>>(a.name, p, limits, kernels, exact);
    return std::make_unique<driver_plan<tiled_data>>(a.name, p, limits, kernels, exact);
}

}  // namespace

std::unique_ptr<const plan> make_plan(
    const problem &p, const plan_limits &limits, std::vector<engines::verdict> *verdicts) {
    std::unique_ptr<const plan> chosen;
    for (const algorithm &a : algorithms) {
        std::string reason = refuse(a, p, limits);
        if (reason.empty() && chosen) reason = "ranked lower";
        if (reason.empty()) {
            chosen = build(a, p, limits);
            check_workspace(a.form == shape::sums ? "bias gradient" : "convolution",
                chosen->workspace(), limits.workspace);
            if (verdicts == nullptr) return chosen;
            continue;
        }
        if (verdicts != nullptr)
            verdicts->push_back({a.name, to_string(a.set), 0, std::move(reason)});
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

}  // namespace convgrad::cpu

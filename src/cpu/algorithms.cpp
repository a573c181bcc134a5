// The algorithms of the CPU backend: one list that drives selection, explain and the tests.
#include <algorithm>
#include <array>
#include <type_traits>

#include "cpu/algorithm.hpp"
#include "cpu/bias_plan.hpp"
#include "cpu/depthwise.hpp"
#include "cpu/depthwise_planes.hpp"
#include "cpu/driver_plan.hpp"
#include "cpu/fits.hpp"
#include "cpu/folded_data.hpp"
#include "cpu/folded_weights.hpp"
#include "cpu/gathered.hpp"
#include "cpu/grouped_weights.hpp"
#include "cpu/long_kernel.hpp"
#include "cpu/merged_weights.hpp"
#include "cpu/narrow_data.hpp"
#include "cpu/narrow_weights.hpp"
#include "cpu/packed_pointwise.hpp"
#include "cpu/pointwise.hpp"
#include "cpu/shifted_data.hpp"
#include "cpu/sliced.hpp"
#include "cpu/tiled_data.hpp"
#include "cpu/tiled_weights.hpp"
#include "cpu/turned.hpp"
#include "cpu/winograd_data.hpp"
#include "cpu/winograd_weights.hpp"

namespace convgrad::cpu {
namespace {

using conv::axis;
using conv::pass;
using conv::problem;
using engines::accuracy;

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

/// Sums of products as they are, or of parts that make up the whole (f16), in f32: strict. f32 in
/// three parts is accurate where sums are long enough, in two parts it is fast.
accuracy keeps_sums(const problem &p, const kernel_set &kernels) {
    if (kernels.parts == 1 || p.type != data_type::f32) return accuracy::strict;
    if (kernels.parts == 2 || shortest_sum(p) < shortest_split_sum) return accuracy::fast;
    return accuracy::accurate;
}

/// Six roundings for each tile of up to 32 products of parts: with fewer than eight channels, as
/// many as products or more, and up to twice the error of plain sums.
accuracy keeps_tiled(const problem &p, const kernel_set &kernels) {
    const accuracy kept = keeps_sums(p, kernels);
    if (kept != accuracy::accurate || p.what == pass::backward_weights) return kept;
    const dim channels = p.what == pass::forward ? p.ic : p.oc;
    return channels < shortest_split_sum ? accuracy::fast : kept;
}

/// Of a tile of several groups an output's own has its share only.
accuracy keeps_folded(const problem &p, const kernel_set &kernels) {
    const accuracy kept = keeps_sums(p, kernels);
    if (kept != accuracy::accurate) return kept;
    return folded_groups(p, folded_taps(p)) > 1 ? accuracy::fast : kept;
}

bool fits_sums(const problem_sizes &s, const kernel_set &, std::string *why) {
    return s.p.what == pass::backward_bias || refuse(why, "computes bias gradients only");
}

bool fits_all(const problem_sizes &s, const kernel_set &, std::string *why) {
    return s.p.what != pass::backward_bias || refuse(why, "computes convolutions only");
}

template <auto Fits>
bool fits_simple(const problem_sizes &s, const kernel_set &kernels, std::string *why) {
    return fits_all(s, kernels, why) && Fits(s.p, why);
}

bool fits_folded_form(const problem_sizes &s, const kernel_set &kernels, std::string *why) {
    if (!fits_all(s, kernels, why)) return false;
    const bool gradient = s.weights && !kernels.tiles();
    return gradient ? fits_folded_weights(s.p, why) : fits_folded(s.p, why);
}

/// Weights gradients sum along positions, of which pairs would straddle taps.
bool fits_narrow(const problem_sizes &s, const kernel_set &kernels, std::string *why) {
    if (!fits_all(s, kernels, why)) return false;
    return kernels.format == operand_format::fma || !s.weights || refuse(why, "a weights gradient");
}

bool fits_slices(const problem_sizes &s, const kernel_set &kernels, std::string *why) {
    return fits_all(s, kernels, why) && fits_sliced(s, why);
}

/// Lists of taps, which drivers make with each plan, are a burden when they get long.
template <auto Predict>
prediction with_lists(const problem_sizes &s, const kernel_set &kernels) {
    constexpr double most_listed = 1 << 16, tap_seconds = 1e-6;
    prediction cost = Predict(s, kernels);
    if (s.all_taps > most_listed) cost.seconds += tap_seconds * s.all_taps;
    return cost;
}

std::unique_ptr<plan> make_sums(
    std::string_view name, const problem &p, const plan_limits &limits, const kernel_set &kernels) {
    return std::make_unique<bias_plan>(name, p, limits, kernels);
}

template <typename Driver>
std::unique_ptr<plan> make(
    std::string_view name, const problem &p, const plan_limits &limits, const kernel_set &kernels) {
    // Kernels for what a format cannot represent.
    const kernel_set *exact =
        kernels.format == operand_format::fma ? nullptr : best_fma(kernels.set);
    if constexpr (std::is_constructible_v<Driver, const problem &, const kernel_set &,
                      const kernel_set *, int, std::size_t>)
        return std::make_unique<driver_plan<Driver>>(name, p, limits, kernels, exact);
    else
        return std::make_unique<driver_plan<Driver>>(name, p, limits, kernels);
}

/// The driver for the pass of a problem.
template <typename Data, typename Weights>
std::unique_ptr<plan> make_either(
    std::string_view name, const problem &p, const plan_limits &limits, const kernel_set &kernels) {
    return (
        p.what == pass::backward_weights ? make<Weights> : make<Data>)(name, p, limits, kernels);
}

bool fits_straight(const problem_sizes &s, const kernel_set &kernels, std::string *why) {
    return fits_all(s, kernels, why) && fits_pointwise(s.p, kernels, why);
}

/// Pairs are packed.
template <typename Straight, typename Packed>
std::unique_ptr<plan> make_pointwise(
    std::string_view name, const problem &p, const plan_limits &limits, const kernel_set &kernels) {
    return (kernels.format == operand_format::fma ? make<Straight> : make<Packed>)(name, p, limits,
        kernels);
}

/// The driver for the dense problem: 1×1 on planes.
std::unique_ptr<plan> make_gathered(
    std::string_view name, const problem &p, const plan_limits &limits, const kernel_set &kernels) {
    if (p.what == pass::backward_weights)
        return make<gathered<tiled_weights>>(name, p, limits, kernels);
    const gathered_planes planes(conv::simplify(p));
    return (choose_gathered(planes.dense(), kernels).pointwise
                ? make_pointwise<gathered<pointwise_data>, gathered<packed_pointwise>>
                : make<gathered<tiled_data>>)(name, p, limits, kernels);
}

/// The transforms add roundings of their own.
template <winograd_tile Tile>
accuracy keeps_winograd(const problem &p, const kernel_set &kernels) {
    return winograd_is_accurate(p, Tile, kernels.set) ? accuracy::accurate : accuracy::fast;
}

template <winograd_tile Tile>
double error_of_tile(const problem &p) {
    return winograd_error(p, Tile);
}

template <winograd_tile Tile>
bool fits_tile(const problem_sizes &s, const kernel_set &kernels, std::string *why) {
    return fits_all(s, kernels, why) && fits_winograd(s.p, Tile, kernels, why);
}

template <winograd_tile Tile>
prediction predict_tile(const problem_sizes &s, const kernel_set &kernels) {
    return predict_winograd(s, Tile, kernels);
}

template <winograd_tile Tile>
std::unique_ptr<plan> make_winograd(
    std::string_view name, const problem &p, const plan_limits &limits, const kernel_set &kernels) {
    if (p.what == pass::backward_weights)
        return std::make_unique<driver_plan<winograd_weights>>(name, p, limits, kernels, Tile);
    return std::make_unique<driver_plan<winograd_data>>(name, p, limits, kernels, Tile);
}

template <winograd_tile Tile>
constexpr method winograd{keeps_winograd<Tile>, fits_tile<Tile>, predict_tile<Tile>,
    make_winograd<Tile>, error_of_tile<Tile>};

/// Channels go in pairs of vectors, in data passes a last vector alone. Incomplete ones cost
/// nothing with AVX-512 only, which has masks for them (15 channels with AVX2: 1.1 to 1.9 times as
/// long as with AVX-512). Weights gradients of eight channels take 2 to 4 times as long in vectors
/// of 16 as in one of 8, whether these hold two positions or one.
bool fills_pairs(const problem_sizes &s, const kernel_set &kernels) {
    const auto lanes = static_cast<double>(kernels.lanes);
    const double whole = s.weights ? 2 * lanes : lanes;
    const bool eight = s.weights && s.groups == 8;
    if (eight && kernels.set != isa::portable) return s.groups == lanes;
    return s.groups >= whole || merges_columns(s, kernels)
           || (kernels.set == isa::avx512 && 2 * s.groups > whole);
}

constexpr method depthwise{keeps_sums, fits_simple<fits_depthwise>, with_lists<predict_depthwise>,
    make_either<depthwise_data, depthwise_weights>, nullptr, fills_pairs};
constexpr method planes{keeps_sums, fits_simple<fits_planes>, with_lists<predict_planes>,
    make_either<plane_data, plane_weights>};
constexpr method turned{
    keeps_sums, fits_simple<fits_turned>, with_lists<predict_turned>, make<turned_planes>};
constexpr method sliced{keeps_sums, fits_slices, with_lists<predict_sliced>, make<sliced_groups>};
constexpr method folded{keeps_folded, fits_folded_form, with_lists<predict_folded>,
    make_either<folded_data, folded_weights>};
constexpr method merged{
    keeps_sums, fits_simple<fits_merged>, with_lists<predict_merged>, make<merged_weights>};
constexpr method grouped{
    keeps_sums, fits_simple<fits_grouped>, with_lists<predict_grouped>, make<grouped_weights>};
constexpr method narrow{
    keeps_sums, fits_narrow, with_lists<predict_narrow>, make_either<narrow_data, narrow_weights>};
constexpr method pointwise{
    keeps_sums, fits_straight, predict_pointwise, make_pointwise<pointwise_data, packed_pointwise>};
constexpr method shifted{
    keeps_sums, fits_simple<fits_shifted>, with_lists<predict_shifted>, make<shifted_data>};
constexpr method strided{keeps_sums, fits_simple<fits_gathered>, predict_gathered, make_gathered};
constexpr method tiled{
    keeps_tiled, fits_all, with_lists<predict_tiled>, make_either<tiled_data, tiled_weights>};

constexpr method unlisted{keeps_sums, fits_all, predict_long, make<long_kernel>};

constexpr method sums{keeps_sums, fits_sums, predict_sums, make_sums};

/// One way to compute, with operands of one format.
struct form {
    std::string_view name;
    const method *how;
    operand_format format;
};

constexpr form forms[] = {
    {"sums.fma", &sums, operand_format::fma},
    {"long.fma", &unlisted, operand_format::fma},
    {"depthwise.fma", &depthwise, operand_format::fma},
    {"planes.fma", &planes, operand_format::fma},
    {"turned.fma", &turned, operand_format::fma},
    {"sliced.fma", &sliced, operand_format::fma},
    {"folded.amx", &folded, operand_format::amx},
    {"merged.amx", &merged, operand_format::amx},
    {"merged.dot2", &merged, operand_format::dot2},
    {"grouped.dot2", &grouped, operand_format::dot2},
    {"grouped.fma", &grouped, operand_format::fma},
    {"narrow.dot2", &narrow, operand_format::dot2},
    {"narrow.fma", &narrow, operand_format::fma},
    {"folded.dot2", &folded, operand_format::dot2},
    {"folded.fma", &folded, operand_format::fma},
    {"shifted.fma", &shifted, operand_format::fma},
    {"pointwise.dot2", &pointwise, operand_format::dot2},
    {"pointwise.fma", &pointwise, operand_format::fma},
    {"gathered.dot2", &strided, operand_format::dot2},
    {"gathered.fma", &strided, operand_format::fma},
    {"winograd4x4.fma", &winograd<winograd_tile::f4x4>, operand_format::fma},
    {"winograd4x2.fma", &winograd<winograd_tile::f4x2>, operand_format::fma},
    {"winograd2x2.fma", &winograd<winograd_tile::f2x2>, operand_format::fma},
    {"tiled.amx", &tiled, operand_format::amx},
    {"tiled.dot2", &tiled, operand_format::dot2},
    {"tiled.fma", &tiled, operand_format::fma},
};

/// Each form with all kernels of its format, best first: what is in kernels.inc runs everywhere.
constexpr auto algorithms = [] {
    constexpr std::size_t count = [] {
        std::size_t n = 0;
        for (const form &f : forms)
            for (const kernel_line &k : kernel_lines) n += f.format == k.format ? 1 : 0;
        return n;
    }();
    std::array<algorithm, count> rows{};
    std::size_t n = 0;
    for (const form &f : forms)
        for (const kernel_line &k : kernel_lines)
            if (f.format == k.format) rows[n++] = {f.name, f.how, f.format, k.set};
    return rows;
}();

}  // namespace

std::span<const algorithm> all_algorithms() {
    return algorithms;
}

}  // namespace convgrad::cpu

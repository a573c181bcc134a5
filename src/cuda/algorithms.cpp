// The algorithms of the CUDA engine: one list that drives selection, explain and the tests.
#include <convgrad/error.hpp>

#include "cuda/bulk.hpp"
#include "cuda/columns.hpp"
#include "cuda/cudnn.hpp"
#include "cuda/dense.hpp"
#include "cuda/depthwise.hpp"
#include "cuda/fold.hpp"
#include "cuda/general.hpp"
#include "cuda/pixels.hpp"
#include "cuda/plan.hpp"
#include "cuda/sums.hpp"
#include "cuda/wgmma.hpp"

namespace convgrad::cuda {
namespace {

using conv::problem;
using engines::accuracy;
using engines::plan_limits;

struct algorithm {
    std::string_view name;
    accuracy kept;     // but in `fast`
    bool one_product;  // of f32 in `fast`, not three
    /// Whether an architecture has what it is made of.
    bool (*runs_on)(const architecture &on);
    /// Why it cannot compute a problem; empty if it can. Never a matter of speed.
    std::string (*refuse)(const problem &p);
    prediction (*predict)(const problem &p, const architecture &on, const plan_limits &limits);
    std::unique_ptr<const engines::plan> (*build)(
        std::string_view name, const problem &p, const architecture &on, const plan_limits &limits);
};

std::string refuse_long(const problem &p) {
    return fits_32_bits(p) ? "" : "sizes need 64-bit indices";
}
std::string refuse_nothing(const problem &) {
    return {};
}
bool any(const architecture &) {
    return true;
}
bool has_warpgroups(const architecture &on) {
    return on.warpgroups;
}
template <tile_kind Kind>
prediction predict(const problem &p, const architecture &on, const plan_limits &limits) {
    return predict_general(p, on, Kind, limits);
}
template <tile_kind Kind>
std::unique_ptr<const engines::plan> build(
    std::string_view name, const problem &p, const architecture &on, const plan_limits &limits) {
    return make_general_plan(name, p, on, Kind, limits);
}

constexpr std::string_view cudnn_name = "cuda.cudnn";

/// The fewest predicted seconds win. The first row fits bias gradients and nothing else, the last
/// one every convolution.
constexpr algorithm algorithms[] = {
    {"cuda.sums", accuracy::strict, false, &any, &refuse_sums, &predict_sums, &make_sums_plan},
    {cudnn_name, accuracy::accurate, true, &has_cudnn, &refuse_cudnn, &predict_cudnn,
        &make_cudnn_plan},
    {"cuda.banded", accuracy::accurate, false, &has_banded, &refuse_banded, &predict_banded,
        &make_banded_plan},
    {"cuda.ring", accuracy::strict, false, &any, &refuse_ring, &predict_ring, &make_ring_plan},
    {"cuda.planes", accuracy::strict, false, &any, &refuse_planes, &predict_planes,
        &make_planes_plan},
    {"cuda.quads", accuracy::strict, false, &any, &refuse_quads, &predict_quads, &make_quads_plan},
    {"cuda.staged", accuracy::strict, false, &any, &refuse_staged, &predict_staged,
        &make_staged_plan},
    {"cuda.depthwise", accuracy::strict, false, &any, &refuse_depthwise, &predict_depthwise,
        &make_depthwise_plan},
    {"cuda.sliding", accuracy::strict, false, &any, &refuse_sliding, &predict_sliding,
        &make_sliding_plan},
    {"cuda.pixels", accuracy::accurate, false, &any, &refuse_pixels, &predict_pixels,
        &make_pixels_plan},
    {"cuda.pixels_f32", accuracy::strict, false, &any, &refuse_pixels_f32, &predict_pixels,
        &make_pixels_plan},
    {"cuda.columns", accuracy::accurate, true, &any, &refuse_columns, &predict_columns,
        &make_columns_plan},
    {"cuda.fold", accuracy::accurate, true, &has_warpgroups, &refuse_fold, &predict_fold,
        &make_fold_plan},
    {"cuda.pointwise", accuracy::accurate, true, &has_warpgroups, &refuse_pointwise,
        &predict_pointwise, &make_pointwise_plan},
    {"cuda.halo", accuracy::accurate, false, &has_warpgroups, &refuse_halo, &predict_halo,
        &make_halo_plan},
    {"cuda.bulk", accuracy::accurate, false, &has_warpgroups, &refuse_bulk, &predict_bulk,
        &make_bulk_plan},
    {"cuda.wgmma", accuracy::accurate, true, &has_warpgroups, &refuse_wgmma, &predict_wgmma,
        &make_wgmma_plan},
    {"cuda.dense", accuracy::accurate, true, &any, &refuse_dense, &predict_dense, &make_dense_plan},
    {"cuda.narrow", accuracy::strict, false, &any, &refuse_long, &predict<tile_kind::narrow>,
        &build<tile_kind::narrow>},
    {"cuda.general", accuracy::strict, false, &any, &refuse_long, &predict<tile_kind::general>,
        &build<tile_kind::general>},
    {"cuda.wide", accuracy::strict, false, &any, &refuse_nothing, &predict<tile_kind::long_index>,
        &build<tile_kind::long_index>},
};

accuracy asked_for(math_mode math) {
    return math == math_mode::strict     ? accuracy::strict
           : math == math_mode::accurate ? accuracy::accurate
                                         : accuracy::fast;
}

/// How exact a row is for a problem.
accuracy kept_by(const algorithm &a, const problem &p) {
    return a.one_product && is_fast(p) ? accuracy::fast : a.kept;
}

/// Why a row is out of the question; empty if it is not.
std::string refuse(
    const algorithm &a, const problem &p, const architecture &on, const plan_limits &limits) {
    if (!limits.only_algorithm.empty() && limits.only_algorithm != a.name) return "not asked for";
    if (!a.runs_on(on))
        return a.name == cudnn_name ? "not allowed (engine_options::cudnn)"
                                    : "other instructions than this architecture has";
    if (a.kept > asked_for(p.math)) return "less exact than the math mode asks for";
    if (p.what == conv::pass::backward_bias && a.refuse != &refuse_sums)
        return "computes convolutions only";
    return a.refuse(p);
}

constexpr const char *no_engine = "cuDNN has no deterministic engine for it within the limit";

/// What cuDNN was predicted to do may be more than it can: nobody knows before it is asked.
void check_cudnn(const problem &p, const architecture &on, const plan_limits &limits,
    std::vector<engines::verdict> &verdicts) {
    for (engines::verdict &v : verdicts)
        if (v.algorithm == cudnn_name && v.seconds > 0
            && make_cudnn_plan(cudnn_name, p, on, limits) == nullptr) {
            v.seconds = 0;
            v.reason = no_engine;
        }
}

std::unique_ptr<const engines::plan> make_plan_without_cudnn(const problem &p, architecture on,
    const plan_limits &limits, std::vector<engines::verdict> *verdicts) {
    on.cudnn = false;
    if (verdicts != nullptr) verdicts->clear();
    auto made = make_plan(p, on, limits, verdicts);
    if (verdicts != nullptr)
        for (engines::verdict &v : *verdicts)
            if (v.algorithm == cudnn_name) v.reason = no_engine;
    return made;
}

}  // namespace

std::unique_ptr<const engines::plan> make_plan(const problem &p, const architecture &on,
    const plan_limits &limits, std::vector<engines::verdict> *verdicts) {
    const algorithm *best = nullptr;
    prediction least;
    std::size_t leanest = std::numeric_limits<std::size_t>::max();
    for (const algorithm &a : algorithms) {
        std::string reason = refuse(a, p, on, limits);
        prediction predicted;
        if (reason.empty()) {
            predicted = a.predict(p, on, limits);
            leanest = std::min(leanest, predicted.workspace);
            if (predicted.workspace > limits.workspace)
                reason = "needs a workspace of " + std::to_string(predicted.workspace) + " bytes";
            else if (best == nullptr || predicted.seconds < least.seconds) {
                if (best != nullptr && verdicts != nullptr)
                    verdicts->push_back({.algorithm = best->name,
                        .uses = code_for(on),
                        .seconds = least.seconds,
                        .kept = kept_by(*best, p),
                        .reason = "slower"});
                best = &a;
                least = predicted;
                continue;
            } else
                reason = "slower";
        }
        if (verdicts != nullptr)
            verdicts->push_back({.algorithm = a.name,
                .uses = code_for(on),
                .seconds = predicted.seconds,
                .kept = kept_by(a, p),
                .reason = std::move(reason)});
    }
    if (best != nullptr) {
        auto made = best->build(best->name, p, on, limits);
        const bool here = made != nullptr && best->name != cudnn_name;
        if (here && verdicts != nullptr) check_cudnn(p, on, limits, *verdicts);
        if (made != nullptr) return made;
        return make_plan_without_cudnn(p, on, limits, verdicts);
    }
    if (leanest != std::numeric_limits<std::size_t>::max())
        throw error(error_code::out_of_memory,
            "convolution: the workspace limit is " + std::to_string(limits.workspace)
                + " bytes, but the leanest plan needs " + std::to_string(leanest));
    throw error(error_code::unsupported,
        "no algorithm \"" + std::string(limits.only_algorithm) + "\" for this problem");
}

std::vector<std::string_view> algorithm_names() {
    std::vector<std::string_view> names;
    for (const algorithm &a : algorithms) names.push_back(a.name);
    return names;
}

void plan::execute(std::span<const conv::buffers> data, void *workspace, engines::lane &on) const {
    const lane &mine = static_cast<const lane &>(on);
    const current here(mine.on());
    run(data[0], workspace, mine);
}

}  // namespace convgrad::cuda

// Products of warpgroups (compute capability 9.0): 16-bit types, f32 by three TF32
// products, or by one in `fast`.
#pragma once

#include "cuda/general.hpp"

namespace convgrad::cuda {

constexpr wide wgmma_merged_channels = 32;
/// How many neighbouring groups of few channels are computed as one, with zeros between them, so
/// that they have up to `channels`.
wide merged_groups(const conv::problem &p, wide channels = wgmma_merged_channels);
/// The problem of merged groups.
conv::problem merge(const conv::problem &p, wide groups);

/// Why a problem is none of these; empty if it is.
std::string refuse_wgmma(const conv::problem &p);
prediction predict_wgmma(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_wgmma_plan(std::string_view name, const conv::problem &p,
    const architecture &on, const engines::plan_limits &limits);

/// The same of weights gradients, which the ones above end in; refused as refuse_dense_weights().
prediction predict_wgmma_weights(
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);
std::unique_ptr<const engines::plan> make_wgmma_weights_plan(std::string_view name,
    const conv::problem &p, const architecture &on, const engines::plan_limits &limits);

}  // namespace convgrad::cuda

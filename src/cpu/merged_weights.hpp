// The weights gradient of small groups in 16-bit types: groups are merged until their channels fill
// a vector or a tile, the dense driver computes all products within such a block, and those between
// different groups are dropped. What is dropped costs less than packing channels one by one.
#pragma once

#include <string>

#include "conv/problem.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/parallel.hpp"
#include "cpu/tiled_weights.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// Whether a problem can run in this form; if not, `why` (optional) tells.
bool fits_merged(const conv::problem &p, std::string *why);
/// Groups that share a block.
dim merged_groups(const conv::problem &p);

class merged_weights {
public:
    merged_weights(const conv::problem &p, const kernel_set &kernels, const kernel_set *exact,
        int threads, std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    [[nodiscard]] std::size_t block_bytes() const;

    conv::problem p_;
    dim groups_;            // that share a block
    conv::problem merged_;  // writes f32 blocks to the workspace
    tiled_weights blocks_;
};

}  // namespace convgrad::cpu

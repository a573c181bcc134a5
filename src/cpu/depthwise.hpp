// One channel per group, channels side by side (NXC): every pass reads the tensors in place, vectors
// along channels, and visits only taps that lie inside, so there is no padding to stand for.
#pragma once

#include <string>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/geometry.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/parallel.hpp"
#include "cpu/phases.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// What the depthwise drivers need of a problem; empty: they can run it.
std::string refuse_depthwise(const conv::problem &p);

/// Forward and backward data.
class depthwise_data {
public:
    depthwise_data(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);
    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    struct row;
    void run_row(const conv::buffers &data, const float *weights, const float *bias, float *c,
        dim index) const;
    void run_phase(const row &r, const axis_phase &phase) const;
    void run_positions(const row &r, const axis_phase &phase, dim t0, dim count) const;
    [[nodiscard]] std::size_t shared_bytes() const;
    [[nodiscard]] std::size_t scratch_bytes() const;

    conv::problem p_;
    const kernel_set &kernels_;
    data_roles roles_;
    axis_walk walk_[3];
    dim pitch_ = 0;     // floats of a tap's weights
    dim block_ = 0;     // channels at a time
    dim segment_ = 0;   // positions at a time
    bool empty_ = true;
    int workers_ = 1;
};

/// Backward weights.
class depthwise_weights {
public:
    depthwise_weights(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);
    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    void run_row(const conv::buffers &data, float *partial, dim index) const;
    [[nodiscard]] dim partial_floats() const { return static_cast<dim>(taps_.kept.size()) * pitch_; }

    conv::problem p_;
    const kernel_set &kernels_;
    axis_walk walk_[3];
    gradient_taps taps_;
    dim pitch_ = 0;
    dim rows_ = 0, parts_ = 0;
    int threads_ = 1;
};

}  // namespace convgrad::cpu

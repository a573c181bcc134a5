// Kernels with so many taps that a list of them would be a burden: every pass, nothing listed.
//
// All three passes are one correlation. Along each axis, with r running over what is summed,
//
//     out[l] = Σ_r a[r] · in[start + l·lane + r·step]
//
// where a is the weights (forward, backward data, which has one such sum per residue of the output
// index modulo the stride) or dst (backward weights, whose outputs l are the taps). Vectors run
// along l, and only terms inside the input are visited, so that nothing stands for padding.
#pragma once

#include <string>

#include "conv/problem.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/memory_walk.hpp"
#include "cpu/parallel.hpp"
#include "cpu/work_cut.hpp"

namespace convgrad::cpu {

/// The sum above for one axis and one residue.
struct long_axis {
    dim lanes = 0;                    // values of l
    dim out_first = 0, out_step = 1;  // output index of l
    dim terms = 0;                    // values of r
    dim a_first = 0, a_step = 1;      // index in a of r
    dim start = 0, lane = 1, step = 1, length = 0;
};

class long_kernel {
public:
    /// `kernels` of format fma.
    long_kernel(const conv::problem &p, const kernel_set &kernels, int threads,
        std::size_t workspace_limit);

    [[nodiscard]] std::size_t workspace() const;
    [[nodiscard]] std::string describe() const;
    [[nodiscard]] work_list work() const;
    void execute(const conv::buffers &data, char *workspace, const executor &threads) const;

private:
    /// Strides in elements. Channels and images play different parts: `row` runs over rows of a and
    /// out, `outer` over in and out, `reduced` over a and in.
    struct operand {
        dim group, outer, row, reduced;
        std::array<dim, 3> x;
    };
    struct scratch;
    struct task;
    struct term_range {
        dim first, last;
    };

    [[nodiscard]] static scratch lay_out(memory_walk &memory);
    [[nodiscard]] static std::size_t scratch_bytes();
    [[nodiscard]] task make_task(dim index) const;
    void run_task(const scratch &s, const conv::buffers &data, const task &t) const;
    void add_row(const scratch &s, const task &t, const char *a, const char *in) const;
    void multiply(
        const scratch &s, const task &t, const char *a, const char *in, dim term, dim terms) const;
    void multiply_careful(
        const scratch &s, const task &t, const char *a, const char *in, dim term) const;
    void store(const scratch &s, const conv::buffers &data, const task &t) const;

    conv::problem p_;
    const kernel_set &kernels_;
    operand a_{}, in_{}, out_{}, add_{};
    dim rows_ = 0, outers_ = 0, reduced_ = 0;
    dim out_length_[3] = {0, 0, 0};
    dim residues_ = 1;  // of the last axis
    dim tiles_ = 0;     // of a residue
    dim row_blocks_ = 0;
    dim tasks_ = 0;
    int workers_ = 1;
};

}  // namespace convgrad::cpu

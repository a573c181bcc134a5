// Runs one problem through the reference and through plans, and compares.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conv/problem.hpp"
#include "cpu/plan.hpp"
#include "support/memory.hpp"
#include "support/problems.hpp"
#include "tools/reference.hpp"

namespace convgrad::test {

/// What tensors are filled with.
enum class fill {
    /// Whole numbers so small that every sum is exact in f32, whatever its order: results must
    /// agree bit for bit. (The result itself may need rounding to a 16-bit output, once.)
    integers,
    /// Numbers of both signs and many magnitudes up to 1.
    reals,
};

/// How to run a plan.
struct run_options {
    isa max_isa = isa::portable;
    int threads = 1;
    thread_pool *pool = nullptr;  // null: workers run one after the other
    std::string_view algorithm = {};
    std::size_t workspace_limit = std::numeric_limits<std::size_t>::max();
    std::uint64_t random_estimates = 0;  // see cpu::plan_limits
    bool constant_weights = false;       // whose form is prepared before
};

/// What ran.
struct run_report {
    std::string algorithm;
    isa set = isa::portable;
    std::size_t workspace = 0;
    engines::accuracy kept = engines::accuracy::strict;
    std::size_t prepared = 0;  // see engines::plan_facts
};

/// The instruction sets that this machine can run, weakest first. Where everything but AMX is
/// there, AMX runs in the emulator.
std::span<const isa> usable_isas();
/// Those of them with kernels for f32 multiply-adds.
std::span<const isa> usable_fma_isas();

/// A row of the list of algorithms.
struct named {
    std::string_view algorithm;
    isa set;
};
/// `fma` on every instruction set and, of bf16, `dot2`: what this machine can run.
std::vector<named> rows_of(const conv::problem &p, std::string_view fma, std::string_view dot2);
/// The same for case `number` of many: emulation is slow, so an emulated instruction set takes part
/// in one of `share` cases only.
std::span<const isa> affordable_isas(std::uint64_t number, std::uint64_t share = 16);
/// One instruction set for case `number` of many, all of them in turn (an emulated one more
/// rarely).
isa affordable_isa(std::uint64_t number);

/// An upper bound for the error of a result summed in f32 in any order and rounded once.
///
/// Each of the `terms` products and each addition rounds by a relative 2^-24 at most, and no term
/// takes part in more than terms + 3 roundings (its product, the additions, bias, add and previous
/// value), so the sum is off by at most (terms + 4) · 2^-24 · Σ|term| (the 4 covers second-order
/// terms too). Rounding to the output adds half a unit in the last place of the result: 2^-24,
/// 2^-8 or 2^-11 of it, or half the smallest subnormal. Vector units that flush subnormals lose up
/// to 2^-126 with each operation.
double error_bound(data_type out, double value, double magnitude, dim terms);

/// What compare_bounded() lets pass beyond error_bound().
struct leniency {
    /// Relative error of each product, where operands may lose bits (math_mode::fast).
    double product_error = 0;
    /// Of any element, whatever its own terms.
    double absolute = 0;
    /// Sums whose terms reach the end of f32's range may overflow on the way, in one order and not
    /// in another: nothing is said about those.
    bool overflow = false;
};

/// The memory of one problem at a time; reusing it is cheap. Buffers lie flush against guard pages;
/// the gaps of strided tensors, outputs before a run and workspaces are filled with NaN.
class workbench {
public:
    workbench();

    /// Lays out and fills all tensors. Each lies flush against the guard page behind it or the one
    /// before it: by turns that no loop's length is in step with, or all at the given side. Every
    /// other time `add` is the output itself, if both lie alike (see add_in_place()).
    void load(const conv::problem &p, fill how, std::uint64_t seed,
        std::optional<guarded_memory::side> side = std::nullopt);

    [[nodiscard]] const conv::problem &problem() const { return problem_; }
    /// Inputs, and the outputs of the last run().
    [[nodiscard]] const conv::buffers &data() const { return data_; }

    [[nodiscard]] double read(role r, dim offset) const;
    /// What run_reference() computed.
    [[nodiscard]] double read_expected(role r, dim offset) const;
    /// Makes the output the tensor that is added to it: what `add` held, the output holds before
    /// each run. The problem must have `add`, in the strides of the output.
    void add_in_place();
    /// Fills the memory between the elements of the inputs, which no result may depend on.
    void fill_gaps(std::byte with);
    /// Changes an input (write_initial(): what an output holds before each run).
    void write(role r, dim offset, double value);
    void write_initial(role r, dim offset, double value);

    /// Computes what compare_*() compare with.
    void run_reference();
    /// Gives the outputs what they hold before each run.
    void restore_outputs();
    /// Whether the pass writes a tensor.
    [[nodiscard]] bool is_written(role r) const { return is_output(r); }
    /// Restores the outputs and executes a plan in a guarded workspace. Throws what make_plan
    /// throws.
    run_report run(const run_options &how);

    /// Empty if every byte of the outputs is that of the reference (gaps included), otherwise what
    /// differs first.
    [[nodiscard]] std::string compare_exact() const;
    /// The same with error_bound(); NaN and infinities must agree. Gaps must be untouched.
    [[nodiscard]] std::string compare_bounded(const leniency &allowed = {}) const;

    /// Bytes of the output and of the bias gradient, for comparing runs.
    [[nodiscard]] std::vector<std::byte> output_bytes() const;

private:
    struct tensor_memory {
        guarded_memory memory{1U << 16};
        std::byte *data = nullptr;
        std::size_t bytes = 0;
        std::vector<std::byte> initial, expected;  // of outputs
        /// By offset, as far as asked for: plans are many, and each is compared with the same.
        mutable std::vector<std::optional<conv::reference_value>> exact;
    };

    void fill_tensor(role r, fill how, rng &random);
    [[nodiscard]] bool is_output(role r) const;
    [[nodiscard]] std::string compare(role r, const leniency *allowed) const;
    [[nodiscard]] conv::reference_value exact_value(role r, const std::array<dim, 6> &at) const;
    [[nodiscard]] const conv::reference_value &exact_value(
        role r, const std::array<dim, 6> &at, dim offset) const;
    /// After every change of an input.
    void forget_exact_values();
    [[nodiscard]] std::string compare_elements(role r, const leniency *allowed) const;
    tensor_memory &of(role r) { return tensors_[static_cast<std::size_t>(r)]; }
    [[nodiscard]] const tensor_memory &of(role r) const {
        return tensors_[static_cast<std::size_t>(r)];
    }

    conv::problem problem_;
    conv::buffers data_;
    std::array<tensor_memory, 5> tensors_;
    guarded_memory workspace_{1U << 20};
    bool in_place_ = false;  // `add` is the output
    std::uint64_t loads_ = 0, runs_ = 0;
};

}  // namespace convgrad::test

// From described ops to plans, and their execution.
//
// Layer: above src/op, src/conv and src/engine; below graph.cpp, partition.cpp and eager.cpp, which
// all come here to compile.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <convgrad/eager.hpp>

#include "engine/engine.hpp"
#include "graph/constants.hpp"
#include "op/lower.hpp"

namespace convgrad {

/// One op of a partition and where its tensors stand in the partition's lists.
struct stage {
    /// Position of an optional input that is left out in front of one that is not.
    static constexpr std::size_t absent = std::numeric_limits<std::size_t>::max();

    std::shared_ptr<const op> node;  // owns the name that attrs.op_name refers to; null: no name
    ops::parsed_attributes attrs;
    std::vector<std::size_t> inputs;  // in the op's own order; the one of attrs.add is the last
    std::vector<std::size_t> outputs;
};

/// The tensors at these positions; one of type undef where it is absent.
std::vector<logical_tensor> pick(
    const std::vector<logical_tensor> &from, const std::vector<std::size_t> &positions);

/// A stage made ready.
struct step : stage {
    explicit step(stage s) : stage(std::move(s)) {}

    /// Null when the shape of output 0 is known only at execution.
    std::unique_ptr<const engines::plan> plan;
    /// A shape input is connected whose value is known only at execution.
    bool runtime_shape = false;
    /// Null: the plan makes no other form of weights, or they are not constant.
    std::unique_ptr<kept_constants> constants;

    /// Of constant weights, the form that the plan uses; null: executions do without.
    [[nodiscard]] kept_constants::form prepare(
        const conv::buffers &data, void *workspace, engines::lane &on) const;
};

// A nested type takes the visibility of its class, which is public.
struct [[gnu::visibility("hidden")]] compiled_partition::impl {
    std::vector<logical_tensor> inputs, outputs;
    std::vector<step> steps;
    engine on;  // what it was compiled for
    std::size_t workspace = 0;
    /// Not null: both gradients go through the batch together, so that diff_dst is read from memory
    /// once.
    std::unique_ptr<const engines::plan> joint;

    explicit impl(const engine &on_) : on(on_) {}

    void execute(const stream &where, std::span<const const_tensor *const> ins,
        std::span<const tensor> outs, void *user_workspace) const;
};

/// The options of a compiled op as flags, and the engine that they name.
inline ops::op_flags flags_of(const compile_options &opts) {
    return {opts.accumulate, opts.diff_bias, opts.relu, opts.add};
}
inline const engine &engine_of(const compile_options &opts) {
    return opts.on != nullptr ? *opts.on : default_engine();
}

/// Checks each stage, infers its outputs and plans it. Throws what the specification says.
std::shared_ptr<const compiled_partition::impl> compile_stages(std::vector<stage> stages,
    std::vector<logical_tensor> inputs, std::vector<logical_tensor> outputs, const engine &on);

/// Infers, lowers and plans one op. Throws invalid_shape when an output stays unknown.
std::unique_ptr<const engines::plan> plan_op(const ops::parsed_attributes &attrs,
    std::span<const logical_tensor> inputs, std::span<logical_tensor> outputs,
    const engine::impl &on);

/// Tensors of one op, in its own order; null where an optional input is left out.
struct arguments {
    std::span<const const_tensor *const> inputs;
    std::span<const tensor *const> outputs;
};

/// Refuses null data (an empty tensor may have it) and outputs that share their memory with an
/// input or with each other, and memory that the backend cannot reach. The tensor of attrs.add may
/// be the output itself.
void check_memory(
    const ops::parsed_attributes &attrs, const arguments &given, const engines::backend &on);

/// Canonical buffers of one op.
conv::buffers bind_memory(const ops::parsed_attributes &attrs, const arguments &given);

}  // namespace convgrad

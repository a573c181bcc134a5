// Making stages ready, and what a compiled partition tells about itself.
#include "graph/compiled.hpp"

#include <algorithm>

#include "graph/tensors.hpp"
#include "op/guard.hpp"
#include "op/message.hpp"
#include "op/schema.hpp"

namespace convgrad {
namespace {

void require_known_inputs(
    const ops::parsed_attributes &attrs, std::span<const logical_tensor> inputs) {
    const auto names = ops::schema_of(attrs.kind).inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i].type == data_type::undef || inputs[i].is_known()) continue;
        const std::string_view name = i < names.size() ? names[i].name : "add";
        ops::fail(error_code::invalid_shape, attrs.kind, attrs.op_name,
            ops::cat("input ", i, " (", name, ", id ", inputs[i].id, ") is ", describe(inputs[i]),
                "; compiling needs the whole shape of every input"));
    }
}

/// A shape input without a value leaves the output open until execution, unless the output's own
/// shape is given.
bool has_runtime_shape(
    const ops::parsed_attributes &attrs, std::span<const logical_tensor> inputs) {
    const auto schema = ops::schema_of(attrs.kind).inputs;
    for (std::size_t i = 0; i < std::min(inputs.size(), schema.size()); ++i)
        if (schema[i].shape_input && !inputs[i].value) return true;
    return false;
}

void require_variable_outputs(
    const ops::parsed_attributes &attrs, std::span<const logical_tensor> outputs) {
    for (std::size_t i = 0; i < outputs.size(); ++i)
        if (outputs[i].is_constant)
            ops::fail(error_code::invalid_argument, attrs.kind, attrs.op_name,
                ops::cat("output ", i, " (", ops::schema_of(attrs.kind).outputs[i].name, ", id ",
                    outputs[i].id, ") is said to be constant; only inputs can be"));
}

step make_step(stage s, compiled_partition::impl &owner) {
    step made(std::move(s));
    const std::vector<logical_tensor> inputs = pick(owner.inputs, made.inputs);
    std::vector<logical_tensor> outputs = pick(owner.outputs, made.outputs);
    ops::check_arguments(made.attrs, inputs, outputs);
    require_variable_outputs(made.attrs, outputs);
    require_known_inputs(made.attrs, inputs);
    made.runtime_shape = has_runtime_shape(made.attrs, inputs);
    const bool known = outputs[0].is_known();
    if (made.runtime_shape && !known)
        ops::infer_shapes(made.attrs, inputs, outputs);
    else
        made.plan = plan_op(made.attrs, inputs, outputs, owner.on.get());
    for (std::size_t i = 0; i < outputs.size(); ++i)
        owner.outputs[made.outputs[i]] = std::move(outputs[i]);
    if (made.plan == nullptr) return made;
    owner.workspace = std::max(owner.workspace, made.plan->workspace());
    if (made.plan->facts().prepared != 0) made.constants = std::make_unique<kept_constants>();
    return made;
}

/// Lets the two steps of a joint gradient go together, if that is faster and memory allows.
void join_steps(compiled_partition::impl &made) {
    if (made.steps.size() != 2) return;
    const auto &data = made.steps[0].plan, &weights = made.steps[1].plan;
    if (data == nullptr || weights == nullptr) return;
    const engine::impl &on = made.on.get();
    made.joint = on.backend->join(*data, *weights, on.limits());
    if (made.joint != nullptr) made.workspace = made.joint->workspace();
}

}  // namespace

std::vector<logical_tensor> pick(
    const std::vector<logical_tensor> &from, const std::vector<std::size_t> &positions) {
    std::vector<logical_tensor> picked;
    picked.reserve(positions.size());
    for (std::size_t at : positions)
        picked.push_back(at == stage::absent ? logical_tensor{} : from[at]);
    return picked;
}

std::unique_ptr<const engines::plan> plan_op(const ops::parsed_attributes &attrs,
    std::span<const logical_tensor> inputs, std::span<logical_tensor> outputs,
    const engine::impl &on) {
    ops::infer_shapes(attrs, inputs, outputs);
    conv::problem problem = ops::lower(attrs, inputs, outputs);
    problem.math = on.math;
    return on.backend->make_plan(problem, on.limits());
}

std::shared_ptr<const compiled_partition::impl> compile_stages(std::vector<stage> stages,
    std::vector<logical_tensor> inputs, std::vector<logical_tensor> outputs, const engine &on) {
    auto made = std::make_shared<compiled_partition::impl>(on);
    made->inputs = std::move(inputs);
    made->outputs = std::move(outputs);
    for (stage &s : stages) made->steps.push_back(make_step(std::move(s), *made));
    join_steps(*made);
    return made;
}

const logical_tensor &compiled_partition::query(std::size_t id) const {
    return guarded("compiled_partition::query", [&]() -> const logical_tensor & {
        std::string known;
        for (const auto *list : {&impl_->inputs, &impl_->outputs})
            for (const logical_tensor &lt : *list) {
                if (lt.id == id) return lt;
                known += ops::cat(known.empty() ? "" : ", ", lt.id);
            }
        throw error(error_code::invalid_argument,
            ops::cat("invalid argument: this compiled partition has no tensor with id ", id,
                "; it has ", known));
    });
}

const std::vector<logical_tensor> &compiled_partition::inputs() const noexcept {
    return impl_->inputs;
}

const std::vector<logical_tensor> &compiled_partition::outputs() const noexcept {
    return impl_->outputs;
}

std::size_t compiled_partition::workspace_size() const noexcept {
    return impl_->workspace;
}

std::size_t compiled_partition::workspace_alignment() const noexcept {
    return impl_->on.get().backend->facts().alignment;
}

std::size_t compiled_partition::constants_size() const noexcept {
    std::size_t bytes = 0;
    for (const step &s : impl_->steps)
        if (s.constants != nullptr && s.constants->has_some()) bytes += s.plan->facts().prepared;
    return bytes;
}

void compiled_partition::forget_constants() const noexcept {
    for (const step &s : impl_->steps)
        if (s.constants != nullptr) s.constants->forget();
}

std::string compiled_partition::describe() const {
    return guarded("compiled_partition::describe", [&] {
        std::string text;
        for (const step &s : impl_->steps) {
            if (!text.empty()) text += '\n';
            text += to_string(s.attrs.kind);
            if (!s.attrs.op_name.empty()) text += ops::cat(" ", ops::quoted{s.attrs.op_name});
            if (s.plan == nullptr)
                text += ": planned at execution, when its shape input is known";
            else
                text += ops::cat(": ", s.plan->algorithm(), ", ", s.plan->facts().uses, ", ",
                    s.plan->describe());
        }
        return text;
    });
}

}  // namespace convgrad

// Executing a compiled partition: everything is checked before the first output is written.
#include <array>

#include "graph/compiled.hpp"
#include "graph/tensors.hpp"
#include "op/guard.hpp"
#include "op/message.hpp"
#include "op/schema.hpp"

namespace convgrad {
namespace {

using ops::cat;
using ops::most_inputs, ops::most_outputs;

[[noreturn]] void refuse(const ops::parsed_attributes &attrs, const std::string &text) {
    ops::fail(error_code::invalid_argument, attrs.kind, attrs.op_name, text);
}

/// See ops::naming().
template <typename Work>
decltype(auto) naming(const step &s, Work &&work) {
    return ops::naming(s.attrs.kind, s.attrs.op_name, work);
}

/// "input 1 (weights)".
std::string label(const ops::parsed_attributes &attrs, bool output, std::size_t port) {
    const ops::op_schema &schema = ops::schema_of(attrs.kind);
    const auto names = output ? schema.outputs : schema.inputs;
    const std::string_view name = port < names.size() ? names[port].name : "add";
    return cat(output ? "output " : "input ", port, " (", name, ")");
}

bool is_shape_input(const ops::parsed_attributes &attrs, std::size_t port) {
    const auto schema = ops::schema_of(attrs.kind).inputs;
    return port < schema.size() && schema[port].shape_input;
}

/// The tensors of one step, picked from the partition's.
struct step_arguments {
    step_arguments(
        const step &s, std::span<const const_tensor *const> ins, std::span<const tensor> outs)
        : input_count(s.inputs.size()), output_count(s.outputs.size()) {
        for (std::size_t i = 0; i < input_count; ++i)
            inputs[i] = s.inputs[i] == stage::absent ? nullptr : ins[s.inputs[i]];
        for (std::size_t i = 0; i < output_count; ++i) outputs[i] = &outs[s.outputs[i]];
    }
    [[nodiscard]] arguments view() const {
        return {{inputs.data(), input_count}, {outputs.data(), output_count}};
    }

    std::size_t input_count, output_count;
    std::array<const const_tensor *, most_inputs> inputs{};
    std::array<const tensor *, most_outputs> outputs{};
};

void check_count(const step &first, std::string_view what, std::size_t given, std::size_t needed) {
    if (given != needed)
        refuse(first.attrs,
            cat("execute was given ", given, " ", what, "; the compiled partition has ", needed));
}

void check_matches(const ops::parsed_attributes &attrs, bool output, std::size_t port,
    const logical_tensor &compiled, const const_tensor &given) {
    if (given.type == compiled.type && given.shape == *compiled.shape
        && same_layout(given.shape, given.strides, compiled.strides))
        return;
    const logical_tensor seen(compiled.id, given.type, given.shape, given.strides);
    refuse(attrs, cat(label(attrs, output, port), " is ", describe(seen), "; it was compiled as ",
                      describe(compiled)));
}

void check_step(
    const compiled_partition::impl &partition, const step &s, const step_arguments &given) {
    for (std::size_t i = 0; i < s.inputs.size(); ++i) {
        if (given.inputs[i] == nullptr) continue;
        const logical_tensor &compiled = partition.inputs[s.inputs[i]];
        check_matches(s.attrs, false, i, compiled, *given.inputs[i]);
        // The value of a constant was used already: it may be repeated, but not changed.
        const const_tensor &t = *given.inputs[i];
        const bool constant = compiled.value && is_shape_input(s.attrs, i);
        if (constant && t.data != nullptr && read_shape(t) != *compiled.value)
            refuse(s.attrs, cat(label(s.attrs, false, i), " holds ", read_shape(t),
                                "; it was compiled as the constant ", *compiled.value));
    }
    for (std::size_t i = 0; i < s.outputs.size(); ++i) {
        const logical_tensor &compiled = partition.outputs[s.outputs[i]];
        if (compiled.is_known()) check_matches(s.attrs, true, i, compiled, *given.outputs[i]);
    }
    for (std::size_t i = 0; i < s.inputs.size(); ++i)
        if (s.runtime_shape && is_shape_input(s.attrs, i) && given.inputs[i]->data == nullptr)
            refuse(s.attrs,
                cat(label(s.attrs, false, i),
                    " has null data; its value was not known when compiling and is read now"));
    check_memory(s.attrs, given.view(), *partition.on.get().backend);
}

/// Reads the shape input, compares it with the output at hand, and plans if that had to wait.
std::unique_ptr<const engines::plan> resolve_at_execution(
    const compiled_partition::impl &partition, const step &s, const step_arguments &given) {
    std::vector<logical_tensor> inputs, outputs;
    for (std::size_t i = 0; i < s.inputs.size(); ++i) {
        inputs.push_back(
            s.inputs[i] == stage::absent ? logical_tensor{} : partition.inputs[s.inputs[i]]);
        if (is_shape_input(s.attrs, i)) inputs.back().value = read_shape(*given.inputs[i]);
    }
    for (std::size_t i = 0; i < s.outputs.size(); ++i) {
        const tensor &t = *given.outputs[i];
        logical_tensor lt = partition.outputs[s.outputs[i]];
        if (t.type != lt.type)
            refuse(s.attrs, cat(label(s.attrs, true, i), " has type ", t.type,
                                "; it was compiled as ", lt.type));
        lt.shape = t.shape;
        lt.strides = t.strides;
        outputs.push_back(std::move(lt));
    }
    if (s.plan == nullptr) return plan_op(s.attrs, inputs, outputs, partition.on.get());
    ops::infer_shapes(s.attrs, inputs, outputs);
    return nullptr;
}

/// What check_memory() cannot see: one op's output in the place of another op's tensor.
void check_across(
    const step &first, std::span<const const_tensor *const> ins, std::span<const tensor> outs) {
    for (std::size_t o = 0; o < outs.size(); ++o) {
        for (std::size_t i = 0; i < ins.size(); ++i)
            if (shares_memory(outs[o], *ins[i]))
                refuse(first.attrs, cat("output ", o, " and input ", i,
                                        " of the partition have the "
                                        "same data pointer; an output must not overlap an input"));
        for (std::size_t other = 0; other < o; ++other)
            if (shares_memory(outs[o], outs[other]))
                refuse(first.attrs,
                    cat("outputs ", other, " and ", o,
                        " of the partition have the same data pointer; they must not overlap"));
    }
}

/// Memory that a caller gives as scratch must be what the device would have taken itself.
void check_workspace(const step &first, const void *given, const engines::backend &on) {
    const std::size_t alignment = on.facts().alignment;
    if (const char *foreign = on.refuse_memory(given); foreign != nullptr)
        refuse(first.attrs, cat("the workspace cannot be used on ", on.name(), ": ", foreign,
                                "; give memory of that device, or null and the library takes its "
                                "own"));
    if (reinterpret_cast<std::uintptr_t>(given) % alignment != 0)
        refuse(first.attrs, cat("the workspace must be aligned to ", alignment,
                                " bytes (workspace_alignment()) on ", on.name()));
}

constexpr std::size_t most_steps = 2;

/// Inputs as a list of either kind of tensor.
template <typename Tensor>
void execute_list(const compiled_partition::impl &partition, const stream &on,
    std::span<const Tensor> inputs, std::span<const tensor> outputs, void *workspace) {
    check_count(partition.steps[0], "inputs", inputs.size(), partition.inputs.size());
    std::array<const const_tensor *, most_steps * most_inputs> pointers{};
    for (std::size_t i = 0; i < inputs.size(); ++i) pointers[i] = &inputs[i];
    partition.execute(on, {pointers.data(), inputs.size()}, outputs, workspace);
}

}  // namespace

void check_memory(
    const ops::parsed_attributes &attrs, const arguments &given, const engines::backend &on) {
    const auto check_data = [&](bool output, std::size_t port, const const_tensor &t) {
        if (t.data == nullptr && !is_empty(t.shape))
            refuse(
                attrs, cat(label(attrs, output, port),
                           " has null data; only an empty tensor may, and its shape is ", t.shape));
        const char *foreign = t.data == nullptr ? nullptr : on.refuse_memory(t.data);
        if (foreign != nullptr)
            refuse(attrs,
                cat(label(attrs, output, port), " cannot be used on ", on.name(), ": ", foreign));
    };
    for (std::size_t i = 0; i < given.inputs.size(); ++i)
        if (given.inputs[i] != nullptr && !is_shape_input(attrs, i))
            check_data(false, i, *given.inputs[i]);
    for (std::size_t o = 0; o < given.outputs.size(); ++o) {
        const tensor &out = *given.outputs[o];
        check_data(true, o, out);
        for (std::size_t i = 0; i < given.inputs.size(); ++i) {
            if (given.inputs[i] == nullptr || !shares_memory(out, *given.inputs[i])) continue;
            const bool added = attrs.add && i + 1 == given.inputs.size();
            if (added && given.inputs[i]->shape == out.shape
                && same_layout(out.shape, out.strides, given.inputs[i]->strides))
                continue;
            refuse(attrs, cat(label(attrs, true, o), " and ", label(attrs, false, i),
                              " have the same data pointer; an output must not overlap an input"));
        }
    }
    if (given.outputs.size() == 2 && shares_memory(*given.outputs[0], *given.outputs[1]))
        refuse(attrs, "both outputs have the same data pointer; they must not overlap");
}

conv::buffers bind_memory(const ops::parsed_attributes &attrs, const arguments &given) {
    std::array<void *, most_inputs> inputs{};
    std::array<void *, most_outputs> outputs{};
    const std::size_t own = given.inputs.size() - (attrs.add ? 1 : 0);
    for (std::size_t i = 0; i < own; ++i)
        if (given.inputs[i] != nullptr) inputs[i] = given.inputs[i]->data;
    if (attrs.add) inputs[most_inputs - 1] = given.inputs[own]->data;
    for (std::size_t i = 0; i < given.outputs.size(); ++i) outputs[i] = given.outputs[i]->data;
    return ops::bind(attrs.kind, inputs, outputs);
}

kept_constants::form step::prepare(
    const conv::buffers &data, void *workspace, engines::lane &on) const {
    if (constants == nullptr) return nullptr;
    return constants->get(data.weights, [&]() -> kept_constants::form {
        try {
            return plan->prepare(data, workspace, on);
        } catch (const error &e) {
            if (e.code() != error_code::out_of_memory) throw;
        } catch (const std::bad_alloc &) {
        }
        return nullptr;  // it would only have saved time
    });
}

void compiled_partition::impl::execute(const stream &where,
    std::span<const const_tensor *const> ins, std::span<const tensor> outs,
    void *user_workspace) const {
    const engines::backend &compiled_for = *on.get().backend;
    const engines::backend &there = *where.get_engine().get().backend;
    if (!there.accepts(compiled_for))
        refuse(steps[0].attrs,
            cat("the stream's engine is ", there.name(), "; this partition was compiled for ",
                compiled_for.name(), "; compile it for the engine it runs on"));
    check_count(steps[0], "outputs", outs.size(), outputs.size());
    std::array<std::unique_ptr<const engines::plan>, most_steps> late_plans;
    std::array<conv::buffers, most_steps> memory;
    std::size_t needed = workspace;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const step_arguments given(steps[i], ins, outs);
        check_step(*this, steps[i], given);
        if (steps[i].runtime_shape) late_plans[i] = resolve_at_execution(*this, steps[i], given);
        if (late_plans[i] != nullptr) needed = std::max(needed, late_plans[i]->workspace());
        memory[i] = bind_memory(steps[i].attrs, given.view());
    }
    if (steps.size() > 1) check_across(steps[0], ins, outs);

    // A workspace from the caller holds what workspace_size() said, which late plans do not know.
    const bool use_given = user_workspace != nullptr && needed != 0 && needed <= workspace;
    if (use_given) check_workspace(steps[0], user_workspace, there);
    engines::lane &lane = where.get();
    const engines::scratch_lease own = naming(steps[0], [&] {
        lane.check();
        return engines::scratch_lease(lane, use_given ? 0 : needed);
    });
    void *const scratch = use_given ? user_workspace : own.data();
    if (joint != nullptr) {
        naming(steps[0], [&] { joint->execute(memory, scratch, lane); });
        return;
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const engines::plan &plan = late_plans[i] != nullptr ? *late_plans[i] : *steps[i].plan;
        naming(steps[i], [&] {
            const kept_constants::form prepared =
                late_plans[i] != nullptr ? nullptr : steps[i].prepare(memory[i], scratch, lane);
            memory[i].prepared = prepared.get();
            plan.execute({&memory[i], 1}, scratch, lane);
        });
    }
}

void compiled_partition::execute(const stream &on, list_view<const_tensor> inputs,
    list_view<tensor> outputs, void *workspace) const {
    guarded("execute", [&] { execute_list<const_tensor>(*impl_, on, inputs, outputs, workspace); });
}

void compiled_partition::execute_writable(const stream &on, std::span<const tensor> inputs,
    list_view<tensor> outputs, void *workspace) const {
    guarded("execute", [&] { execute_list<tensor>(*impl_, on, inputs, outputs, workspace); });
}

}  // namespace convgrad

// The interface's functions on partitions and compiled partitions.
#include "onednn/partition.hpp"

#include <algorithm>

#include "engine/backend.hpp"
#include "onednn/compiled.hpp"
#include "onednn/front.hpp"
#include "onednn/guard.hpp"
#include "onednn/runtime.hpp"

using namespace convgrad::onednn;

namespace {

status copy_ports(
    const std::vector<tensor_description> &ports, std::size_t count, tensor_description *to) {
    if (count != ports.size()) return status::invalid_arguments;
    std::copy(ports.begin(), ports.end(), to);
    return status::success;
}

template <typename T>
bool has_null(T *const *list, std::size_t count) {
    return count > 0 && (list == nullptr || std::find(list, list + count, nullptr) != list + count);
}

void *aligned(void *memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    return static_cast<std::byte *>(memory) + (64 - address % 64) % 64;
}

/// One call of execute, checked.
struct execution {
    const compiled_body &body;
    std::span<const tensor_view> inputs, outputs;

    status run(void *scratch_memory) const {
        return guarded("execute", [&] {
            const stopwatch timer;
            body.execute(inputs, outputs, scratch_memory);
            if (is_verbose()) trace("exec", body.trace_text, timer.milliseconds());
            return status::success;
        });
    }

    /// With the scratchpad that the client gave.
    status run_in(const tensor_view &scratchpad) const {
        if (body.scratch == 0) return run(nullptr);
        if (scratchpad.data == nullptr
            || (scratchpad.lt && memory_size(*scratchpad.lt) < body.client_scratch())) {
            trace_error("execute", "the scratchpad is smaller than its logical tensor says");
            return status::invalid_arguments;
        }
        return run(aligned(scratchpad.data));
    }

    /// With memory from the client's allocator, which may throw.
    status run_with(const allocator &from) const {
        client_memory memory;
        memory.allocate(from, body.client_scratch());
        if (memory.data() == nullptr) return status::out_of_memory;
        const status done = run(aligned(memory.data()));
        memory.release();
        return done;
    }

    /// With memory that the library keeps between executions.
    status run_with_own() const {
        return guarded("execute", [&] {
            const convgrad::stream on(engine_for(body.source->settings.fpmath));
            const convgrad::engines::scratch_lease memory(on.get(), body.scratch);
            return run(memory.data());
        });
    }
};

/// What is known in front of oneDNN about a partition that it does not have as it is; else null.
std::shared_ptr<client_partition> joined_note_of(const client_partition *partition) {
    if (behind() == nullptr) return nullptr;
    auto known = notes<client_partition>::get().find(partition);
    return known != nullptr && known->body->joined ? known : nullptr;
}

/// The answer to a question about a partition: oneDNN's, or from the body that this library has,
/// alone and for what oneDNN does not have as it is.
template <typename Theirs, typename Ours>
status answer(const client_partition *partition, const Theirs &theirs, const Ours &ours) {
    if (const auto known = joined_note_of(partition)) return ours(*known->body);
    if (const library *next = behind()) return theirs(*next);
    return ours(*partition->body);
}

/// A handle of oneDNN's for a partition, with a note beside it.
status create_compiled_in_front(
    const library &next, client_compiled_partition **made, client_partition *partition) {
    return create_and_note(
        "compiled_partition_create", made,
        [&](client_compiled_partition **theirs) {
            return next.compiled_partition_create(theirs, partition);
        },
        next.compiled_partition_destroy,
        [] { return std::make_shared<client_compiled_partition>(); });
}

/// What is asked for about a compiled partition: this library's own, or that which is known beside
/// oneDNN's handle.
struct asked_partition {
    explicit asked_partition(const client_compiled_partition *compiled) {
        const library *library_behind = behind();
        if (library_behind != nullptr) {
            noted = notes<client_compiled_partition>::get().find(compiled);
            if (noted == nullptr || !noted->delegated.empty()) next = library_behind;
            compiled = noted.get();
        }
        if (compiled != nullptr) body = compiled->body;
    }

    const library *next = nullptr;  // not null: oneDNN runs it and has to be asked
    std::shared_ptr<client_compiled_partition> noted;
    std::shared_ptr<const compiled_body> body;  // null: not compiled, or not here
};

std::vector<tensor_view> own_views(std::size_t count, const client_tensor *const *tensors) {
    std::vector<tensor_view> views(count);
    for (std::size_t i = 0; i < count; ++i) views[i] = {tensors[i]->data, tensors[i]->lt};
    return views;
}

/// Executes here; `next` is not null where handles are oneDNN's.
status execute_ours(
    const library *next, const std::shared_ptr<const compiled_body> &body, const execute_call &c) {
    client_engine *engine = engine_of(c.stream);
    if (engine == nullptr || kind_of(engine) != body->source->settings.engine)
        return status::invalid_arguments;
    std::vector<tensor_view> inputs, outputs, scratchpad;
    const status prepared = guarded("execute", [&] {
        const auto views = [&](std::size_t count, const client_tensor *const *tensors) {
            return next != nullptr ? views_of(*next, count, tensors) : own_views(count, tensors);
        };
        inputs = views(c.input_count, c.inputs);
        outputs = views(c.output_count, c.outputs);
        if (c.scratchpad != nullptr) scratchpad = views(1, &c.scratchpad);
        return status::success;
    });
    if (prepared != status::success) return prepared;
    // What oneDNN runs on the stream may not be complete.
    if (next != nullptr)
        if (const status waited = wait_for(c.stream); waited != status::success) return waited;
    const execution call{*body, inputs, outputs};
    if (c.scratchpad != nullptr) return call.run_in(scratchpad[0]);
    if (body->scratch == 0) return call.run(nullptr);
    const allocator from = allocator_of(engine);
    return from.is_default() ? call.run_with_own() : call.run_with(from);
}

/// Executes where the partition was compiled.
status execute(const execute_call &call) {
    if (any_null(call.compiled, call.stream)) return status::invalid_arguments;
    const client_compiled_partition *compiled = call.compiled;
    std::shared_ptr<client_compiled_partition> known;
    const library *next = behind();
    if (next != nullptr) {
        known = notes<client_compiled_partition>::get().find(compiled);
        if (known == nullptr) return execute_behind(*next, call, nullptr);
        compiled = known.get();
    }
    if (has_null(call.inputs, call.input_count) || has_null(call.outputs, call.output_count))
        return status::invalid_arguments;
    if (known != nullptr && !known->delegated.empty())
        return execute_behind(*next, call, &known->delegated);
    if (compiled->body == nullptr) return status::invalid_arguments;
    // The body is held, so that compiling anew into the handle does not disturb this execution.
    const std::shared_ptr<const compiled_body> body = compiled->body;
    return execute_ours(next, body, call);
}

}  // namespace

namespace convgrad::onednn {

bool is_ours(const client_compiled_partition *compiled) {
    if (compiled == nullptr) return false;
    return asked_partition(compiled).body != nullptr;
}

}  // namespace convgrad::onednn

CONVGRAD_ONEDNN_API status dnnl_graph_partition_create_with_op(
    client_partition **made, const client_op *op, engine_kind_value engine) {
    if (any_null(made, op)) return status::invalid_arguments;
    if (const library *next = behind()) return create_with_op_in_front(*next, made, op, engine);
    return guarded("partition_create_with_op", [&] {
        const auto bodies =
            make_partitions({make_graph_op(*op)}, {engine, default_fpmath_mode()}, false);
        *made = new client_partition{bodies.at(0)};
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_destroy(client_partition *partition) {
    if (const library *next = behind()) {
        notes<client_partition>::get().drop(partition);
        return next->partition_destroy(partition);
    }
    delete partition;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_op_num(
    const client_partition *partition, std::size_t *count) {
    if (any_null(partition, count)) return status::invalid_arguments;
    return answer(
        partition, [&](const library &next) { return next.partition_get_op_num(partition, count); },
        [&](const partition_body &body) {
            *count = body.ops.size();
            return status::success;
        });
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_ops(
    client_partition *partition, std::size_t count, std::size_t *ids) {
    if (any_null(partition, ids)) return status::invalid_arguments;
    return answer(
        partition,
        [&](const library &next) { return next.partition_get_ops(partition, count, ids); },
        [&](const partition_body &body) {
            if (count != body.ops.size()) return status::invalid_arguments;
            for (const auto &op : body.ops) *ids++ = op->id;
            return status::success;
        });
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_id(
    const client_partition *partition, std::size_t *id) {
    if (any_null(partition, id)) return status::invalid_arguments;
    if (const library *next = behind()) return next->partition_get_id(partition, id);
    *id = partition->body->id;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_input_ports_num(
    const client_partition *partition, std::size_t *count) {
    if (any_null(partition, count)) return status::invalid_arguments;
    return answer(
        partition,
        [&](const library &next) { return next.partition_get_input_ports_num(partition, count); },
        [&](const partition_body &body) {
            *count = body.inputs.size();
            return status::success;
        });
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_input_ports(
    const client_partition *partition, std::size_t count, tensor_description *ports) {
    if (any_null(partition, ports)) return status::invalid_arguments;
    return answer(
        partition,
        [&](const library &next) {
            return next.partition_get_input_ports(partition, count, ports);
        },
        [&](const partition_body &body) { return copy_ports(body.inputs, count, ports); });
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_output_ports_num(
    const client_partition *partition, std::size_t *count) {
    if (any_null(partition, count)) return status::invalid_arguments;
    return answer(
        partition,
        [&](const library &next) { return next.partition_get_output_ports_num(partition, count); },
        [&](const partition_body &body) {
            *count = body.outputs.size();
            return status::success;
        });
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_output_ports(
    const client_partition *partition, std::size_t count, tensor_description *ports) {
    if (any_null(partition, ports)) return status::invalid_arguments;
    return answer(
        partition,
        [&](const library &next) {
            return next.partition_get_output_ports(partition, count, ports);
        },
        [&](const partition_body &body) { return copy_ports(body.outputs, count, ports); });
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_is_supported(
    const client_partition *partition, std::uint8_t *supported) {
    if (any_null(partition, supported)) return status::invalid_arguments;
    if (const library *next = behind()) {
        const auto known = notes<client_partition>::get().find(partition);
        if (known == nullptr || known->body->delegable || !known->body->is_supported())
            return next->partition_is_supported(partition, supported);
        *supported = 1;
        return status::success;
    }
    *supported = partition->body->is_supported() ? 1 : 0;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_engine_kind(
    const client_partition *partition, engine_kind_value *kind) {
    if (any_null(partition, kind)) return status::invalid_arguments;
    if (const library *next = behind()) return next->partition_get_engine_kind(partition, kind);
    *kind = partition->body->settings.engine;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_compile(client_partition *partition,
    client_compiled_partition *compiled, std::size_t input_count, const tensor_description **inputs,
    std::size_t output_count, const tensor_description **outputs, client_engine *engine) {
    if (any_null(partition, compiled, engine) || has_null(inputs, input_count)
        || has_null(outputs, output_count))
        return status::invalid_arguments;
    if (const library *next = behind())
        return compile_in_front(
            *next, {partition, compiled, input_count, inputs, output_count, outputs, engine});
    return guarded("compile", [&] {
        const stopwatch timer;
        if (!partition->body->is_supported() || kind_of(engine) != partition->body->settings.engine)
            return status::invalid_arguments;
        compiled->body = compile(
            partition->body, {inputs, inputs + input_count}, {outputs, outputs + output_count});
        if (is_verbose()) trace("compile", compiled->body->trace_text, timer.milliseconds());
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_create(
    client_compiled_partition **made, client_partition *partition) {
    if (any_null(made, partition)) return status::invalid_arguments;
    if (const library *next = behind()) return create_compiled_in_front(*next, made, partition);
    return guarded("compiled_partition_create", [&] {
        *made = new client_compiled_partition;
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_destroy(
    client_compiled_partition *compiled) {
    if (const library *next = behind()) {
        notes<client_compiled_partition>::get().drop(compiled);
        return next->compiled_partition_destroy(compiled);
    }
    delete compiled;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_execute_v2(
    const client_compiled_partition *compiled, client_stream *stream, std::size_t input_count,
    const client_tensor **inputs, std::size_t output_count, const client_tensor **outputs,
    const client_tensor *scratchpad) {
    return execute(
        {compiled, stream, input_count, inputs, output_count, outputs, scratchpad, true});
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_execute(
    const client_compiled_partition *compiled, client_stream *stream, std::size_t input_count,
    const client_tensor **inputs, std::size_t output_count, const client_tensor **outputs) {
    return execute({compiled, stream, input_count, inputs, output_count, outputs, nullptr, false});
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_query_logical_tensor(
    const client_compiled_partition *compiled, std::size_t id, tensor_description *lt) {
    if (any_null(compiled, lt)) return status::invalid_arguments;
    const asked_partition asked(compiled);
    if (asked.next != nullptr)
        return asked.next->compiled_partition_query_logical_tensor(compiled, id, lt);
    if (asked.body != nullptr)
        for (const tensor_description &known : asked.body->tensors)
            if (known.id == id) {
                *lt = known;
                return status::success;
            }
    *lt = {};
    lt->id = SIZE_MAX;
    lt->ndims = unknown_ndims;
    lt->layout = layout_type::any;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_get_inplace_ports(
    const client_compiled_partition *compiled, std::size_t *count, const inplace_pair **pairs) {
    if (any_null(compiled, count, pairs)) return status::invalid_arguments;
    const asked_partition asked(compiled);
    if (asked.next != nullptr)
        return asked.next->compiled_partition_get_inplace_ports(compiled, count, pairs);
    if (asked.body == nullptr) return status::invalid_arguments;
    *count = asked.body->inplace.size();
    *pairs = asked.body->inplace.data();
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_get_scratchpad_logical_tensor(
    const client_compiled_partition *compiled, tensor_description *lt) {
    if (any_null(compiled, lt)) return status::invalid_arguments;
    const asked_partition asked(compiled);
    if (asked.next != nullptr
        && asked.next->compiled_partition_get_scratchpad_logical_tensor != nullptr)
        return asked.next->compiled_partition_get_scratchpad_logical_tensor(compiled, lt);
    // A version without client's scratchpads needs none.
    if (asked.next == nullptr && asked.body == nullptr) return status::invalid_arguments;
    const std::size_t bytes = asked.body == nullptr ? 0 : asked.body->client_scratch();
    *lt = {};
    lt->id = SIZE_MAX;
    lt->ndims = 1;
    lt->dims[0] = static_cast<std::int64_t>(bytes);
    lt->type = element_type::u8;
    lt->property = property_type::variable;
    lt->layout = layout_type::strided;
    lt->strides[0] = 1;
    return status::success;
}

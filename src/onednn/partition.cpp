// The interface's functions on partitions and compiled partitions.
#include "onednn/partition.hpp"

#include <algorithm>

#include "engine/backend.hpp"
#include "onednn/compiled.hpp"
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
    std::span<const client_tensor *const> inputs, outputs;

    status run(void *scratch_memory) const {
        return guarded("execute", [&] {
            const stopwatch timer;
            body.execute(inputs, outputs, scratch_memory);
            if (is_verbose()) trace("exec", body.trace_text, timer.milliseconds());
            return status::success;
        });
    }

    /// With the scratchpad that the client gave.
    status run_in(const client_tensor &scratchpad) const {
        if (body.scratch == 0) return run(nullptr);
        if (scratchpad.data == nullptr || memory_size(scratchpad.lt) < body.client_scratch()) {
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
            const convgrad::stream on(engine_for(body.source->fpmath));
            const convgrad::engines::scratch_lease memory(on.get(), body.scratch);
            return run(memory.data());
        });
    }
};

}  // namespace

CONVGRAD_ONEDNN_API status dnnl_graph_partition_create_with_op(
    client_partition **made, const client_op *op, engine_kind_value engine) {
    if (any_null(made, op)) return status::invalid_arguments;
    return guarded("partition_create_with_op", [&] {
        const auto bodies =
            make_partitions({make_graph_op(*op)}, engine, default_fpmath_mode(), false);
        *made = new client_partition{bodies.at(0)};
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_destroy(client_partition *partition) {
    delete partition;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_op_num(
    const client_partition *partition, std::size_t *count) {
    if (any_null(partition, count)) return status::invalid_arguments;
    *count = partition->body->ops.size();
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_ops(
    client_partition *partition, std::size_t count, std::size_t *ids) {
    if (any_null(partition, ids) || count != partition->body->ops.size())
        return status::invalid_arguments;
    for (const auto &op : partition->body->ops) *ids++ = op->id;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_id(
    const client_partition *partition, std::size_t *id) {
    if (any_null(partition, id)) return status::invalid_arguments;
    *id = partition->body->id;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_input_ports_num(
    const client_partition *partition, std::size_t *count) {
    if (any_null(partition, count)) return status::invalid_arguments;
    *count = partition->body->inputs.size();
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_input_ports(
    const client_partition *partition, std::size_t count, tensor_description *ports) {
    if (any_null(partition, ports)) return status::invalid_arguments;
    return copy_ports(partition->body->inputs, count, ports);
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_output_ports_num(
    const client_partition *partition, std::size_t *count) {
    if (any_null(partition, count)) return status::invalid_arguments;
    *count = partition->body->outputs.size();
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_output_ports(
    const client_partition *partition, std::size_t count, tensor_description *ports) {
    if (any_null(partition, ports)) return status::invalid_arguments;
    return copy_ports(partition->body->outputs, count, ports);
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_is_supported(
    const client_partition *partition, std::uint8_t *supported) {
    if (any_null(partition, supported)) return status::invalid_arguments;
    *supported = partition->body->is_supported() ? 1 : 0;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_engine_kind(
    const client_partition *partition, engine_kind_value *kind) {
    if (any_null(partition, kind)) return status::invalid_arguments;
    *kind = partition->body->engine;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_partition_compile(client_partition *partition,
    client_compiled_partition *compiled, std::size_t input_count, const tensor_description **inputs,
    std::size_t output_count, const tensor_description **outputs, client_engine *engine) {
    if (any_null(partition, compiled, engine) || has_null(inputs, input_count)
        || has_null(outputs, output_count))
        return status::invalid_arguments;
    return guarded("compile", [&] {
        const stopwatch timer;
        if (!partition->body->is_supported() || kind_of(engine) != partition->body->engine)
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
    return guarded("compiled_partition_create", [&] {
        *made = new client_compiled_partition;
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_destroy(
    client_compiled_partition *compiled) {
    delete compiled;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_execute_v2(
    const client_compiled_partition *compiled, client_stream *stream, std::size_t input_count,
    const client_tensor **inputs, std::size_t output_count, const client_tensor **outputs,
    const client_tensor *scratchpad) {
    if (any_null(compiled, stream) || compiled->body == nullptr || has_null(inputs, input_count)
        || has_null(outputs, output_count))
        return status::invalid_arguments;
    // The body is held, so that compiling anew into the handle does not disturb this execution.
    const std::shared_ptr<const compiled_body> body = compiled->body;
    client_engine *engine = engine_of(stream);
    if (engine == nullptr || kind_of(engine) != body->source->engine)
        return status::invalid_arguments;
    const execution call{*body, {inputs, inputs + input_count}, {outputs, outputs + output_count}};
    if (scratchpad != nullptr) return call.run_in(*scratchpad);
    if (body->scratch == 0) return call.run(nullptr);
    const allocator from = allocator_of(engine);
    return from.is_default() ? call.run_with_own() : call.run_with(from);
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_execute(
    const client_compiled_partition *compiled, client_stream *stream, std::size_t input_count,
    const client_tensor **inputs, std::size_t output_count, const client_tensor **outputs) {
    return dnnl_graph_compiled_partition_execute_v2(
        compiled, stream, input_count, inputs, output_count, outputs, nullptr);
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_query_logical_tensor(
    const client_compiled_partition *compiled, std::size_t id, tensor_description *lt) {
    if (any_null(compiled, lt)) return status::invalid_arguments;
    if (compiled->body != nullptr)
        for (const tensor_description &known : compiled->body->tensors)
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
    if (any_null(compiled, count, pairs) || compiled->body == nullptr)
        return status::invalid_arguments;
    *count = compiled->body->inplace.size();
    *pairs = compiled->body->inplace.data();
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_get_scratchpad_logical_tensor(
    const client_compiled_partition *compiled, tensor_description *lt) {
    if (any_null(compiled, lt) || compiled->body == nullptr) return status::invalid_arguments;
    *lt = {};
    lt->id = SIZE_MAX;
    lt->ndims = 1;
    lt->dims[0] = static_cast<std::int64_t>(compiled->body->client_scratch());
    lt->type = element_type::u8;
    lt->property = property_type::variable;
    lt->layout = layout_type::strided;
    lt->strides[0] = 1;
    return status::success;
}

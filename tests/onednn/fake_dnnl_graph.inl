// The second half of fake_dnnl.cpp: graphs, partitions, compiled partitions and settings.

FAKE_API dnnl_status_t dnnl_graph_graph_create_with_fpmath_mode(
    dnnl_graph_graph_t *graph, dnnl_engine_kind_t engine, dnnl_fpmath_mode_t mode) {
    *graph = new dnnl_graph_graph;
    (*graph)->engine = engine;
    (*graph)->mode = mode;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_graph_create(
    dnnl_graph_graph_t *graph, dnnl_engine_kind_t engine) {
    return dnnl_graph_graph_create_with_fpmath_mode(graph, engine, dnnl_fpmath_mode_strict);
}
FAKE_API dnnl_status_t dnnl_graph_graph_destroy(dnnl_graph_graph_t graph) {
    destroy(graph);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_add_op(dnnl_graph_graph_t graph, dnnl_graph_op_t op) {
    if (graph->finalized) return dnnl_invalid_graph;
    if (is_convolution(*op) && !op->has(dnnl_graph_op_attr_strides)) return dnnl_invalid_graph_op;
    if (op->kind == dnnl_graph_op_conv_transpose_backward_data
        && op->has(dnnl_graph_op_attr_output_padding))
        return dnnl_invalid_graph_op;
    for (const auto &other : graph->ops)
        if (other->id == op->id) return dnnl_success;
    graph->ops.push_back(std::make_shared<dnnl_graph_op>(*op));
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_graph_finalize(dnnl_graph_graph_t graph) {
    std::map<std::size_t, description> known;
    for (const auto &op : graph->ops)
        for (const auto *ports : {&op->inputs, &op->outputs})
            for (const description &lt : *ports)
                if (!same(known.emplace(lt.id, lt).first->second, lt)) return dnnl_invalid_graph;
    graph->finalized = true;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_graph_is_finalized(
    dnnl_graph_graph_t graph, std::uint8_t *finalized) {
    *finalized = graph->finalized ? 1 : 0;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_graph_filter(
    dnnl_graph_graph_t graph, dnnl_graph_partition_policy_t policy) {
    if (!graph->finalized) return dnnl_invalid_graph;
    graph->partitions = partition(*graph, policy == dnnl_graph_partition_policy_fusion);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_graph_get_partition_num(
    const_dnnl_graph_graph_t graph, std::size_t *count) {
    *count = graph->partitions.size();
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_graph_get_partitions(
    dnnl_graph_graph_t graph, std::size_t count, dnnl_graph_partition_t *partitions) {
    if (count != graph->partitions.size()) return dnnl_invalid_arguments;
    for (std::size_t i = 0; i < count; ++i) {
        partitions[i] = new dnnl_graph_partition;
        partitions[i]->body = graph->partitions[i];
    }
    return dnnl_success;
}

FAKE_API dnnl_status_t dnnl_graph_partition_create_with_op(
    dnnl_graph_partition_t *made, const_dnnl_graph_op_t op, dnnl_engine_kind_t) {
    auto body = std::make_shared<partition_body>();
    body->ops.push_back(std::make_shared<dnnl_graph_op>(*op));
    body->supported = is_supported(*body);
    *made = new dnnl_graph_partition;
    (*made)->body = std::move(body);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_partition_destroy(dnnl_graph_partition_t partition) {
    destroy(partition);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_partition_get_op_num(
    const_dnnl_graph_partition_t partition, std::size_t *count) {
    *count = partition->body->ops.size();
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_partition_get_ops(
    dnnl_graph_partition_t partition, std::size_t count, std::size_t *ids) {
    if (count != partition->body->ops.size()) return dnnl_invalid_arguments;
    for (const auto &op : partition->body->ops) *ids++ = op->id;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_partition_get_id(
    const_dnnl_graph_partition_t partition, std::size_t *id) {
    *id = partition->body->id;
    return dnnl_success;
}
#define FAKE_PORTS(name, is_input)                                                                 \
    FAKE_API dnnl_status_t dnnl_graph_partition_get_##name##_ports_num(                            \
        const_dnnl_graph_partition_t partition, std::size_t *count) {                              \
        *count = partition->body->ports(is_input).size();                                          \
        return dnnl_success;                                                                       \
    }                                                                                              \
    FAKE_API dnnl_status_t dnnl_graph_partition_get_##name##_ports(                                \
        const_dnnl_graph_partition_t partition, std::size_t count, description *to) {              \
        const std::vector<description> found = partition->body->ports(is_input);                   \
        if (count != found.size()) return dnnl_invalid_arguments;                                  \
        std::copy(found.begin(), found.end(), to);                                                 \
        return dnnl_success;                                                                       \
    }
FAKE_PORTS(input, true)
FAKE_PORTS(output, false)
FAKE_API dnnl_status_t dnnl_graph_partition_is_supported(
    const_dnnl_graph_partition_t partition, std::uint8_t *supported) {
    *supported = partition->body->supported ? 1 : 0;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_partition_get_engine_kind(
    const_dnnl_graph_partition_t, dnnl_engine_kind_t *kind) {
    *kind = dnnl_cpu;
    return dnnl_success;
}

FAKE_API dnnl_status_t dnnl_graph_compiled_partition_create(
    dnnl_graph_compiled_partition_t *made, dnnl_graph_partition_t) {
    *made = new dnnl_graph_compiled_partition;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_compiled_partition_destroy(
    dnnl_graph_compiled_partition_t compiled) {
    destroy(compiled);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_partition_compile(dnnl_graph_partition_t partition,
    dnnl_graph_compiled_partition_t compiled, std::size_t input_count, const description **inputs,
    std::size_t output_count, const description **outputs, dnnl_engine_t engine) {
    if (!partition->body->supported) return dnnl_invalid_arguments;
    const bool convolution = is_convolution(*partition->body->ops[0]);
    if (convolution && convolution_compile == 1) return dnnl_invalid_shape;
    if (convolution && convolution_compile == 2) throw std::runtime_error("the fake threw");
    if (engine->allocate != nullptr) engine->deallocate(engine->allocate(64, 64));
    compiled->body = partition->body;
    compiled->inputs.clear();
    compiled->outputs.clear();
    for (std::size_t i = 0; i < input_count; ++i) compiled->inputs.push_back(*inputs[i]);
    for (std::size_t i = 0; i < output_count; ++i) {
        description lt = *outputs[i];
        if (!convolution) {
            lt.ndims = inputs[0]->ndims;
            std::copy(inputs[0]->dims, inputs[0]->dims + lt.ndims, lt.dims);
        }
        if (lt.layout_type == dnnl_graph_layout_type_any) {
            set_packed(lt);
            if (!convolution) {
                lt.layout_type = dnnl_graph_layout_type_opaque;
                lt.layout.layout_id = own_layout;
            }
        }
        compiled->outputs.push_back(lt);
    }
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_compiled_partition_execute_v2(
    const_dnnl_graph_compiled_partition_t compiled, dnnl_stream_t stream, std::size_t input_count,
    const_dnnl_graph_tensor_t *inputs, std::size_t output_count, const_dnnl_graph_tensor_t *outputs,
    const_dnnl_graph_tensor_t) {
    if (compiled->body == nullptr) std::abort();  // as the real one
    if (input_count == 0 || output_count == 0) return dnnl_invalid_arguments;
    ++executions;
    dnnl_engine *engine = stream->engine;
    if (engine->allocate != nullptr) engine->deallocate(engine->allocate(64, 64));
    compute(*compiled, *inputs[0], *outputs[0]);
    return dnnl_success;
}
/// By the other one's name, as the real one: with the drop-in before, that is the drop-in's.
FAKE_API dnnl_status_t dnnl_graph_compiled_partition_execute(
    const_dnnl_graph_compiled_partition_t compiled, dnnl_stream_t stream, std::size_t input_count,
    const_dnnl_graph_tensor_t *inputs, std::size_t output_count,
    const_dnnl_graph_tensor_t *outputs) {
    return dnnl_graph_compiled_partition_execute_v2(
        compiled, stream, input_count, inputs, output_count, outputs, nullptr);
}
FAKE_API dnnl_status_t dnnl_graph_compiled_partition_query_logical_tensor(
    const_dnnl_graph_compiled_partition_t compiled, std::size_t id, description *lt) {
    for (const auto *list : {&compiled->inputs, &compiled->outputs})
        for (const description &known : *list)
            if (known.id == id) *lt = known;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_compiled_partition_get_inplace_ports(
    const_dnnl_graph_compiled_partition_t, std::size_t *count,
    const dnnl_graph_inplace_pair_t **pairs) {
    static const dnnl_graph_inplace_pair_t pair = {90, 91};
    *count = 1;
    *pairs = &pair;
    return dnnl_success;
}

FAKE_API dnnl_status_t dnnl_graph_get_compiled_partition_cache_capacity(int *capacity) {
    *capacity = cache_capacity;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_set_compiled_partition_cache_capacity(int capacity) {
    cache_capacity = capacity;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_set_constant_tensor_cache(int flag) {
    constant_cache = flag;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_get_constant_tensor_cache(int *flag) {
    *flag = constant_cache;
    return dnnl_success;
}

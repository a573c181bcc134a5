// The functions of oneDNN Graph's C interface: exported by this library, and looked for in the
// oneDNN behind it. Handles are pointers to objects of this library's own where it is alone; in
// front of oneDNN they are oneDNN's and never looked into (behind.hpp).
#pragma once

#include "onednn/abi.hpp"

namespace convgrad::onednn {
struct allocator;
struct client_compiled_partition;
struct client_engine;
struct client_graph;
struct client_op;
struct client_partition;
struct client_stream;
struct client_tensor;

// Allocators and engines.
CONVGRAD_ONEDNN_API status dnnl_graph_allocator_create(
    allocator **made, host_allocate allocate, host_deallocate deallocate);
CONVGRAD_ONEDNN_API status dnnl_graph_allocator_destroy(allocator *given);
CONVGRAD_ONEDNN_API status dnnl_graph_make_engine_with_allocator(
    client_engine **engine, engine_kind_value kind, std::size_t index, const allocator *given);

// Logical tensors.
CONVGRAD_ONEDNN_API status dnnl_graph_logical_tensor_init(tensor_description *made, std::size_t id,
    element_type type, std::int32_t ndims, layout_type layout, property_type property);
CONVGRAD_ONEDNN_API status dnnl_graph_logical_tensor_init_with_dims(tensor_description *made,
    std::size_t id, element_type type, std::int32_t ndims, const std::int64_t *dims,
    layout_type layout, property_type property);
CONVGRAD_ONEDNN_API status dnnl_graph_logical_tensor_init_with_strides(tensor_description *made,
    std::size_t id, element_type type, std::int32_t ndims, const std::int64_t *dims,
    const std::int64_t *strides, property_type property);
CONVGRAD_ONEDNN_API status dnnl_graph_logical_tensor_get_mem_size(
    const tensor_description *lt, std::size_t *size);
CONVGRAD_ONEDNN_API status dnnl_graph_logical_tensor_is_equal(
    const tensor_description *a, const tensor_description *b, std::uint8_t *equal);

// Ops.
CONVGRAD_ONEDNN_API status dnnl_graph_op_create(
    client_op **made, std::size_t id, graph_op_kind kind, const char *name);
CONVGRAD_ONEDNN_API status dnnl_graph_op_destroy(client_op *op);
CONVGRAD_ONEDNN_API status dnnl_graph_op_add_input(client_op *op, const tensor_description *input);
CONVGRAD_ONEDNN_API status dnnl_graph_op_add_output(
    client_op *op, const tensor_description *output);
CONVGRAD_ONEDNN_API status dnnl_graph_op_set_attr_f32(
    client_op *op, graph_attribute name, const float *value, std::size_t length);
CONVGRAD_ONEDNN_API status dnnl_graph_op_set_attr_bool(
    client_op *op, graph_attribute name, const std::uint8_t *value, std::size_t length);
CONVGRAD_ONEDNN_API status dnnl_graph_op_set_attr_s64(
    client_op *op, graph_attribute name, const std::int64_t *value, std::size_t length);
CONVGRAD_ONEDNN_API status dnnl_graph_op_set_attr_str(
    client_op *op, graph_attribute name, const char *value, std::size_t length);
CONVGRAD_ONEDNN_API status dnnl_graph_op_get_id(const client_op *op, std::size_t *id);
CONVGRAD_ONEDNN_API status dnnl_graph_op_get_kind(const client_op *op, graph_op_kind *kind);

// Graphs.
CONVGRAD_ONEDNN_API status dnnl_graph_graph_create_with_fpmath_mode(
    client_graph **made, engine_kind_value engine, fpmath_mode mode);
CONVGRAD_ONEDNN_API status dnnl_graph_graph_create(client_graph **made, engine_kind_value engine);
CONVGRAD_ONEDNN_API status dnnl_graph_graph_destroy(client_graph *graph);
CONVGRAD_ONEDNN_API status dnnl_graph_graph_set_fpmath_mode(
    client_graph *graph, fpmath_mode mode, int apply_to_int);
CONVGRAD_ONEDNN_API status dnnl_graph_graph_get_fpmath_mode(
    client_graph *graph, fpmath_mode *mode, int *apply_to_int);
CONVGRAD_ONEDNN_API status dnnl_graph_add_op(client_graph *graph, const client_op *op);
CONVGRAD_ONEDNN_API status dnnl_graph_graph_finalize(client_graph *graph);
CONVGRAD_ONEDNN_API status dnnl_graph_graph_is_finalized(
    client_graph *graph, std::uint8_t *finalized);
CONVGRAD_ONEDNN_API status dnnl_graph_graph_filter(client_graph *graph, partition_policy policy);
CONVGRAD_ONEDNN_API status dnnl_graph_graph_get_partition_num(
    const client_graph *graph, std::size_t *count);
CONVGRAD_ONEDNN_API status dnnl_graph_graph_get_partitions(
    client_graph *graph, std::size_t count, client_partition **made);

// Partitions and compiled partitions.
CONVGRAD_ONEDNN_API status dnnl_graph_partition_create_with_op(
    client_partition **made, const client_op *op, engine_kind_value engine);
CONVGRAD_ONEDNN_API status dnnl_graph_partition_destroy(client_partition *partition);
CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_op_num(
    const client_partition *partition, std::size_t *count);
CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_ops(
    client_partition *partition, std::size_t count, std::size_t *ids);
CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_id(
    const client_partition *partition, std::size_t *id);
CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_input_ports_num(
    const client_partition *partition, std::size_t *count);
CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_input_ports(
    const client_partition *partition, std::size_t count, tensor_description *ports);
CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_output_ports_num(
    const client_partition *partition, std::size_t *count);
CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_output_ports(
    const client_partition *partition, std::size_t count, tensor_description *ports);
CONVGRAD_ONEDNN_API status dnnl_graph_partition_is_supported(
    const client_partition *partition, std::uint8_t *supported);
CONVGRAD_ONEDNN_API status dnnl_graph_partition_get_engine_kind(
    const client_partition *partition, engine_kind_value *kind);
CONVGRAD_ONEDNN_API status dnnl_graph_partition_compile(client_partition *partition,
    client_compiled_partition *compiled, std::size_t input_count, const tensor_description **inputs,
    std::size_t output_count, const tensor_description **outputs, client_engine *engine);
CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_create(
    client_compiled_partition **made, client_partition *partition);
CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_destroy(
    client_compiled_partition *compiled);
CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_execute_v2(
    const client_compiled_partition *compiled, client_stream *stream, std::size_t input_count,
    const client_tensor **inputs, std::size_t output_count, const client_tensor **outputs,
    const client_tensor *scratchpad);
CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_execute(
    const client_compiled_partition *compiled, client_stream *stream, std::size_t input_count,
    const client_tensor **inputs, std::size_t output_count, const client_tensor **outputs);
CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_query_logical_tensor(
    const client_compiled_partition *compiled, std::size_t id, tensor_description *lt);
CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_get_inplace_ports(
    const client_compiled_partition *compiled, std::size_t *count, const inplace_pair **pairs);
CONVGRAD_ONEDNN_API status dnnl_graph_compiled_partition_get_scratchpad_logical_tensor(
    const client_compiled_partition *compiled, tensor_description *lt);

// Tensors.
CONVGRAD_ONEDNN_API status dnnl_graph_tensor_create(
    client_tensor **made, const tensor_description *lt, client_engine *engine, void *handle);
CONVGRAD_ONEDNN_API status dnnl_graph_tensor_create_scalar(
    client_tensor **made, const tensor_description *lt, void *handle);
CONVGRAD_ONEDNN_API status dnnl_graph_tensor_destroy(client_tensor *given);
CONVGRAD_ONEDNN_API status dnnl_graph_tensor_get_data_handle(
    const client_tensor *tensor, void **handle);
CONVGRAD_ONEDNN_API status dnnl_graph_tensor_set_data_handle(client_tensor *tensor, void *handle);
CONVGRAD_ONEDNN_API status dnnl_graph_tensor_get_engine(
    const client_tensor *tensor, client_engine **engine);
CONVGRAD_ONEDNN_API status dnnl_graph_tensor_get_logical_tensor(
    const client_tensor *tensor, tensor_description *lt);

// Settings, and SYCL's side of the interface.
CONVGRAD_ONEDNN_API status dnnl_graph_get_compiled_partition_cache_capacity(int *capacity);
CONVGRAD_ONEDNN_API status dnnl_graph_set_compiled_partition_cache_capacity(int capacity);
CONVGRAD_ONEDNN_API status dnnl_graph_set_constant_tensor_cache_capacity(
    engine_kind_value kind, std::size_t megabytes);
CONVGRAD_ONEDNN_API status dnnl_graph_get_constant_tensor_cache_capacity(
    engine_kind_value kind, std::size_t *megabytes);
CONVGRAD_ONEDNN_API status dnnl_graph_set_constant_tensor_cache(int flag);
CONVGRAD_ONEDNN_API status dnnl_graph_get_constant_tensor_cache(int *flag);
CONVGRAD_ONEDNN_API status dnnl_graph_set_dump_mode(unsigned modes);
CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_allocator_create(
    allocator **made, void *allocate, void *deallocate);
CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_make_engine_with_allocator(
    client_engine **engine, const void *device, const void *context, const allocator *given);
CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_compiled_partition_execute(
    const client_compiled_partition *compiled, client_stream *stream, std::size_t input_count,
    const client_tensor **inputs, std::size_t output_count, const client_tensor **outputs,
    const void *dependencies, void *event);
CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_compiled_partition_execute_v2(
    const client_compiled_partition *compiled, client_stream *stream, std::size_t input_count,
    const client_tensor **inputs, std::size_t output_count, const client_tensor **outputs,
    const client_tensor *scratchpad, const void *dependencies, void *event);

}  // namespace convgrad::onednn

// The functions (without `dnnl_graph_`) that every oneDNN 3.x with graphs has.
#define CONVGRAD_ONEDNN_FUNCTIONS(X)                                                               \
    X(allocator_create)                                                                            \
    X(allocator_destroy)                                                                           \
    X(make_engine_with_allocator)                                                                  \
    X(logical_tensor_init)                                                                         \
    X(logical_tensor_init_with_dims)                                                               \
    X(logical_tensor_init_with_strides)                                                            \
    X(logical_tensor_get_mem_size)                                                                 \
    X(logical_tensor_is_equal)                                                                     \
    X(op_create)                                                                                   \
    X(op_destroy)                                                                                  \
    X(op_add_input)                                                                                \
    X(op_add_output)                                                                               \
    X(op_set_attr_f32)                                                                             \
    X(op_set_attr_bool)                                                                            \
    X(op_set_attr_s64)                                                                             \
    X(op_set_attr_str)                                                                             \
    X(op_get_id)                                                                                   \
    X(op_get_kind)                                                                                 \
    X(graph_create_with_fpmath_mode)                                                               \
    X(graph_create)                                                                                \
    X(graph_destroy)                                                                               \
    X(add_op)                                                                                      \
    X(graph_finalize)                                                                              \
    X(graph_is_finalized)                                                                          \
    X(graph_filter)                                                                                \
    X(graph_get_partition_num)                                                                     \
    X(graph_get_partitions)                                                                        \
    X(partition_create_with_op)                                                                    \
    X(partition_destroy)                                                                           \
    X(partition_get_op_num)                                                                        \
    X(partition_get_ops)                                                                           \
    X(partition_get_id)                                                                            \
    X(partition_get_input_ports_num)                                                               \
    X(partition_get_input_ports)                                                                   \
    X(partition_get_output_ports_num)                                                              \
    X(partition_get_output_ports)                                                                  \
    X(partition_is_supported)                                                                      \
    X(partition_get_engine_kind)                                                                   \
    X(partition_compile)                                                                           \
    X(compiled_partition_create)                                                                   \
    X(compiled_partition_destroy)                                                                  \
    X(compiled_partition_execute)                                                                  \
    X(compiled_partition_query_logical_tensor)                                                     \
    X(compiled_partition_get_inplace_ports)                                                        \
    X(tensor_create)                                                                               \
    X(tensor_destroy)                                                                              \
    X(tensor_get_data_handle)                                                                      \
    X(tensor_set_data_handle)                                                                      \
    X(tensor_get_engine)                                                                           \
    X(get_compiled_partition_cache_capacity)                                                       \
    X(set_compiled_partition_cache_capacity)                                                       \
    X(set_constant_tensor_cache)                                                                   \
    X(get_constant_tensor_cache)

// Those that came with a later 3.x, or with a runtime.
#define CONVGRAD_ONEDNN_LATER_FUNCTIONS(X)                                                         \
    X(graph_set_fpmath_mode)                                                                       \
    X(graph_get_fpmath_mode)                                                                       \
    X(compiled_partition_execute_v2)                                                               \
    X(compiled_partition_get_scratchpad_logical_tensor)                                            \
    X(tensor_create_scalar)                                                                        \
    X(tensor_get_logical_tensor)                                                                   \
    X(set_constant_tensor_cache_capacity)                                                          \
    X(get_constant_tensor_cache_capacity)                                                          \
    X(set_dump_mode)                                                                               \
    X(sycl_interop_allocator_create)                                                               \
    X(sycl_interop_make_engine_with_allocator)                                                     \
    X(sycl_interop_compiled_partition_execute)                                                     \
    X(sycl_interop_compiled_partition_execute_v2)

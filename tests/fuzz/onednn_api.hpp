// The drop-in's functions, as declared for a client, in terms of src/onednn/abi.hpp, whose every
// line the tests compare with oneDNN's own headers. Arguments of enumerated types may have any
// value here, which C++ does not permit for those of oneDNN's header.
#pragma once

#include "onednn/compiled.hpp"
#include "onednn/graph.hpp"
#include "onednn/tensor.hpp"

extern "C" {
using namespace convgrad::onednn;

status dnnl_graph_logical_tensor_init(
    tensor_description *, std::size_t, element_type, std::int32_t, layout_type, property_type);
status dnnl_graph_logical_tensor_init_with_dims(tensor_description *, std::size_t, element_type,
    std::int32_t, const std::int64_t *, layout_type, property_type);
status dnnl_graph_logical_tensor_init_with_strides(tensor_description *, std::size_t, element_type,
    std::int32_t, const std::int64_t *, const std::int64_t *, property_type);
status dnnl_graph_logical_tensor_get_mem_size(const tensor_description *, std::size_t *);
status dnnl_graph_logical_tensor_is_equal(
    const tensor_description *, const tensor_description *, std::uint8_t *);
status dnnl_graph_graph_create_with_fpmath_mode(client_graph **, engine_kind_value, fpmath_mode);
status dnnl_graph_graph_create(client_graph **, engine_kind_value);
status dnnl_graph_graph_destroy(client_graph *);
status dnnl_graph_graph_set_fpmath_mode(client_graph *, fpmath_mode, int);
status dnnl_graph_graph_get_fpmath_mode(client_graph *, fpmath_mode *, int *);
status dnnl_graph_add_op(client_graph *, const client_op *);
status dnnl_graph_graph_finalize(client_graph *);
status dnnl_graph_graph_is_finalized(client_graph *, std::uint8_t *);
status dnnl_graph_graph_filter(client_graph *, partition_policy);
status dnnl_graph_graph_get_partition_num(const client_graph *, std::size_t *);
status dnnl_graph_graph_get_partitions(client_graph *, std::size_t, client_partition **);
status dnnl_graph_op_create(client_op **, std::size_t, graph_op_kind, const char *);
status dnnl_graph_op_destroy(client_op *);
status dnnl_graph_op_add_input(client_op *, const tensor_description *);
status dnnl_graph_op_add_output(client_op *, const tensor_description *);
status dnnl_graph_op_set_attr_f32(client_op *, graph_attribute, const float *, std::size_t);
status dnnl_graph_op_set_attr_bool(client_op *, graph_attribute, const std::uint8_t *, std::size_t);
status dnnl_graph_op_set_attr_s64(client_op *, graph_attribute, const std::int64_t *, std::size_t);
status dnnl_graph_op_set_attr_str(client_op *, graph_attribute, const char *, std::size_t);
status dnnl_graph_op_get_id(const client_op *, std::size_t *);
status dnnl_graph_op_get_kind(const client_op *, graph_op_kind *);
status dnnl_graph_partition_create_with_op(
    client_partition **, const client_op *, engine_kind_value);
status dnnl_graph_partition_destroy(client_partition *);
status dnnl_graph_partition_get_op_num(const client_partition *, std::size_t *);
status dnnl_graph_partition_get_ops(client_partition *, std::size_t, std::size_t *);
status dnnl_graph_partition_get_id(const client_partition *, std::size_t *);
status dnnl_graph_partition_get_input_ports_num(const client_partition *, std::size_t *);
status dnnl_graph_partition_get_input_ports(
    const client_partition *, std::size_t, tensor_description *);
status dnnl_graph_partition_get_output_ports_num(const client_partition *, std::size_t *);
status dnnl_graph_partition_get_output_ports(
    const client_partition *, std::size_t, tensor_description *);
status dnnl_graph_partition_is_supported(const client_partition *, std::uint8_t *);
status dnnl_graph_partition_get_engine_kind(const client_partition *, engine_kind_value *);
status dnnl_graph_partition_compile(client_partition *, client_compiled_partition *, std::size_t,
    const tensor_description **, std::size_t, const tensor_description **, client_engine *);
status dnnl_graph_compiled_partition_create(client_compiled_partition **, client_partition *);
status dnnl_graph_compiled_partition_destroy(client_compiled_partition *);
status dnnl_graph_compiled_partition_execute(const client_compiled_partition *, client_stream *,
    std::size_t, const client_tensor **, std::size_t, const client_tensor **);
status dnnl_graph_compiled_partition_query_logical_tensor(
    const client_compiled_partition *, std::size_t, tensor_description *);
status dnnl_graph_compiled_partition_get_inplace_ports(
    const client_compiled_partition *, std::size_t *, const inplace_pair **);
status dnnl_graph_compiled_partition_get_scratchpad_logical_tensor(
    const client_compiled_partition *, tensor_description *);
status dnnl_engine_create(client_engine **, engine_kind_value, std::size_t);
status dnnl_engine_get_kind(client_engine *, engine_kind_value *);
status dnnl_engine_destroy(client_engine *);
status dnnl_stream_create(client_stream **, client_engine *, unsigned);
status dnnl_stream_get_engine(const client_stream *, client_engine **);
status dnnl_stream_wait(client_stream *);
status dnnl_stream_destroy(client_stream *);
status dnnl_set_default_fpmath_mode(fpmath_mode);
status dnnl_set_verbose(int);
status dnnl_graph_set_compiled_partition_cache_capacity(int);
status dnnl_graph_set_constant_tensor_cache_capacity(engine_kind_value, std::size_t);
status dnnl_graph_set_constant_tensor_cache(int);
status dnnl_graph_set_dump_mode(unsigned);
status dnnl_graph_tensor_create(
    client_tensor **, const tensor_description *, client_engine *, void *);
status dnnl_graph_tensor_create_scalar(client_tensor **, const tensor_description *, void *);
status dnnl_graph_tensor_destroy(client_tensor *);
status dnnl_graph_tensor_get_data_handle(const client_tensor *, void **);
status dnnl_graph_tensor_set_data_handle(client_tensor *, void *);
status dnnl_graph_tensor_get_engine(const client_tensor *, client_engine **);
status dnnl_graph_tensor_get_logical_tensor(const client_tensor *, tensor_description *);
}

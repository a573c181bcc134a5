// Our declarations against oneDNN's headers: every enumerator, every structure member. There is
// nothing to run.
#include <cstddef>
#include <type_traits>

#include <oneapi/dnnl/dnnl_graph.h>

#include "onednn/abi.hpp"

namespace ours = convgrad::onednn;

#define SAME_VALUE(mine, theirs) static_assert(static_cast<int>(mine) == static_cast<int>(theirs))

SAME_VALUE(ours::status::success, dnnl_success);
SAME_VALUE(ours::status::out_of_memory, dnnl_out_of_memory);
SAME_VALUE(ours::status::invalid_arguments, dnnl_invalid_arguments);
SAME_VALUE(ours::status::unimplemented, dnnl_unimplemented);
SAME_VALUE(ours::status::last_impl_reached, dnnl_last_impl_reached);
SAME_VALUE(ours::status::runtime_error, dnnl_runtime_error);
SAME_VALUE(ours::status::not_required, dnnl_not_required);
SAME_VALUE(ours::status::invalid_graph, dnnl_invalid_graph);
SAME_VALUE(ours::status::invalid_graph_op, dnnl_invalid_graph_op);
SAME_VALUE(ours::status::invalid_shape, dnnl_invalid_shape);
SAME_VALUE(ours::status::invalid_data_type, dnnl_invalid_data_type);

SAME_VALUE(ours::element_type::undef, dnnl_data_type_undef);
SAME_VALUE(ours::element_type::f16, dnnl_f16);
SAME_VALUE(ours::element_type::bf16, dnnl_bf16);
SAME_VALUE(ours::element_type::f32, dnnl_f32);
SAME_VALUE(ours::element_type::s32, dnnl_s32);
SAME_VALUE(ours::element_type::s8, dnnl_s8);
SAME_VALUE(ours::element_type::u8, dnnl_u8);
SAME_VALUE(ours::element_type::f64, dnnl_f64);
SAME_VALUE(ours::element_type::boolean, dnnl_boolean);
SAME_VALUE(ours::element_type::f8_e5m2, dnnl_f8_e5m2);
SAME_VALUE(ours::element_type::f8_e4m3, dnnl_f8_e4m3);
SAME_VALUE(ours::element_type::s4, dnnl_s4);
SAME_VALUE(ours::element_type::u4, dnnl_u4);
SAME_VALUE(ours::element_type::e8m0, dnnl_e8m0);
SAME_VALUE(ours::element_type::f4_e2m1, dnnl_f4_e2m1);
SAME_VALUE(ours::element_type::f4_e3m0, dnnl_f4_e3m0);
SAME_VALUE(ours::element_type::s64, dnnl_s64);

SAME_VALUE(ours::engine_kind_value::any, dnnl_any_engine);
SAME_VALUE(ours::engine_kind_value::cpu, dnnl_cpu);
SAME_VALUE(ours::engine_kind_value::gpu, dnnl_gpu);
SAME_VALUE(ours::layout_type::undef, dnnl_graph_layout_type_undef);
SAME_VALUE(ours::layout_type::any, dnnl_graph_layout_type_any);
SAME_VALUE(ours::layout_type::strided, dnnl_graph_layout_type_strided);
SAME_VALUE(ours::layout_type::opaque, dnnl_graph_layout_type_opaque);
SAME_VALUE(ours::property_type::undef, dnnl_graph_tensor_property_undef);
SAME_VALUE(ours::property_type::variable, dnnl_graph_tensor_property_variable);
SAME_VALUE(ours::property_type::constant, dnnl_graph_tensor_property_constant);
SAME_VALUE(ours::property_type::host_scalar, dnnl_graph_tensor_property_host_scalar);
SAME_VALUE(ours::partition_policy::fusion, dnnl_graph_partition_policy_fusion);
SAME_VALUE(ours::partition_policy::debug, dnnl_graph_partition_policy_debug);
SAME_VALUE(ours::fpmath_mode::strict, dnnl_fpmath_mode_strict);
SAME_VALUE(ours::fpmath_mode::bf16, dnnl_fpmath_mode_bf16);
SAME_VALUE(ours::fpmath_mode::f16, dnnl_fpmath_mode_f16);
SAME_VALUE(ours::fpmath_mode::any, dnnl_fpmath_mode_any);
SAME_VALUE(ours::fpmath_mode::tf32, dnnl_fpmath_mode_tf32);
SAME_VALUE(ours::stream_in_order, dnnl_stream_in_order);
SAME_VALUE(ours::stream_out_of_order, dnnl_stream_out_of_order);
SAME_VALUE(ours::dump_mode_none, dnnl_graph_dump_mode_none);
SAME_VALUE(ours::dump_mode_subgraph, dnnl_graph_dump_mode_subgraph);
SAME_VALUE(ours::dump_mode_graph, dnnl_graph_dump_mode_graph);

#define SAME_KIND(name) SAME_VALUE(ours::graph_op_kind::name, dnnl_graph_op_##name);
CONVGRAD_ONEDNN_OP_KINDS(SAME_KIND)
#define SAME_ATTRIBUTE(name, value)                                                                \
    SAME_VALUE(ours::graph_attribute::name, dnnl_graph_op_attr_##name);
CONVGRAD_ONEDNN_ATTRIBUTES(SAME_ATTRIBUTE)

static_assert(ours::max_ndims == DNNL_MAX_NDIMS);
static_assert(ours::unknown_ndims == DNNL_GRAPH_UNKNOWN_NDIMS);
static_assert(ours::unknown_dimension == DNNL_GRAPH_UNKNOWN_DIM);

// Enumerations are passed and stored in the same size.
static_assert(sizeof(ours::status) == sizeof(dnnl_status_t));
static_assert(sizeof(ours::element_type) == sizeof(dnnl_data_type_t));
static_assert(sizeof(ours::engine_kind_value) == sizeof(dnnl_engine_kind_t));
static_assert(sizeof(ours::layout_type) == sizeof(dnnl_graph_layout_type_t));
static_assert(sizeof(ours::property_type) == sizeof(dnnl_graph_tensor_property_t));
static_assert(sizeof(ours::partition_policy) == sizeof(dnnl_graph_partition_policy_t));
static_assert(sizeof(ours::fpmath_mode) == sizeof(dnnl_fpmath_mode_t));
static_assert(sizeof(ours::graph_op_kind) == sizeof(dnnl_graph_op_kind_t));
static_assert(sizeof(ours::graph_attribute) == sizeof(dnnl_graph_op_attr_t));
static_assert(sizeof(unsigned) == sizeof(dnnl_graph_dump_mode_t));

// Structures.
using our_tensor = ours::tensor_description;
using their_tensor = dnnl_graph_logical_tensor_t;
static_assert(sizeof(our_tensor) == sizeof(their_tensor) && sizeof(their_tensor) == 224);
static_assert(alignof(our_tensor) == alignof(their_tensor));
static_assert(std::is_trivially_copyable_v<our_tensor>);
static_assert(offsetof(our_tensor, id) == offsetof(their_tensor, id));
static_assert(offsetof(our_tensor, ndims) == offsetof(their_tensor, ndims));
static_assert(offsetof(our_tensor, dims) == offsetof(their_tensor, dims));
static_assert(offsetof(our_tensor, type) == offsetof(their_tensor, data_type));
static_assert(offsetof(our_tensor, property) == offsetof(their_tensor, property));
static_assert(offsetof(our_tensor, layout) == offsetof(their_tensor, layout_type));
static_assert(offsetof(our_tensor, strides) == offsetof(their_tensor, layout.strides));
static_assert(offsetof(our_tensor, layout_id) == offsetof(their_tensor, layout.layout_id));

using our_pair = ours::inplace_pair;
static_assert(sizeof(our_pair) == sizeof(dnnl_graph_inplace_pair_t));
static_assert(offsetof(our_pair, input_id) == offsetof(dnnl_graph_inplace_pair_t, input_id));
static_assert(offsetof(our_pair, output_id) == offsetof(dnnl_graph_inplace_pair_t, output_id));

using our_version = ours::version_info;
static_assert(sizeof(our_version) == sizeof(dnnl_version_t));
static_assert(offsetof(our_version, major) == offsetof(dnnl_version_t, major));
static_assert(offsetof(our_version, minor) == offsetof(dnnl_version_t, minor));
static_assert(offsetof(our_version, patch) == offsetof(dnnl_version_t, patch));
static_assert(offsetof(our_version, hash) == offsetof(dnnl_version_t, hash));
static_assert(offsetof(our_version, cpu_runtime) == offsetof(dnnl_version_t, cpu_runtime));
static_assert(offsetof(our_version, gpu_runtime) == offsetof(dnnl_version_t, gpu_runtime));

static_assert(std::is_same_v<ours::host_allocate, dnnl_graph_host_allocate_f>);
static_assert(std::is_same_v<ours::host_deallocate, dnnl_graph_host_deallocate_f>);

// The binary interface of oneDNN Graph: values and layouts that a client compiled against oneDNN's
// headers uses. Written down here so that the library needs no foreign header; the tests compare
// every line with the real ones.
//
// Enumerations have a fixed underlying type: a client may pass any value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convgrad::onednn {

enum class status : int {
    success = 0,
    out_of_memory = 1,
    invalid_arguments = 2,
    unimplemented = 3,
    last_impl_reached = 4,
    runtime_error = 5,
    not_required = 6,
    invalid_graph = 7,
    invalid_graph_op = 8,
    invalid_shape = 9,
    invalid_data_type = 10,
};

enum class element_type : int {
    undef = 0,
    f16 = 1,
    bf16 = 2,
    f32 = 3,
    s32 = 4,
    s8 = 5,
    u8 = 6,
    f64 = 7,
    boolean = 8,
    f8_e5m2 = 9,
    f8_e4m3 = 10,
    s4 = 11,
    u4 = 12,
    e8m0 = 13,
    f4_e2m1 = 14,
    f4_e3m0 = 15,
    s64 = 16,
};

enum class engine_kind_value : int { any = 0, cpu = 1, gpu = 2 };
enum class layout_type : int { undef = 0, any = 1, strided = 2, opaque = 3 };
enum class property_type : int { undef = 0, variable = 1, constant = 2, host_scalar = 3 };
enum class partition_policy : int { fusion = 1, debug = 2 };
enum class fpmath_mode : int { strict = 0, bf16 = 1, f16 = 2, any = 3, tf32 = 4 };

/// Bits of a stream's flags.
inline constexpr unsigned stream_in_order = 1, stream_out_of_order = 2;
/// Bits of a dump mode.
inline constexpr unsigned dump_mode_none = 0, dump_mode_subgraph = 1, dump_mode_graph = 2;

inline constexpr int max_ndims = 12;
inline constexpr int unknown_ndims = -1;
/// Unknown dimensions and strides; equals convgrad::unknown_dim.
inline constexpr std::int64_t unknown_dimension = INT64_MIN;

/// The description of a tensor, as clients hold it.
struct tensor_description {
    std::size_t id;
    int ndims;
    std::int64_t dims[max_ndims];
    element_type type;
    property_type property;
    layout_type layout;
    union {
        std::int64_t strides[max_ndims];
        std::size_t layout_id;
    };
};

struct inplace_pair {
    std::size_t input_id, output_id;
};

struct version_info {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
};

using host_allocate = void *(*)(std::size_t size, std::size_t alignment);
using host_deallocate = void (*)(void *);

// Op kinds, in order of their values from 0 on.
#define CONVGRAD_ONEDNN_OP_KINDS(X)                                                                \
    X(abs)                                                                                         \
    X(abs_backward)                                                                                \
    X(add)                                                                                         \
    X(avg_pool)                                                                                    \
    X(avg_pool_backward)                                                                           \
    X(batch_norm_backward)                                                                         \
    X(batch_norm_forward_training)                                                                 \
    X(batch_norm_inference)                                                                        \
    X(bias_add)                                                                                    \
    X(bias_add_backward)                                                                           \
    X(clamp)                                                                                       \
    X(clamp_backward)                                                                              \
    X(concat)                                                                                      \
    X(convolution)                                                                                 \
    X(convolution_backward_data)                                                                   \
    X(convolution_backward_weights)                                                                \
    X(conv_transpose)                                                                              \
    X(conv_transpose_backward_data)                                                                \
    X(conv_transpose_backward_weights)                                                             \
    X(dequantize)                                                                                  \
    X(divide)                                                                                      \
    X(dynamic_dequantize)                                                                          \
    X(dynamic_quantize)                                                                            \
    X(elu)                                                                                         \
    X(elu_backward)                                                                                \
    X(end)                                                                                         \
    X(exp)                                                                                         \
    X(gelu)                                                                                        \
    X(gelu_backward)                                                                               \
    X(hard_swish)                                                                                  \
    X(hard_swish_backward)                                                                         \
    X(interpolate)                                                                                 \
    X(interpolate_backward)                                                                        \
    X(layer_norm)                                                                                  \
    X(layer_norm_backward)                                                                         \
    X(leaky_relu)                                                                                  \
    X(log)                                                                                         \
    X(log_softmax)                                                                                 \
    X(log_softmax_backward)                                                                        \
    X(matmul)                                                                                      \
    X(maximum)                                                                                     \
    X(max_pool)                                                                                    \
    X(max_pool_backward)                                                                           \
    X(minimum)                                                                                     \
    X(mish)                                                                                        \
    X(mish_backward)                                                                               \
    X(multiply)                                                                                    \
    X(prelu)                                                                                       \
    X(prelu_backward)                                                                              \
    X(quantize)                                                                                    \
    X(reciprocal)                                                                                  \
    X(reduce_l1)                                                                                   \
    X(reduce_l2)                                                                                   \
    X(reduce_max)                                                                                  \
    X(reduce_mean)                                                                                 \
    X(reduce_min)                                                                                  \
    X(reduce_prod)                                                                                 \
    X(reduce_sum)                                                                                  \
    X(relu)                                                                                        \
    X(relu_backward)                                                                               \
    X(reorder)                                                                                     \
    X(round)                                                                                       \
    X(sigmoid)                                                                                     \
    X(sigmoid_backward)                                                                            \
    X(softmax)                                                                                     \
    X(softmax_backward)                                                                            \
    X(softplus)                                                                                    \
    X(softplus_backward)                                                                           \
    X(sqrt)                                                                                        \
    X(sqrt_backward)                                                                               \
    X(square)                                                                                      \
    X(squared_difference)                                                                          \
    X(static_reshape)                                                                              \
    X(static_transpose)                                                                            \
    X(subtract)                                                                                    \
    X(tanh)                                                                                        \
    X(tanh_backward)                                                                               \
    X(type_cast)                                                                                   \
    X(wildcard)                                                                                    \
    X(hard_sigmoid)                                                                                \
    X(hard_sigmoid_backward)                                                                       \
    X(select)                                                                                      \
    X(pow)                                                                                         \
    X(group_norm)                                                                                  \
    X(gen_index)                                                                                   \
    X(greater_equal)                                                                               \
    X(rms_norm)                                                                                    \
    X(dropout)                                                                                     \
    X(last_symbol)

enum class graph_op_kind : int {
#define CONVGRAD_ONEDNN_NAME(name) name,
    CONVGRAD_ONEDNN_OP_KINDS(CONVGRAD_ONEDNN_NAME)
#undef CONVGRAD_ONEDNN_NAME
};

// Attributes with their values. The value tells the type: below 0x20 an f32, below 0x30 a list of
// them, below 0x40 an s64, below 0x60 a list of them, below 0x80 a bool, then strings.
#define CONVGRAD_ONEDNN_ATTRIBUTES(X)                                                              \
    X(undef, 0x0)                                                                                  \
    X(alpha, 0x1)                                                                                  \
    X(beta, 0x2)                                                                                   \
    X(epsilon, 0x3)                                                                                \
    X(max, 0x4)                                                                                    \
    X(min, 0x5)                                                                                    \
    X(momentum, 0x6)                                                                               \
    X(scales, 0x20)                                                                                \
    X(axis, 0x30)                                                                                  \
    X(begin_norm_axis, 0x31)                                                                       \
    X(groups, 0x32)                                                                                \
    X(axes, 0x40)                                                                                  \
    X(dilations, 0x41)                                                                             \
    X(dst_shape, 0x42)                                                                             \
    X(kernel, 0x43)                                                                                \
    X(order, 0x44)                                                                                 \
    X(output_padding, 0x45)                                                                        \
    X(pads_begin, 0x46)                                                                            \
    X(pads_end, 0x47)                                                                              \
    X(shape, 0x48)                                                                                 \
    X(sizes, 0x49)                                                                                 \
    X(src_shape, 0x4a)                                                                             \
    X(strides, 0x4b)                                                                               \
    X(weights_shape, 0x4c)                                                                         \
    X(zps, 0x4d)                                                                                   \
    X(group_shape, 0x4e)                                                                           \
    X(exclude_pad, 0x60)                                                                           \
    X(keep_dims, 0x61)                                                                             \
    X(keep_stats, 0x62)                                                                            \
    X(per_channel_broadcast, 0x63)                                                                 \
    X(special_zero, 0x64)                                                                          \
    X(transpose_a, 0x65)                                                                           \
    X(transpose_b, 0x66)                                                                           \
    X(use_affine, 0x67)                                                                            \
    X(use_dst, 0x68)                                                                               \
    X(auto_broadcast, 0x80)                                                                        \
    X(auto_pad, 0x81)                                                                              \
    X(coordinate_transformation_mode, 0x82)                                                        \
    X(data_format, 0x83)                                                                           \
    X(mode, 0x84)                                                                                  \
    X(qtype, 0x85)                                                                                 \
    X(rounding_type, 0x86)                                                                         \
    X(weights_format, 0x87)                                                                        \
    X(accumulation_mode, 0x88)                                                                     \
    X(end, 0xff)

enum class graph_attribute : int {
#define CONVGRAD_ONEDNN_NAME(name, value) name = (value),
    CONVGRAD_ONEDNN_ATTRIBUTES(CONVGRAD_ONEDNN_NAME)
#undef CONVGRAD_ONEDNN_NAME
};

}  // namespace convgrad::onednn

/// Starts the definition of an exported function.
#define CONVGRAD_ONEDNN_API extern "C" __attribute__((visibility("default")))

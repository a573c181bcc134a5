// One call per op, on user memory, without a graph; and single ops compiled for many executions.
//
//   std::vector<float> src(…), diff_dst(…), diff_weights(…);
//   convgrad::convolution_backward_weights({src.data(), {8, 56, 56, 64}},
//       {diff_dst.data(), {8, 56, 56, 64}}, {diff_weights.data(), {3, 3, 64, 64}},
//       {.pads_begin = {1, 1}, .pads_end = {1, 1}});
//
// Output tensors carry their shape; infer_shape() tells it beforehand.
#pragma once

#include <convgrad/engine.hpp>
#include <convgrad/formats.hpp>
#include <convgrad/graph.hpp>
#include <convgrad/tensor.hpp>

namespace convgrad {
inline namespace CONVGRAD_ABI {

/// Attributes of an eager call. Empty lists mean: strides and dilations 1, pads and output_padding
/// 0; without a weights_format it is XIO (convolution) or XOI (transposed convolution). Words are
/// enumerations or text: `auto_pad::valid`, `"valid"`.
struct attributes {
    dims strides = {};
    dims pads_begin = {};
    dims pads_end = {};
    dims dilations = {};
    word<convgrad::auto_pad> auto_pad = convgrad::auto_pad::none;
    dim groups = 1;
    word<convgrad::data_format> data_format = convgrad::data_format::nxc;
    std::optional<word<convgrad::weights_format>> weights_format = {};
    dims output_padding = {};
};

/// What goes beyond the operation set's documents: see `docs/beyond.md`.
struct options {
    /// Add into the output (gradients) instead of overwriting it.
    bool accumulate = false;
    /// For weights gradients: also receives the sum of diff_dst over batch and space.
    const tensor *diff_bias = nullptr;
    /// For forward ops: max(0, ·) is applied to the result.
    bool relu = false;
    /// For forward ops: a tensor of dst's shape that is added before the ReLU.
    const const_tensor *add = nullptr;
    /// Where to run; null: default_engine().
    const engine *on = nullptr;
    /// The queue to run in, on its own engine: the call returns when the work is queued. Null: one
    /// of the engine's, and the call returns when the work is complete.
    const stream *queue = nullptr;
};

/// The same for ops that are compiled: tensors come with each execution, so that here they are
/// flags.
struct compile_options {
    /// As in `options`.
    bool accumulate = false;
    /// Weights gradients: the last output is the bias gradient.
    bool diff_bias = false;
    bool relu = false;
    /// Forward ops: the last input is a tensor to add.
    bool add = false;
    /// Where to run; null: default_engine().
    const engine *on = nullptr;
};

/// `bias` may be an empty tensor (`{}`).
CONVGRAD_API void convolution(const const_tensor &src, const const_tensor &weights,
    const const_tensor &bias, const tensor &dst, const attributes &attrs = {},
    const options &opts = {});
CONVGRAD_API void convolution_backward_data(const const_tensor &diff_dst,
    const const_tensor &weights, const tensor &diff_src, const attributes &attrs = {},
    const options &opts = {});
CONVGRAD_API void convolution_backward_weights(const const_tensor &src,
    const const_tensor &diff_dst, const tensor &diff_weights, const attributes &attrs = {},
    const options &opts = {});
CONVGRAD_API void conv_transpose(const const_tensor &src, const const_tensor &weights,
    const const_tensor &bias, const tensor &dst, const attributes &attrs = {},
    const options &opts = {});
CONVGRAD_API void conv_transpose_backward_data(const const_tensor &diff_dst,
    const const_tensor &weights, const tensor &diff_src, const attributes &attrs = {},
    const options &opts = {});
CONVGRAD_API void conv_transpose_backward_weights(const const_tensor &src,
    const const_tensor &diff_dst, const tensor &diff_weights, const attributes &attrs = {},
    const options &opts = {});
/// The gradient of a bias alone: the sum of diff_dst over batch and space. Of `attrs` it takes
/// data_format, of `opts` accumulate.
CONVGRAD_API void bias_add_backward(const const_tensor &diff_dst, const tensor &diff_bias,
    const attributes &attrs = {}, const options &opts = {});

/// Both gradients of one convolution, reading diff_dst once.
CONVGRAD_API void convolution_backward(const const_tensor &src, const const_tensor &diff_dst,
    const const_tensor &weights, const tensor &diff_src, const tensor &diff_weights,
    const attributes &attrs = {}, const options &opts = {});
/// Both gradients of one transposed convolution.
CONVGRAD_API void conv_transpose_backward(const const_tensor &src, const const_tensor &diff_dst,
    const const_tensor &weights, const tensor &diff_src, const tensor &diff_weights,
    const attributes &attrs = {}, const options &opts = {});

/// One op made ready for given tensors, with all that an eager call offers. `inputs` and `outputs`
/// are the op's own, in its order, with those of `opts` behind them; ids need not differ. Execute
/// with tensors in the same order. Shape inputs work as in graphs.
[[nodiscard]] CONVGRAD_API compiled_partition compile(op_kind kind,
    list_view<logical_tensor> inputs, list_view<logical_tensor> outputs,
    const attributes &attrs = {}, const compile_options &opts = {});

/// Both gradients of a layer made ready: `layer` is convolution or conv_transpose, inputs are src,
/// diff_dst, weights; outputs are diff_src, diff_weights and optionally diff_bias.
[[nodiscard]] CONVGRAD_API compiled_partition compile_backward(op_kind layer,
    list_view<logical_tensor> inputs, list_view<logical_tensor> outputs,
    const attributes &attrs = {}, const compile_options &opts = {});

/// The shape of output 0 for inputs of these shapes. `first` and `second` are inputs 0 and 1 (of an
/// op with one input, `second` is empty). For weights gradients `second` is diff_dst, and the
/// kernel size cannot be inferred: invalid_shape.
[[nodiscard]] CONVGRAD_API dims infer_shape(
    op_kind kind, const dims &first, const dims &second, const attributes &attrs = {});

/// The padding that auto_pad stands for, or the explicit one: begin and end per spatial axis.
struct resolved_pads {
    dims begin, end;
};
/// `data` is the shape from which the specification takes the length (section 4): src, or diff_dst
/// for the transposed gradients; `other` is the second data tensor where one is known (diff_dst of
/// ConvolutionBackwardData, whose `data` is diff_src), else empty.
[[nodiscard]] CONVGRAD_API resolved_pads resolve_pads(op_kind kind, const dims &data,
    const dims &other, const dims &kernel, const attributes &attrs = {});

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

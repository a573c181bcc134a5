// Single ops compiled without a graph.
#include <convgrad/eager.hpp>

#include "graph/compiled.hpp"
#include "op/guard.hpp"
#include "op/message.hpp"

namespace convgrad {
inline namespace CONVGRAD_ABI {
namespace {

using tensor_list = std::span<const logical_tensor>;

[[noreturn]] void refuse(op_kind kind, const std::string &text) {
    ops::fail(error_code::invalid_argument, kind, {}, text);
}

/// Rank of the data tensors, from the first input.
std::size_t rank_of(op_kind kind, tensor_list inputs) {
    if (inputs.empty() || !inputs[0].shape)
        refuse(kind, "compiling needs the whole shape of every input; input 0 has none");
    return inputs[0].shape->size();
}

/// A stage whose tensors are at `inputs` and `outputs` of the partition's, of which `ins` are
/// known.
stage make_stage(op_kind kind, tensor_list ins, std::vector<std::size_t> inputs,
    std::vector<std::size_t> outputs, const attributes &attrs, const compile_options &opts) {
    stage made;
    made.attrs = ops::parse(kind, attrs, rank_of(kind, ins), flags_of(opts));
    made.inputs = std::move(inputs);
    made.outputs = std::move(outputs);
    return made;
}

std::vector<std::size_t> first_positions(std::size_t count) {
    std::vector<std::size_t> positions(count);
    for (std::size_t i = 0; i < count; ++i) positions[i] = i;
    return positions;
}

std::vector<logical_tensor> copy_of(tensor_list list) {
    return {list.begin(), list.end()};
}

void check_bias_output(
    op_kind kind, const compile_options &opts, std::size_t outputs, std::size_t with) {
    if (opts.diff_bias && outputs != with)
        refuse(kind, ops::cat("option diff_bias is set, but ", outputs,
                         " outputs are given; the "
                         "bias gradient is output ",
                         with - 1));
}

}  // namespace

compiled_partition compile(op_kind kind, list_view<logical_tensor> inputs,
    list_view<logical_tensor> outputs, const attributes &attrs, const compile_options &opts) {
    return guarded("compile", [&] {
        std::vector<std::size_t> positions = first_positions(inputs.size());
        const bool absent_bias = opts.add && inputs.size() == 3;
        if (absent_bias) positions.insert(positions.begin() + 2, stage::absent);
        if (opts.add && (inputs.size() < 3 || inputs.size() > 4))
            refuse(kind, ops::cat("option add is set, but ", inputs.size(),
                             " inputs are given; it "
                             "takes src, weights, optionally bias, and the tensor to add"));
        check_bias_output(kind, opts, outputs.size(), 2);
        std::vector<stage> stages;
        stages.push_back(make_stage(
            kind, inputs, std::move(positions), first_positions(outputs.size()), attrs, opts));
        return compiled_partition(
            compile_stages(std::move(stages), copy_of(inputs), copy_of(outputs), engine_of(opts)));
    });
}

compiled_partition compile_backward(op_kind layer, list_view<logical_tensor> inputs,
    list_view<logical_tensor> outputs, const attributes &attrs, const compile_options &opts) {
    return guarded("compile_backward", [&] {
        const bool plain = layer == op_kind::convolution;
        if (!plain && layer != op_kind::conv_transpose)
            refuse(layer,
                "compile_backward takes the kind of the layer: Convolution or ConvTranspose");
        const op_kind data_kind =
            plain ? op_kind::convolution_backward_data : op_kind::conv_transpose_backward_data;
        const op_kind weights_kind = plain ? op_kind::convolution_backward_weights
                                           : op_kind::conv_transpose_backward_weights;
        if (inputs.size() != 3 || outputs.size() < 2 || outputs.size() > 3)
            refuse(layer, ops::cat("compile_backward was given ", inputs.size(), " inputs and ",
                              outputs.size(),
                              " outputs; it takes src, diff_dst, weights, and diff_src, "
                              "diff_weights, optionally diff_bias"));
        check_bias_output(weights_kind, opts, outputs.size(), 3);
        compile_options data_options = opts;
        data_options.diff_bias = false;
        std::vector<std::size_t> weights_outputs = {1};
        if (outputs.size() == 3) weights_outputs.push_back(2);
        std::vector<stage> stages;
        stages.push_back(make_stage(data_kind, inputs, {1, 2}, {0}, attrs, data_options));
        stages.push_back(
            make_stage(weights_kind, inputs, {0, 1}, std::move(weights_outputs), attrs, opts));
        return compiled_partition(
            compile_stages(std::move(stages), copy_of(inputs), copy_of(outputs), engine_of(opts)));
    });
}

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

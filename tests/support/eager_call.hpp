// An eager call with the op as a value.
#pragma once

#include <convgrad/eager.hpp>

namespace convgrad::test {

/// `bias` is used by the two forward ops only and may be empty.
inline void call_eager(op_kind kind, const tensor &in0, const tensor &in1, const tensor &bias,
    const tensor &out, const attributes &attrs, const options &opts = {}) {
    switch (kind) {
    case op_kind::convolution:
        return convolution(in0, in1, bias, out, attrs, opts);
    case op_kind::convolution_backward_data:
        return convolution_backward_data(in0, in1, out, attrs, opts);
    case op_kind::convolution_backward_weights:
        return convolution_backward_weights(in0, in1, out, attrs, opts);
    case op_kind::conv_transpose:
        return conv_transpose(in0, in1, bias, out, attrs, opts);
    case op_kind::conv_transpose_backward_data:
        return conv_transpose_backward_data(in0, in1, out, attrs, opts);
    case op_kind::conv_transpose_backward_weights:
        return conv_transpose_backward_weights(in0, in1, out, attrs, opts);
    case op_kind::bias_add_backward:
        return bias_add_backward(in0, out, attrs, opts);
    default:
        break;  // computes in graphs only
    }
}

}  // namespace convgrad::test

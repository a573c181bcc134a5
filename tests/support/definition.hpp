// The six ops computed straight from the specification's sentences: op attributes in, f64 out.
//
// A second opinion on the reference. It shares no code with src/: where the reference gathers the
// terms of each output element from canonical strides, this walks over all pairs of an output
// position and a tap and scatters each product.
#pragma once

#include <vector>

#include <convgrad/eager.hpp>

namespace convgrad::test {

/// A packed tensor of f64.
struct dense {
    dims shape;
    std::vector<double> values;

    dense() = default;
    explicit dense(dims shape_);
};

/// Spatial lengths of dst of Convolution, or diff_src of ConvTransposeBackwardData (section 5).
/// Entries below 1 mean that the kernel does not fit.
dims defined_convolution_lengths(
    op_kind kind, const attributes &attrs, const dims &longer, const dims &kernel);
/// Spatial lengths of dst of ConvTranspose. Entries below 1 mean that there is nothing.
dims defined_transpose_lengths(
    op_kind kind, const attributes &attrs, const dims &shorter, const dims &kernel);

/// Output 0 of an op (section 6). `output` gives its shape; `bias` may be null.
dense defined_result(op_kind kind, const attributes &attrs, const dense &in0, const dense &in1,
    const dense *bias, const dims &output);

}  // namespace convgrad::test

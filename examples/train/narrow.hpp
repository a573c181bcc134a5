// The 16-bit copies on which convolutions work.
#pragma once

#include <vector>

#include <convgrad/tensor.hpp>

namespace convgrad::train {

/// A tensor of the convolutions' data type beside an f32 array. For f32 the array itself serves.
class narrow_copy {
public:
    explicit narrow_copy(data_type type) : type_(type) {}

    /// The array, rounded, ready to be read.
    const_tensor rounded(const std::vector<float> &from, const dims &shape);
    /// Memory to be written; widen() brings the result into `to`, which is sized here.
    tensor room(std::vector<float> &to, const dims &shape);
    void widen(std::vector<float> &to) const;

private:
    data_type type_;
    std::vector<bf16> bf16_;
    std::vector<f16> f16_;
};

}  // namespace convgrad::train

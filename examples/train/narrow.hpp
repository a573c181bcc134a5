// The 16-bit copies on which convolutions work: conversion from f32 and back.
#pragma once

#include <cstdint>
#include <vector>

#include <convgrad/tensor.hpp>

namespace convgrad::train {

/// Round to nearest even; too large becomes infinity, NaN stays NaN.
std::uint16_t to_bf16(float x);
float from_bf16(std::uint16_t x);
std::uint16_t to_f16(float x);
float from_f16(std::uint16_t x);

/// A tensor of the convolutions' data type beside an f32 array. For f32 the array itself serves.
class narrow_copy {
public:
    explicit narrow_copy(data_type type) : type_(type) {}

    /// The array, rounded, ready to be read.
    tensor rounded(const std::vector<float> &from, const dims &shape);
    /// Memory to be written; widen() brings the result into `to`, which is sized here.
    tensor room(std::vector<float> &to, const dims &shape);
    void widen(std::vector<float> &to) const;

private:
    data_type type_;
    std::vector<std::uint16_t> bits_;
};

}  // namespace convgrad::train

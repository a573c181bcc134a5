// Descriptions of tensors: comparing, joining and printing them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <convgrad/tensor.hpp>

namespace convgrad {

/// True when a tensor of this shape has no elements.
bool is_empty(const dims &shape);

/// True when both lists of strides (empty: packed) put every element at the same place. Strides of
/// axes of length 1, and all strides of an empty tensor, mean nothing.
bool same_layout(const dims &shape, const dims &strides_a, const dims &strides_b);

/// E.g. "f32 [8, ?, 56, 64] with strides [...]".
std::string describe(const logical_tensor &lt);

/// Joins what two descriptions of one tensor know. False when they contradict each other; `into` is
/// unchanged then.
bool join(logical_tensor &into, const logical_tensor &other);

/// Fills what `into` leaves open (type, rank, dimensions, strides, value) from `known`.
void fill_in(logical_tensor &into, const logical_tensor &known);

/// The s32 values that a shape input holds.
dims read_shape(const const_tensor &t);

/// True when both begin at the same address. Of an empty tensor the address means nothing.
bool shares_memory(const const_tensor &a, const const_tensor &b);

}  // namespace convgrad

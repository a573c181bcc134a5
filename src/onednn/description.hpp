// Tensor descriptions: the client's form and the library's.
#pragma once

#include <string>

#include <convgrad/tensor.hpp>

#include "onednn/abi.hpp"

namespace convgrad::onednn {

/// undef for a type that the library does not compute with.
data_type to_data_type(element_type type);

/// "f32", "s8", …; "type 40" for one that is not known.
std::string name_of(element_type type);

/// Rank between unknown and the most that a description holds.
bool has_valid_rank(const tensor_description &lt);

/// Whether two descriptions say the same: type, property, dims and layout (ids are not compared).
bool same_description(const tensor_description &a, const tensor_description &b);

/// Bytes of a strided tensor; 0 where its size is not known or it is empty; SIZE_MAX for layouts
/// that are not strided.
std::size_t memory_size(const tensor_description &lt);

/// For add_op: id, type and, as far as it is known, shape.
logical_tensor port_of(const tensor_description &lt);

/// What compiling needs to know about an input: layout `any` becomes packed. Throws
/// invalid_argument where the type, the layout or the shape is not known.
logical_tensor input_of(const tensor_description &lt);

/// What a client asks of an output; everything but the type may be open. `lenient`: every negative
/// dimension counts as unknown, not only the one value that stands for it.
logical_tensor output_of(const tensor_description &lt, bool lenient);

/// The client's description with shape and strides as compiled: strided, row-major unless told.
tensor_description strided(tensor_description lt, const logical_tensor &compiled);

/// Whether a tensor of this description may be executed as `compiled`, whose shape is known. What
/// the description leaves open is believed.
bool fits(const tensor_description &lt, const logical_tensor &compiled);

/// A tensor of this description at `data`, for execution.
tensor tensor_at(void *data, const logical_tensor &compiled);

}  // namespace convgrad::onednn

// Layouts that a client leaves open.
#pragma once

#include <vector>

#include "graph/compiled.hpp"

namespace convgrad::onednn {

/// The library's tensors of a compile call, and which of them have layout `any`.
struct tensor_list {
    std::vector<logical_tensor> tensors;
    std::vector<bool> open;
};

/// Lays out the data tensors of a stage whose layout is open: channels last, which is the fastest
/// here, and what oneDNN chooses on a CPU. Where the client gives one of them in another order, the
/// open ones are packed: kernels are made for one order.
void choose_layouts(const stage &of, tensor_list &inputs, tensor_list &outputs);

}  // namespace convgrad::onednn

// Nodes of PyTorch's autograd.
#pragma once
#include <torch/csrc/autograd/function.h>

namespace convgrad::operators {

/// PyTorch has counted nodes in two ways.
using node_pointer = std::decay_t<decltype(torch::autograd::Edge::function)>;

template <typename Node>
auto make_node() {
    if constexpr (std::is_same_v<node_pointer, std::shared_ptr<torch::autograd::Node>>)
        return std::shared_ptr<Node>(new Node(), [](Node *node) { deleteNode(node); });
    else
        return c10::make_intrusive<Node>();
}

}  // namespace convgrad::operators

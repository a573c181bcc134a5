// Ops as clients describe them: any kind, any attribute. What is wrong with them is found when they
// are added to a graph.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <convgrad/op.hpp>

#include "graph/core.hpp"
#include "onednn/abi.hpp"
#include "op/copy.hpp"

namespace convgrad::onednn {

using graph_attribute_value =
    std::variant<std::int64_t, dims, std::string, float, std::vector<float>, bool>;

struct client_op {
    client_op() = default;
    client_op(const client_op &other)
        : id(other.id), kind(other.kind), name(other.name),
          attributes(ops::copy_of(other.attributes)), inputs(other.inputs), outputs(other.outputs) {
    }
    client_op &operator=(const client_op &) = delete;

    std::size_t id = 0;
    graph_op_kind kind = graph_op_kind::wildcard;
    std::string name;
    std::map<graph_attribute, graph_attribute_value> attributes;
    std::vector<tensor_description> inputs, outputs;
};

/// "Convolution", "BiasAdd", …; kinds without a part in anything here by the name of their value
/// ("matmul"), unknown ones by its number ("op 91").
std::string name_of(graph_op_kind kind);

/// Whether the library computes ops of this kind by themselves.
bool is_family(graph_op_kind kind);

/// An op of a graph: as the client has it, and as the library sees it.
struct graph_op {
    std::shared_ptr<const client_op> given;
    graph_node node;
};

/// Checks and copies. Throws invalid_op for an op that the library computes and that is wrong; a
/// BiasAdd, Add or ReLU that it could not fuse is foreign to it, like ops of other kinds.
graph_op make_graph_op(const client_op &given);

/// An op that the library has no part in, whatever its kind.
graph_op make_foreign_op(const client_op &given);

}  // namespace convgrad::onednn

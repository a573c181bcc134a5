// Ops as clients describe them: any kind, any attribute. What is wrong with them is found when they
// are added to a graph.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <convgrad/op.hpp>

#include "onednn/abi.hpp"
#include "op/copy.hpp"
#include "op/lower.hpp"

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

    /// The string attribute `name`, or `otherwise`.
    [[nodiscard]] std::string_view text(graph_attribute name, std::string_view otherwise) const;
};

/// One of the ops that the library computes.
bool is_family(graph_op_kind kind);

/// "Convolution", "BiasAdd", …; kinds without a part in anything here are "op 39".
std::string name_of(graph_op_kind kind);

/// An op of the family, checked.
struct family_op {
    std::shared_ptr<const op> node;  // owns the name that attrs.op_name refers to
    ops::parsed_attributes attrs;
};

/// Throws invalid_op.
family_op check(const client_op &given);

}  // namespace convgrad::onednn

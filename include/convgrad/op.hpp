// Operations by name with attributes by name: the form that graphs hold.
#pragma once

#include <concepts>
#include <map>
#include <string>
#include <variant>

#include <convgrad/formats.hpp>
#include <convgrad/op_kind.hpp>
#include <convgrad/tensor.hpp>

namespace convgrad {
inline namespace CONVGRAD_ABI {

/// The value of an attribute. Which alternative an attribute takes is in its op's schema.
using attribute_value = std::variant<std::int64_t, dims, std::string, float, bool>;

/// The kind named by `name`: the specification's name, an older one ("ConvolutionBackpropWeights"),
/// or either with a version ("-1"). Throws invalid_op, proposing the nearest name.
[[nodiscard]] CONVGRAD_API op_kind op_kind_from_name(std::string_view name);

/// One operation of a graph: its kind, attributes, and the tensors it reads and writes.
class CONVGRAD_API op {
public:
    op(std::size_t id, op_kind kind, std::string name = {});
    op(std::size_t id, std::string_view kind_name, std::string name = {});
    op(const op &other);
    op(op &&other) noexcept = default;
    op &operator=(const op &other);
    op &operator=(op &&other) noexcept = default;
    ~op() = default;

    /// Sets an attribute. Name, type and range are checked when the op is added to a graph.
    op &set(std::string_view attribute, attribute_value value);
    op &set(std::string_view attribute, const char *value);
    op &set(std::string_view attribute, dims value);
    op &set(std::string_view attribute, auto_pad value);
    op &set(std::string_view attribute, data_format value);
    op &set(std::string_view attribute, weights_format value);
    /// Integers of any size; a bool or a float keeps its own type.
    template <std::integral Integer>
    requires(!std::same_as<Integer, bool>) op &set(std::string_view attribute, Integer value) {
        return set(attribute, attribute_value(static_cast<std::int64_t>(value)));
    }

    op &add_input(logical_tensor input);
    op &add_output(logical_tensor output);

    [[nodiscard]] std::size_t id() const noexcept { return id_; }
    [[nodiscard]] op_kind kind() const noexcept { return kind_; }
    [[nodiscard]] const std::string &name() const noexcept { return name_; }
    [[nodiscard]] const std::map<std::string, attribute_value, std::less<>> &
    attributes() const noexcept {
        return attributes_;
    }
    [[nodiscard]] const std::vector<logical_tensor> &inputs() const noexcept { return inputs_; }
    [[nodiscard]] const std::vector<logical_tensor> &outputs() const noexcept { return outputs_; }

private:
    std::size_t id_;
    op_kind kind_;
    std::string name_;
    std::map<std::string, attribute_value, std::less<>> attributes_;
    std::vector<logical_tensor> inputs_, outputs_;
};

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

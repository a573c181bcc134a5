// Logical tensors (what a graph talks about) and tensors (memory with a description).
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#include <convgrad/types.hpp>

namespace convgrad {
inline namespace CONVGRAD_ABI {

/// A list that a call reads: a braced list, a vector, an array or a span. Like std::string_view for
/// strings, it owns nothing: meant for parameters only.
template <typename T>
class list_view : public std::span<const T> {
public:
    using std::span<const T>::span;
    list_view(std::initializer_list<T> list) : std::span<const T>(list.begin(), list.size()) {}
};

/// An edge of a graph: an id, a type and as much of the shape as is known.
struct logical_tensor {
    std::size_t id = 0;
    data_type type = data_type::undef;
    /// nullopt: the rank is unknown. Single dimensions may be `unknown_dim`.
    std::optional<dims> shape;
    /// In elements, one per dimension; empty means packed, last dimension innermost.
    dims strides;
    /// The value of a constant shape input (s32), where it is known before execution.
    std::optional<dims> value;
    /// A promise about an input: what lies at one address stays as it is from execution to
    /// execution, until compiled_partition::forget_constants(). Of weights, executions may then
    /// keep another form; of other tensors it changes nothing.
    bool is_constant = false;

    logical_tensor() = default;
    /// Rank and dimensions unknown.
    logical_tensor(std::size_t id_, data_type type_) : id(id_), type(type_) {}
    logical_tensor(std::size_t id_, data_type type_, dims shape_, dims strides_ = {})
        : id(id_), type(type_), shape(std::move(shape_)), strides(std::move(strides_)) {}

    /// A constant s32 shape input holding `value_`.
    [[nodiscard]] static logical_tensor constant(std::size_t id_, dims value_) {
        logical_tensor lt(id_, data_type::s32, {static_cast<dim>(value_.size())});
        lt.value = std::move(value_);
        return lt;
    }

    /// True when the rank and every dimension are known.
    [[nodiscard]] bool is_known() const noexcept {
        if (!shape) return false;
        for (dim d : *shape)
            if (d == unknown_dim) return false;
        return true;
    }

    friend bool operator==(const logical_tensor &, const logical_tensor &) = default;
};

/// A bf16 value, as its 16 bits; convert.hpp tells what it is worth.
enum class bf16 : std::uint16_t {};
/// An IEEE half-precision value, as its 16 bits; see convert.hpp.
enum class f16 : std::uint16_t {};

/// Memory to read, with its description: an input. Does not own the memory.
struct const_tensor {
    /// Made from const memory too, which nobody writes through this pointer.
    void *data = nullptr;
    data_type type = data_type::undef;
    dims shape;
    /// In elements; empty means packed, last dimension innermost.
    dims strides;

    const_tensor() = default;
    const_tensor(const void *data_, data_type type_, dims shape_, dims strides_ = {})
        : data(const_cast<void *>(data_)), type(type_), shape(std::move(shape_)),
          strides(std::move(strides_)) {}
    // Typed pointers carry their data type.
    const_tensor(const float *p, dims shape_, dims strides_ = {})
        : const_tensor(p, data_type::f32, std::move(shape_), std::move(strides_)) {}
    const_tensor(const bf16 *p, dims shape_, dims strides_ = {})
        : const_tensor(p, data_type::bf16, std::move(shape_), std::move(strides_)) {}
    const_tensor(const f16 *p, dims shape_, dims strides_ = {})
        : const_tensor(p, data_type::f16, std::move(shape_), std::move(strides_)) {}
    const_tensor(const std::int32_t *p, dims shape_)
        : const_tensor(p, data_type::s32, std::move(shape_)) {}
};

/// Memory to write, with its description: an output. Pointers to const make none. It can be read
/// just as well, so it is an input too.
struct tensor : const_tensor {
    tensor() = default;
    tensor(void *data_, data_type type_, dims shape_, dims strides_ = {})
        : const_tensor(data_, type_, std::move(shape_), std::move(strides_)) {}
    tensor(float *p, dims shape_, dims strides_ = {})
        : const_tensor(p, std::move(shape_), std::move(strides_)) {}
    tensor(bf16 *p, dims shape_, dims strides_ = {})
        : const_tensor(p, std::move(shape_), std::move(strides_)) {}
    tensor(f16 *p, dims shape_, dims strides_ = {})
        : const_tensor(p, std::move(shape_), std::move(strides_)) {}
};

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

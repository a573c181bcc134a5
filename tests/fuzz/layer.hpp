// A small layer drawn from bytes, right in everything, and ways to spoil it: deep code is reached
// by what is almost right.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <convgrad/eager.hpp>
#include <convgrad/error.hpp>

#include "fuzz/input.hpp"

namespace convgrad::fuzz {

/// Attributes that own their strings.
struct layer {
    bool transposed = false;
    std::size_t axes = 1;
    data_type type = data_type::f32;
    attributes attrs;
    std::string auto_pad, data_format, weights_format;
    dims src, weights, dst;
    dim channels_out = 1;

    layer() = default;
    layer(const layer &) = delete;
    layer &operator=(const layer &) = delete;

    [[nodiscard]] op_kind forward() const {
        return transposed ? op_kind::conv_transpose : op_kind::convolution;
    }
    /// Forward, data gradient or weights gradient.
    [[nodiscard]] op_kind kind(int which) const {
        return static_cast<op_kind>(static_cast<int>(forward()) + which);
    }
};

/// Fills `made`; its dst stays empty where the kernel does not fit.
void draw_layer(input &in, layer &made);
/// Changes some attribute or some shape to anything.
void spoil(input &in, layer &made);
void spoil(input &in, dims &list);

/// Elements from the first to the last one; nothing where that is no small number.
std::optional<std::size_t> small_span(const dims &shape, const dims &strides);

/// Memory for tensors, each with exactly the bytes that its description asks for.
class tensor_memory {
public:
    /// Filled with small whole numbers, or with the value of a shape input. Null data where the
    /// description asks for more than a little.
    tensor make(const logical_tensor &described);
    /// Whether any tensor was too large to be made.
    [[nodiscard]] bool has_refused() const { return has_refused_; }
    /// An upper bound for the multiply-adds of an op on these tensors.
    [[nodiscard]] double work() const { return largest_ * second_; }

private:
    std::vector<std::unique_ptr<std::byte[]>> blocks_;
    bool has_refused_ = false;
    double largest_ = 1, second_ = 1;  // elements
};

/// More work than this is not worth a fuzzer's time.
inline constexpr double most_work = 4e6;

/// An engine for these bytes; made once for each choice.
const engine &draw_engine(input &in);

/// Runs `call`; an error with a message is an answer, anything else is a find.
template <typename Call>
bool succeeds(Call &&call) {
    try {
        call();
        return true;
    } catch (const error &e) {
        require(e.what()[0] != '\0', "an error without a message");
        return false;
    }
}

}  // namespace convgrad::fuzz

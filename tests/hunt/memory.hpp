// Tensors in memory as no friend would lay them out: permuted, with gaps, interleaved, overlapping.
#pragma once

#include <utility>
#include <vector>

#include <convgrad/tensor.hpp>

#include "draw.hpp"
#include "number.hpp"

namespace hunt {

using convgrad::dim;
using convgrad::dims;

enum class layout {
    packed,       // no strides given
    permuted,     // packed, axes in any order
    gapped,       // as permuted, with memory between elements that is not the tensor's
    interleaved,  // offsets all different, but axes not nested in each other
    overlapping,  // elements share memory: for inputs only
};

/// Bytes between two fences: pages that nobody may touch.
class fenced_bytes {
public:
    fenced_bytes() = default;
    explicit fenced_bytes(std::size_t size);
    ~fenced_bytes();
    fenced_bytes(fenced_bytes &&other) noexcept { swap(other); }
    fenced_bytes &operator=(fenced_bytes &&other) noexcept {
        swap(other);
        return *this;
    }
    fenced_bytes(const fenced_bytes &) = delete;
    fenced_bytes &operator=(const fenced_bytes &) = delete;

    /// The bytes end at the second fence, or begin at the first.
    [[nodiscard]] std::uint8_t *begin(bool at_end) const;
    [[nodiscard]] std::size_t size() const { return size_; }

private:
    void swap(fenced_bytes &other) noexcept {
        std::swap(first_, other.first_);
        std::swap(size_, other.size_);
        std::swap(pages_, other.pages_);
    }
    std::uint8_t *first_ = nullptr;
    std::size_t size_ = 0, pages_ = 0;
};

/// Memory, and where the elements of a tensor lie in it.
class memory {
public:
    memory() = default;
    /// Draws strides; `as` is what is wanted, which small shapes cannot always be.
    memory(data_type type, dims shape, layout as, draw &random);

    [[nodiscard]] data_type type() const { return type_; }
    [[nodiscard]] const dims &shape() const { return shape_; }
    /// Empty: packed.
    [[nodiscard]] const dims &strides() const { return strides_; }
    /// Offsets from data(), row by row of the shape.
    [[nodiscard]] const std::vector<dim> &offsets() const { return offsets_; }
    [[nodiscard]] std::size_t size() const { return offsets_.size(); }
    [[nodiscard]] bool elements_overlap() const;

    /// Everything but the elements gets other contents: quiet and signalling NaN, infinities, any.
    void fill_gaps(draw &random);
    /// The elements too.
    void fill_all(draw &random);
    void put(std::size_t element, double value);
    [[nodiscard]] double get(std::size_t element) const;
    /// The bits of all elements, row by row.
    [[nodiscard]] std::vector<std::uint32_t> bits() const;

    [[nodiscard]] void *data() { return bytes_ + start_ * width_; }
    [[nodiscard]] convgrad::tensor tensor() {
        return {static_cast<void *>(data()), type_, shape_, strides_};
    }
    [[nodiscard]] convgrad::logical_tensor described(std::size_t id) const {
        return {id, type_, shape_, strides_};
    }
    [[nodiscard]] bool exists() const { return bytes_ != nullptr; }
    [[nodiscard]] std::vector<std::uint8_t> bytes() const {
        return {bytes_, bytes_ + held_.size()};
    }
    /// Whether only elements differ from `before`.
    [[nodiscard]] bool gaps_are_as(const std::vector<std::uint8_t> &before) const;

private:
    void find_offsets();

    data_type type_ = data_type::f32;
    dims shape_, strides_;
    std::size_t start_ = 0, width_ = 4;
    fenced_bytes held_;
    std::uint8_t *bytes_ = nullptr;
    std::vector<dim> offsets_;
    std::vector<bool> is_element_;
};

}  // namespace hunt

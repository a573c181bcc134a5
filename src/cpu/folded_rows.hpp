// What the folded drivers share: rows of a tensor, channels side by side.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/geometry.hpp"
#include "cpu/kernels/kernels.hpp"

namespace convgrad::cpu {

template <typename T>
void copy_elements(const char *in, dim in_step, char *out, dim out_step, dim count) {
    for (dim i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, in + i * in_step, sizeof(T));
        std::memcpy(out + i * out_step, &value, sizeof(T));
    }
}

/// `count` elements of `size` bytes; steps in bytes.
inline void copy_elements(
    dim size, const char *in, dim in_step, char *out, dim out_step, dim count) {
    if (size == 4)
        copy_elements<std::uint32_t>(in, in_step, out, out_step, count);
    else
        copy_elements<std::uint16_t>(in, in_step, out, out_step, count);
}

inline void clear(char *out, dim bytes) {
    if (bytes > 0) std::memset(out, 0, static_cast<std::size_t>(bytes));
}

/// `count` positions of some channels; an element has `size` bytes, strides are in elements.
struct row_of_channels {
    const char *in;
    dim size, channels, cs, xs, count;

    /// One channel lies so in any layout: transposing it took 1.3 ns an element.
    [[nodiscard]] bool side_by_side() const {
        return (cs == 1 || channels == 1) && (xs == channels || count == 1);
    }
};

/// They become channels side by side.
inline void gather_row(const kernel_set &kernels, const row_of_channels &row, char *out) {
    const dim size = row.size, position = size * row.channels;
    if (row.count <= 0) return;
    if (row.side_by_side()) {
        std::memcpy(out, row.in, static_cast<std::size_t>(position * row.count));
    } else if (row.cs == 1 && row.channels > 4) {
        for (dim x = 0; x < row.count; ++x)
            std::memcpy(
                out + x * position, row.in + x * size * row.xs, static_cast<std::size_t>(position));
    } else if (row.xs == 1 && row.channels <= 4) {
        kernels.transpose({row.in, size * row.cs, row.channels, row.count, size, out, position});
    } else {
        for (dim c = 0; c < row.channels; ++c)
            copy_elements(size, row.in + size * c * row.cs, size * row.xs, out + size * c, position,
                row.count);
    }
}

}  // namespace convgrad::cpu

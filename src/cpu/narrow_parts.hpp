// What the two halves of narrow_data share: a task, its memory, and units of weights.
#pragma once

#include <bit>

#include "conv/convert.hpp"
#include "cpu/narrow_data.hpp"
#include "cpu/tiled.hpp"

namespace convgrad::cpu {

/// A unit of weights: one value as f32, or two as they are.
struct unit_writer {
    const kernel_set &kernels;
    value_range range;

    template <typename T>
    [[nodiscard]] std::uint32_t operator()(const T *from, dim step, dim n) {
        if (kernels.format == operand_format::fma) {
            const float v = conv::to_float(*from);
            range.nonfinite = range.nonfinite || v * 0 != 0;
            return std::bit_cast<std::uint32_t>(v);
        }
        std::uint32_t unit = 0;
        for (dim i = 0; i < n; ++i) {
            const std::uint32_t bits =
                std::bit_cast<std::uint32_t>(conv::to_float(from[i * step])) >> 16;
            const auto exponent = static_cast<std::uint8_t>(bits >> 7 & 255);
            range.merge(
                {exponent == 255, (bits & 0x7fff) != 0 ? exponent : std::uint8_t{255}, exponent});
            unit |= bits << 16 * i;
        }
        return unit;
    }
};

struct narrow_data::task : group_place {
    const conv::buffers *data;
};

struct narrow_data::scratch {
    char *weights;
    char *patch;
    char *stage;  // planes that are turned
    float *c;
    float *d;  // products of the taps of a row, not yet shifted
    float *bias;
    dim *runs;  // two lists of as many entries as there are taps
    char *exact;
    dim held = -1;  // first group whose weights and bias are here
    value_range weights_range;
    // What is asked for while a tile is multiplied, so many lines with each product.
    box_lines input, output;
    dim input_step = 0, output_step = 0;

    void ask() {
        input.read(input_step);
        output.write(output_step);
    }
};

}  // namespace convgrad::cpu

// One random problem: an op on shapes that the specification allows, with everything that may be
// asked of it. Written from the specification alone.
#pragma once

#include <array>
#include <string>

#include <convgrad/op_kind.hpp>
#include <convgrad/types.hpp>

#include "draw.hpp"

namespace hunt {

using convgrad::data_type;
using convgrad::dim;
using convgrad::dims;
using convgrad::op_kind;

/// One spatial axis. `large` is src of a convolution and dst of a transposed one, `small` the
/// other.
struct axis {
    dim large = 1, small = 1, kernel = 1, stride = 1, dilation = 1;
    dim pad_begin = 0, pad_end = 0, output_padding = 0;
    [[nodiscard]] dim extent() const { return dilation * (kernel - 1) + 1; }
};

enum class gradient { none, data, weights, both };

struct problem {
    bool transposed = false;
    gradient what = gradient::none;  // none: the layer itself
    data_type type = data_type::f32;
    dim n = 1, groups = 1, large_c = 1, small_c = 1;  // channels of all groups
    std::vector<axis> x;
    bool channels_first = false;  // NCX
    bool channels_outer = false;  // OIX, IOX
    bool second_form = false;     // of IOX, XOI: (IC/G, OC)
    std::string auto_pad = "none";
    // Layers.
    bool bias = false, relu = false, add = false, in_place = false;
    bool add_is_src = false;  // the residual of a layer that keeps its shape
    // Gradients.
    bool accumulate = false, f32_weights = false, diff_bias = false, f32_bias = false;
    // Data.
    bool exact = true, special = false;

    [[nodiscard]] op_kind kind() const;
    [[nodiscard]] dim large_per_group() const { return large_c / groups; }
    [[nodiscard]] dim small_per_group() const { return small_c / groups; }
    [[nodiscard]] double products() const;
    /// 3×3 taps, stride 1, no dilation, enough channels: results may be computed by tiles, with an
    /// error in terms of the whole map's values (docs/accuracy.md) unless the math mode is strict.
    [[nodiscard]] bool may_be_tiled() const;
    /// The longest sum of any output, bias, addend and old value included.
    [[nodiscard]] double terms() const;

    [[nodiscard]] dims large_shape() const { return data_shape(large_c, &axis::large); }
    [[nodiscard]] dims small_shape() const { return data_shape(small_c, &axis::small); }
    [[nodiscard]] dims weights_shape() const;
    [[nodiscard]] std::string data_format() const { return channels_first ? "NCX" : "NXC"; }
    [[nodiscard]] std::string weights_format() const;
    [[nodiscard]] dims list(dim axis::*member) const;
    [[nodiscard]] bool has_output_padding() const;
    [[nodiscard]] std::string text() const;

private:
    [[nodiscard]] dims data_shape(dim channels, dim axis::*length) const;
};

problem draw_problem(draw &random);

/// The padding of section 4, one axis: what auto_pad stands for.
void resolve_auto_pad(const problem &p, axis &a);

}  // namespace hunt

// Canonical problems for tests: layouts as strides, random problems, problems as text.
#pragma once

#include <array>
#include <string>

#include "conv/problem.hpp"
#include "support/random.hpp"

namespace convgrad::test {

/// A problem with these sizes, one type, and unit axes; without strides.
conv::problem sized(conv::pass what, data_type type, dim mb, dim groups, dim ic, dim oc);

/// The formats of the specification, the same with gaps after every axis, and an order of axes that
/// no format has (C, X…, N).
enum class data_layout { nxc, ncx, nxc_gaps, ncx_gaps, cxn };
inline constexpr data_layout all_data_layouts[] = {data_layout::nxc, data_layout::ncx,
    data_layout::nxc_gaps, data_layout::ncx_gaps, data_layout::cxn};

/// OIX (G·O, I, K…), XIO (K…, I, G·O); the documents' grouped forms of IOX and XOI, in canonical
/// names (O, G·I, K…) and (K…, G·I, O); and (K…, I, G·O) and OIX with gaps.
enum class weights_layout { oix, xio, o_gi_x, x_gi_o, gaps, oix_gaps };
inline constexpr weights_layout all_weights_layouts[] = {weights_layout::oix, weights_layout::xio,
    weights_layout::o_gi_x, weights_layout::x_gi_o, weights_layout::gaps, weights_layout::oix_gaps};

/// Sets all strides from the sizes; `add` takes the layout of the output tensor.
void set_layouts(conv::problem &p, data_layout src, weights_layout weights, data_layout dst);

/// The tensors of a problem.
enum class role { src, weights, dst, bias, add };
inline constexpr role all_roles[] = {role::src, role::weights, role::dst, role::bias, role::add};

struct extent {
    dim length = 1, stride = 0;
};
/// Lengths and strides of a tensor; bias and absent tensors included (length 0).
std::array<extent, 6> extents_of(const conv::problem &p, role r);
/// Elements from the first to the last one, gaps included; 0 for an empty tensor.
dim span_of(const conv::problem &p, role r);
data_type type_of(const conv::problem &p, role r);
/// The tensor that the pass writes.
role output_of(const conv::problem &p);

/// Calls body(index, offset) for every element of a tensor.
template <typename Body>
void for_each_element(const std::array<extent, 6> &e, Body &&body) {
    for (const extent &axis : e)
        if (axis.length == 0) return;
    std::array<dim, 6> at{};
    dim offset = 0;
    for (;;) {
        body(at, offset);
        std::size_t d = 6;
        while (d > 0 && at[d - 1] + 1 == e[d - 1].length) {
            --d;
            offset -= at[d] * e[d].stride;
            at[d] = 0;
        }
        if (d == 0) return;
        ++at[d - 1];
        offset += e[d - 1].stride;
    }
}

/// An axis whose dst length is the longest that fits: ⌊(src + pad + pad_end − E)/stride⌋ + 1. That
/// is below 1 where the dilated kernel does not fit.
conv::axis make_axis(dim src, dim kernel, dim stride, dim dilation, dim pad, dim pad_end);

/// The upper bound of multiply-adds that random problems keep to.
inline constexpr double default_random_macs = 3e5;

/// Whether the elements of an input may share memory. Those of an output never do.
enum class inputs { any, apart };

/// A random problem of any pass, rank, type, layout and epilogue, with a liking for tails, odd
/// strides, pads beyond the kernel and few channels, or none.
conv::problem random_problem(
    rng &random, double max_macs = default_random_macs, inputs allowed = inputs::any);
/// Random layouts for a problem whose sizes are set.
void set_random_layouts(rng &random, conv::problem &p, inputs allowed = inputs::any);
/// Makes axes of tensors that are only read share memory: sliding windows, repeated rows, taps that
/// are the same.
void overlap_inputs(rng &random, conv::problem &p);
/// Random bias, add, relu, accumulate, diff_bias and output type, where the pass allows them.
void set_random_extras(rng &random, conv::problem &p);

/// Everything that is needed to build the problem again.
std::string to_text(const conv::problem &p);

}  // namespace convgrad::test

// The reference against the independent definition, against hand-computed numbers, and against
// itself (single elements, finite differences).
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "conv/convert.hpp"
#include "support/definition.hpp"
#include "support/workbench.hpp"
#include "tools/reference.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

/// The op that a problem came from, in the specification's terms.
struct op_view {
    op_kind kind;
    attributes attrs;
    dims longer, shorter, weights;  // shapes of canonical src, dst and weights
};

dims data_shape(const problem &p, bool ncx, std::size_t rank, bool src) {
    dims shape = {p.mb};
    const dim c = p.groups * (src ? p.ic : p.oc);
    if (ncx) shape.push_back(c);
    for (std::size_t d = 3 - rank; d < 3; ++d) shape.push_back(src ? p.x[d].src : p.x[d].dst);
    if (!ncx) shape.push_back(c);
    return shape;
}

dims kernel_shape(const problem &p, std::size_t rank, bool space_first, dim a, dim b) {
    dims shape;
    if (!space_first) shape = {a, b};
    for (std::size_t d = 3 - rank; d < 3; ++d) shape.push_back(p.x[d].kernel);
    if (space_first) shape.insert(shape.end(), {a, b});
    return shape;
}

/// Gives a problem of packed tensors formats by chance and describes it as one of the six ops.
op_view describe(rng &random, problem &p, std::size_t rank) {
    op_view v;
    const bool transpose = random.chance(0.5), ncx = random.chance(0.5);
    static constexpr int transposed[] = {17, 16, 18};
    const auto index = static_cast<int>(p.what);
    v.kind = static_cast<op_kind>(transpose ? transposed[index] : 13 + index);
    const bool second_form = transpose && random.chance(0.5), space_first = random.chance(0.5);
    const weights_layout layout =
        space_first ? (second_form ? weights_layout::x_gi_o : weights_layout::xio)
                    : (second_form ? weights_layout::o_gi_x : weights_layout::oix);
    const data_layout data = ncx ? data_layout::ncx : data_layout::nxc;
    p.bias_stride = 1;
    set_layouts(p, data, layout, data);

    v.attrs.data_format = ncx ? "NCX" : "NXC";
    v.attrs.weights_format = transpose     ? (space_first ? "XOI" : "IOX")
                             : space_first ? "XIO"
                                           : "OIX";
    v.attrs.groups = p.groups;
    for (std::size_t d = 3 - rank; d < 3; ++d) {
        v.attrs.strides.push_back(p.x[d].stride);
        v.attrs.dilations.push_back(p.x[d].dilation);
        v.attrs.pads_begin.push_back(p.x[d].pad);
    }
    v.longer = data_shape(p, ncx, rank, true);
    v.shorter = data_shape(p, ncx, rank, false);
    const dim o = second_form ? p.oc : p.oc * p.groups, i = second_form ? p.ic * p.groups : p.ic;
    v.weights =
        space_first ? kernel_shape(p, rank, true, i, o) : kernel_shape(p, rank, false, o, i);
    return v;
}

dense read_dense(const workbench &bench, role r, const dims &shape) {
    dense t(shape);
    for (std::size_t i = 0; i < t.values.size(); ++i)
        t.values[i] = bench.read(r, static_cast<dim>(i));
    return t;
}

dense by_definition(const workbench &bench, const op_view &v) {
    const problem &p = bench.problem();
    const dense bias =
        p.bias ? read_dense(bench, role::bias, {p.groups * (p.what == pass::forward ? p.oc : p.ic)})
               : dense();
    const auto longer = [&] { return read_dense(bench, role::src, v.longer); };
    const auto shorter = [&] { return read_dense(bench, role::dst, v.shorter); };
    const auto weights = [&] { return read_dense(bench, role::weights, v.weights); };
    const dense *b = p.bias ? &bias : nullptr;
    switch (p.what) {
    case pass::forward:
        return defined_result(v.kind, v.attrs, longer(), weights(), b, v.shorter);
    case pass::backward_data:
        return defined_result(v.kind, v.attrs, shorter(), weights(), b, v.longer);
    case pass::backward_weights:
    case pass::backward_bias:  // has no variant
        break;
    }
    if (v.kind == op_kind::conv_transpose_backward_weights)
        return defined_result(v.kind, v.attrs, shorter(), longer(), nullptr, v.weights);
    return defined_result(v.kind, v.attrs, longer(), shorter(), nullptr, v.weights);
}

double rounded(data_type type, double v) {
    switch (type) {
    case data_type::bf16:
        return conv::to_float(conv::round_to<bf16>(v));
    case data_type::f16:
        return conv::to_float(conv::round_to<f16>(v));
    default:
        return static_cast<float>(v);
    }
}

std::size_t rank_of(const problem &p) {
    for (std::size_t d = 0; d < 2; ++d)
        if (p.x[d] != conv::axis{}) return 3 - d;
    return 1;
}

TEST(reference, agrees_with_the_definition) {
    workbench bench;
    for (std::uint64_t seed = 1; seed <= 6000; ++seed) {
        rng random(seed);
        problem p = random_problem(random, 2e4);
        p.add = p.relu = p.accumulate = false;
        p.diff_bias = conv::bias_gradient::none;
        const op_view v = describe(random, p, rank_of(p));
        bench.load(p, fill::integers, seed);
        bench.run_reference();
        const dense expected = by_definition(bench, v);
        ASSERT_EQ(static_cast<dim>(expected.values.size()), span_of(p, output_of(p)));
        for (std::size_t i = 0; i < expected.values.size(); ++i)
            ASSERT_EQ(bench.read_expected(output_of(p), static_cast<dim>(i)),
                rounded(p.out_type, expected.values[i]))
                << "element " << i << " of " << to_text(p);
    }
}

// src 1 2 3, weights 10 1, stride 1, one zero in front: the sums are written out.
problem small_problem(pass what) {
    problem p;
    p.what = what;
    p.mb = p.ic = p.oc = 1;
    p.x[2] = make_axis(3, 2, 1, 1, 1, 0);
    set_layouts(p, data_layout::nxc, weights_layout::oix, data_layout::nxc);
    return p;
}

TEST(reference, forward_by_hand) {
    problem p = small_problem(pass::forward);
    std::vector<float> src = {1, 2, 3}, weights = {10, 1}, dst(3), bias = {-21}, add = {1, 2, 3};
    conv::reference(p, {src.data(), weights.data(), dst.data(), nullptr, nullptr});
    EXPECT_EQ(dst, (std::vector<float>{1, 12, 23}));
    p.bias = true;
    conv::reference(p, {src.data(), weights.data(), dst.data(), bias.data(), nullptr});
    EXPECT_EQ(dst, (std::vector<float>{-20, -9, 2}));
    p.accumulate = true;
    conv::reference(p, {src.data(), weights.data(), dst.data(), bias.data(), nullptr});
    EXPECT_EQ(dst, (std::vector<float>{-40, -18, 4}));
    p.relu = true;
    p.add = true;
    p.add_strides = p.dst;
    conv::reference(p, {src.data(), weights.data(), dst.data(), bias.data(), add.data()});
    EXPECT_EQ(dst, (std::vector<float>{0, 0, 9}));
}

TEST(reference, backward_data_by_hand) {
    const problem p = small_problem(pass::backward_data);
    std::vector<float> diff_dst = {1, 2, 3}, weights = {10, 1}, diff_src(3);
    conv::reference(p, {diff_src.data(), weights.data(), diff_dst.data(), nullptr, nullptr});
    EXPECT_EQ(diff_src, (std::vector<float>{21, 32, 3}));
}

TEST(reference, backward_weights_by_hand) {
    problem p = small_problem(pass::backward_weights);
    p.diff_bias = conv::bias_gradient::from_dst;
    std::vector<float> src = {1, 2, 3}, diff_dst = {1, 10, 100}, diff_weights(2), diff_bias(1);
    const conv::buffers data = {
        src.data(), diff_weights.data(), diff_dst.data(), diff_bias.data(), nullptr};
    conv::reference(p, data);
    EXPECT_EQ(diff_weights, (std::vector<float>{210, 321}));
    EXPECT_EQ(diff_bias[0], 111);
    p.accumulate = true;
    p.diff_bias = conv::bias_gradient::from_src;
    conv::reference(p, data);
    EXPECT_EQ(diff_weights, (std::vector<float>{420, 642}));
    EXPECT_EQ(diff_bias[0], 117);
}

TEST(reference, single_elements_carry_magnitude_and_terms) {
    problem p = small_problem(pass::forward);
    p.bias = true;
    std::vector<float> src = {1, -2, 3}, weights = {10, 1}, dst(3), bias = {-4};
    const conv::buffers data = {src.data(), weights.data(), dst.data(), bias.data(), nullptr};
    const auto first = conv::reference_at(p, data, {0, 0, {0, 0, 0}});
    EXPECT_EQ(first.value, -3);
    EXPECT_EQ(first.magnitude, 5);
    EXPECT_EQ(first.terms, 1);  // the other tap lies in the padding
    const auto second = conv::reference_at(p, data, {0, 0, {0, 0, 1}});
    EXPECT_EQ(second.value, 4);
    EXPECT_EQ(second.magnitude, 16);
    EXPECT_EQ(second.terms, 2);
}

// 1 + 2^-8 + 2^-30 needs 31 bits: through f32 it would become bf16's midpoint and round down.
TEST(reference, rounds_once) {
    problem p = small_problem(pass::forward);
    p.type = p.out_type = data_type::bf16;
    p.x[2] = make_axis(3, 3, 1, 1, 0, 0);
    set_layouts(p, data_layout::nxc, weights_layout::oix, data_layout::nxc);
    const auto b = [](double v) { return conv::round_to<bf16>(v); };
    std::vector<bf16> src = {b(1), b(0x1p-8), b(0x1p-30)}, weights(3, b(1)), dst(1);
    conv::reference(p, {src.data(), weights.data(), dst.data(), nullptr, nullptr});
    EXPECT_EQ(conv::to_float(dst[0]), 1 + 0x1p-7F);
}

/// Σ over dst of cotangent · conv(src, weights), in f64.
double loss(const workbench &bench, const std::vector<double> &cotangent) {
    const problem &p = bench.problem();
    double sum = 0;
    std::size_t next = 0;
    for_each_element(extents_of(p, role::dst), [&](const auto &at, dim) {
        sum += cotangent[next++]
               * conv::reference_at(p, bench.data(), {at[0], at[1], {at[2], at[3], at[4]}}).value;
    });
    return sum;
}

/// (loss(+h) − loss(−h)) / 2h for one input element.
double slope(workbench &bench, const std::vector<double> &cotangent, role r, dim offset) {
    constexpr double h = 0.25;  // the loss is linear in each input, so h need not be small
    const double before = bench.read(r, offset);
    bench.write(r, offset, before + h);
    const double up = loss(bench, cotangent);
    bench.write(r, offset, before - h);
    const double down = loss(bench, cotangent);
    bench.write(r, offset, before);
    return (up - down) / (2 * h);
}

TEST(reference, gradients_are_finite_differences) {
    workbench forward, data, weights;
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        rng random(seed);
        problem p = random_problem(random, 600, inputs::apart);
        p.what = pass::forward;
        p.type = p.out_type = data_type::f32;
        p.bias = p.add = p.relu = p.accumulate = false;
        p.diff_bias = conv::bias_gradient::none;
        forward.load(p, fill::integers, seed);
        problem other = p;
        other.what = pass::backward_data;
        data.load(other, fill::integers, seed);
        other.what = pass::backward_weights;
        weights.load(other, fill::integers, seed);

        std::vector<double> cotangent;
        for_each_element(extents_of(p, role::dst), [&](const auto &, dim offset) {
            const auto v = static_cast<double>(random.between(-8, 8));
            cotangent.push_back(v);
            data.write(role::dst, offset, v);
            weights.write(role::dst, offset, v);
        });
        for (const role r : {role::src, role::weights})
            for_each_element(extents_of(p, r), [&](const auto &, dim offset) {
                const double v = forward.read(r, offset) / 16;
                forward.write(r, offset, v);
                (r == role::src ? weights : data).write(r, offset, v);
            });
        data.run_reference();
        weights.run_reference();
        for (const role r : {role::src, role::weights}) {
            int budget = 40;  // elements are alike; a few of each tensor do
            for_each_element(extents_of(p, r), [&](const auto &, dim offset) {
                if (budget-- <= 0) return;
                const double gradient = (r == role::src ? data : weights).read_expected(r, offset);
                ASSERT_EQ(slope(forward, cotangent, r, offset), gradient) << to_text(p);
            });
        }
    }
}

}  // namespace
}  // namespace convgrad::test

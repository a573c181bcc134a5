// Offsets and lengths beyond 2^31 and 2^32. The memory is mapped but mostly never touched, so that
// views of many gigabytes cost a few pages.
#include <algorithm>
#include <array>
#include <memory>

#include <gtest/gtest.h>

#include "conv/convert.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

constexpr dim two31 = dim{1} << 31, two32 = dim{1} << 32;

/// A problem on sparse memory: only elements are written, never gaps.
class sparse_bench {
public:
    explicit sparse_bench(const problem &p) : problem_(p) {
        for (const role r : {role::src, role::weights, role::dst}) {
            const dim bytes = span_of(p, r) * static_cast<dim>(size_of(type_of(p, r)));
            auto &memory = memory_[static_cast<std::size_t>(r)];
            memory = std::make_unique<guarded_memory>(static_cast<std::size_t>(bytes));
            // One type's tensors end at a guard page where the other's begin behind one.
            const bool front = (static_cast<int>(r) + (p.type == data_type::f32 ? 1 : 0)) % 2 == 0;
            data_[static_cast<std::size_t>(r)] = memory->place(static_cast<std::size_t>(bytes),
                front ? guarded_memory::side::begin : guarded_memory::side::end);
        }
    }
    /// Small numbers into an input; all of it, or its first elements.
    void fill(role r, dim most) {
        rng random(static_cast<std::uint64_t>(r) + 1);
        dim left = most;
        for_each_element(extents_of(problem_, r), [&](const auto &, dim offset) {
            if (left-- > 0) write(r, offset, static_cast<double>(random.between(-8, 8)));
        });
    }
    void write(role r, dim offset, double value) {
        std::byte *data = data_[static_cast<std::size_t>(r)];
        if (type_of(problem_, r) == data_type::f32)
            std::launder(reinterpret_cast<float *>(data))[offset] = static_cast<float>(value);
        else
            std::launder(reinterpret_cast<bf16 *>(data))[offset] = conv::round_to<bf16>(value);
    }
    [[nodiscard]] double read(role r, dim offset) const {
        const std::byte *data = data_[static_cast<std::size_t>(r)];
        if (type_of(problem_, r) == data_type::f32)
            return std::launder(reinterpret_cast<const float *>(data))[offset];
        return conv::to_float(std::launder(reinterpret_cast<const bf16 *>(data))[offset]);
    }
    [[nodiscard]] const std::byte *bytes(role r) const {
        return data_[static_cast<std::size_t>(r)];
    }

    void run(isa set) {
        const auto plan = cpu::make_plan(problem_, {.max_isa = set, .threads = 2});
        std::byte *workspace = workspace_.place((plan->workspace() + 63) / 64 * 64);
        plan->run(buffers(), workspace, cpu::executor(nullptr, 2));
    }
    [[nodiscard]] conv::buffers buffers() const {
        return {data_[0], data_[1], data_[2], nullptr, nullptr};
    }
    /// Compares every element of the output with the reference.
    void expect_exact() const {
        const role r = output_of(problem_);
        for_each_element(extents_of(problem_, r), [&](const auto &at, dim offset) {
            const conv::point point =
                r == role::weights
                    ? conv::point{at[0] * problem_.oc + at[1], at[2], {at[3], at[4], at[5]}}
                    : conv::point{at[0], at[1], {at[2], at[3], at[4]}};
            ASSERT_EQ(
                read(r, offset), rounded(conv::reference_at(problem_, buffers(), point).value))
                << "offset " << offset << " of " << to_text(problem_);
        });
    }

private:
    [[nodiscard]] double rounded(double v) const {
        return problem_.out_type == data_type::f32 ? v : conv::to_float(conv::round_to<bf16>(v));
    }

    problem problem_;
    std::array<std::unique_ptr<guarded_memory>, 3> memory_;
    std::array<std::byte *, 3> data_{};
    guarded_memory workspace_{1U << 20};
};

/// Runs a problem with few elements at far offsets in all passes.
void check_views(const problem &base) {
    for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights})
        for (const data_type type : {data_type::f32, data_type::bf16}) {
            problem p = base;
            p.what = what;
            p.type = p.out_type = type;
            sparse_bench bench(p);
            for (const role r : {role::src, role::weights, role::dst})
                if (r != output_of(p)) bench.fill(r, two32);
            for (const isa set : usable_isas()) {
                bench.run(set);
                bench.expect_exact();
                if (testing::Test::HasFailure()) {
                    ADD_FAILURE() << to_string(set);
                    return;
                }
            }
        }
}

problem view_problem() {
    problem p;
    p.mb = 2;
    p.groups = 1;
    p.ic = 3;
    p.oc = 2;
    p.x[1] = make_axis(3, 2, 1, 1, 1, 0);
    p.x[2] = make_axis(4, 3, 2, 1, 1, 1);
    set_layouts(p, data_layout::nxc, weights_layout::xio, data_layout::nxc);
    return p;
}

TEST(huge, batch_strides) {
    problem p = view_problem();
    p.src.n = two32 + 9;
    p.dst.n = two31 + 3;
    check_views(p);
}

TEST(huge, channel_strides) {
    problem p = view_problem();
    set_layouts(p, data_layout::ncx, weights_layout::oix, data_layout::ncx);
    p.src.n = p.x[1].src * p.x[2].src;
    p.src.c = two31 + 11;
    p.dst.n = p.x[1].dst * p.x[2].dst;
    p.dst.c = two32 + 5;
    check_views(p);
}

TEST(huge, space_strides) {
    problem p = view_problem();
    p.src.n = p.groups * p.ic * 4;
    p.src.x[1] = two31 + 7;
    p.dst.n = p.groups * p.oc * 4;
    p.dst.x[1] = two31 + 1;
    check_views(p);
    p = view_problem();
    p.src.x[2] = two31 - 1;
    p.src.x[1] = p.ic;
    p.src.n = 3 * p.ic;
    check_views(p);
}

TEST(huge, weights_strides) {
    problem p = view_problem();
    p.weights.o = two32 + 1;
    check_views(p);
    p = view_problem();
    p.weights.i = two31 + 1;
    check_views(p);
    p = view_problem();
    p.weights.k[1] = two32 + 1;
    check_views(p);
}

// More than 2^31 elements in a packed tensor, every dimension below 2^31.
TEST(huge, packed_tensor_beyond_31_bits) {
    for (const pass what : {pass::forward, pass::backward_weights})
        for (const data_layout layout : {data_layout::nxc, data_layout::ncx}) {
            problem p;
            p.what = what;
            p.type = p.out_type = data_type::bf16;
            p.mb = 3;
            p.ic = 2;
            p.oc = 1;
            p.x[1] = make_axis((1 << 14) + 1, 2, 1 << 13, 1, 0, 0);
            p.x[2] = make_axis((1 << 15) + 1, 2, 1 << 14, 1, 1, 0);
            set_layouts(p, layout, weights_layout::oix, layout);
            ASSERT_GT(span_of(p, role::src), two31);
            sparse_bench bench(p);
            // Numbers where outputs look; zeros, that is untouched pages, elsewhere.
            const auto e = extents_of(p, role::src);
            rng random(5);
            for (dim n = 0; n < p.mb; ++n)
                for (dim c = 0; c < p.ic; ++c)
                    for (dim y = 0; y < p.x[1].dst * 2; ++y)
                        for (dim x = 0; x < p.x[2].dst * 2; ++x) {
                            const dim h = y / 2 * p.x[1].stride + y % 2;
                            const dim w = x / 2 * p.x[2].stride + x % 2 - 1;
                            if (w < 0 || w >= p.x[2].src || h >= p.x[1].src) continue;
                            bench.write(role::src,
                                n * e[0].stride + c * e[1].stride + h * e[3].stride
                                    + w * e[4].stride,
                                static_cast<double>(random.between(-8, 8)));
                        }
            bench.fill(what == pass::forward ? role::weights : role::dst, two32);
            for (const isa set : usable_isas()) {
                bench.run(set);
                bench.expect_exact();
            }
        }
}

// One axis of more than 2^31 elements, read and written. Backward data writes all 4 GiB of
// diff_src, so this runs once, on the best instruction set.
TEST(huge, axis_beyond_31_bits) {
    problem p;
    p.type = p.out_type = data_type::bf16;
    p.mb = p.ic = p.oc = 1;
    p.x[2] = make_axis(two31 + 100, 3, dim{1} << 24, 1, 1, 0);
    set_layouts(p, data_layout::nxc, weights_layout::oix, data_layout::nxc);
    for (const pass what : {pass::forward, pass::backward_weights}) {
        p.what = what;
        sparse_bench bench(p);
        for (dim y = 0; y < p.x[2].dst; ++y)
            for (dim k = 0; k < 3; ++k)
                if (const dim x = y * p.x[2].stride + k - 1; x >= 0)
                    bench.write(role::src, x, static_cast<double>(y % 13 - k));
        bench.fill(what == pass::forward ? role::weights : role::dst, two32);
        for (const isa set : usable_isas()) {
            bench.run(set);
            bench.expect_exact();
        }
    }
    p.what = pass::backward_data;
    sparse_bench bench(p);
    bench.fill(role::weights, two32);
    bench.fill(role::dst, two32);
    bench.write(role::src, two31 + 50, 1);  // to be overwritten with zero
    bench.run(usable_isas().back());
    dim nonzero = 0, expected_nonzero = 0;
    const auto *words =
        std::launder(reinterpret_cast<const std::uint16_t *>(bench.bytes(role::src)));
    for (dim x = 0; x < p.x[2].src; ++x) nonzero += words[x] != 0;
    for (dim y = 0; y < p.x[2].dst; ++y)
        for (dim k = 0; k < 3; ++k)
            if (const dim x = y * p.x[2].stride + k - 1; x >= 0 && x < p.x[2].src) {
                const double v = conv::reference_at(p, bench.buffers(), {0, 0, {0, 0, x}}).value;
                ASSERT_EQ(bench.read(role::src, x), v) << x;
                expected_nonzero += v != 0;
            }
    EXPECT_EQ(nonzero, expected_nonzero);
}

}  // namespace
}  // namespace convgrad::test

// Both gradients in one pass: the same bits as one after the other, for every driver that can, on
// any number of threads, with and without a bias gradient, added to old contents or not.
#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "conv/convert.hpp"
#include "support/pools.hpp"
#include "support/random.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

using conv::bias_gradient;
using conv::pass;
using conv::problem;

struct aligned_memory {
    explicit aligned_memory(std::size_t bytes) : bytes_(bytes + 64) {}
    [[nodiscard]] void *get() {
        const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
        return bytes_.data() + (64 - at % 64) % 64;
    }

private:
    std::vector<std::byte> bytes_;
};

/// One layer: src and dst of the canonical problem, the data gradient reads one of them.
class layer {
public:
    layer(problem data, problem weights, std::uint64_t seed)
        : data_(std::move(data)), weights_(std::move(weights)) {
        rng random(seed);
        for (const role r : {role::src, role::dst, role::weights}) {
            std::vector<std::byte> &values = inputs_[static_cast<std::size_t>(r)];
            const dim count = span_of(data_, r);
            values.resize(static_cast<std::size_t>(count) * size_of(data_.type));
            for (dim i = 0; i < count; ++i) store(values.data(), i, 2 * random.unit() - 1);
        }
        const std::size_t channels =
            static_cast<std::size_t>(data_.groups * std::max(data_.ic, data_.oc));
        results_.data = initial(inputs_[static_cast<std::size_t>(output_of(data_))].size());
        results_.weights = initial(static_cast<std::size_t>(span_of(weights_, role::weights))
                                   * size_of(weights_.out_type));
        results_.bias = initial(channels * 4);
    }

    struct results {
        std::vector<std::byte> data, weights, bias;
        bool operator==(const results &) const = default;
    };

    [[nodiscard]] conv::buffers data_buffers(results &r) {
        conv::buffers b = inputs();
        (data_.what == pass::forward ? b.dst : b.src) = r.data.data();
        return b;
    }
    [[nodiscard]] conv::buffers weights_buffers(results &r) {
        conv::buffers b = inputs();
        b.weights = r.weights.data();
        b.bias = r.bias.data();
        return b;
    }

    results separately(const cpu::plan_limits &limits) {
        results r = results_;
        const cpu::executor here(nullptr, 1);
        const auto run = [&](const problem &p, const conv::buffers &b) {
            const auto plan = make_plan(p, limits);
            aligned_memory memory(plan->workspace());
            plan->run(b, memory.get(), here);
        };
        run(data_, data_buffers(r));
        run(weights_, weights_buffers(r));
        return r;
    }

    /// Empty names: the two cannot go together.
    results together(cpu::plan_limits limits, int threads, thread_pool *pool,
        std::set<std::string> &algorithms) {
        results r = results_;
        limits.threads = threads;
        const auto data = make_plan(data_, limits), weights = make_plan(weights_, limits);
        algorithms = {};
        if (data->joint_workspace() == 0 || weights->joint_workspace() == 0) return r;
        algorithms = {std::string(data->algorithm()), std::string(weights->algorithm())};
        aligned_memory one(data->joint_workspace()), two(weights->joint_workspace());
        const cpu::executor on(pool, threads);
        const conv::buffers for_data = data_buffers(r), for_weights = weights_buffers(r);
        cpu::joint_pass both;
        data->start(for_data, one.get(), on, both);
        weights->start(for_weights, two.get(), on, both);
        run_joint(both, on);
        return r;
    }

private:
    [[nodiscard]] conv::buffers inputs() {
        conv::buffers b;
        b.src = inputs_[static_cast<std::size_t>(role::src)].data();
        b.dst = inputs_[static_cast<std::size_t>(role::dst)].data();
        b.weights = inputs_[static_cast<std::size_t>(role::weights)].data();
        return b;
    }
    void store(std::byte *to, dim at, double value) const {
        const auto put = [&](auto v) {
            std::memcpy(to + static_cast<std::size_t>(at) * sizeof v, &v, sizeof v);
        };
        if (data_.type == data_type::f32) put(static_cast<float>(value));
        if (data_.type == data_type::bf16) put(conv::round_to<bf16>(value));
        if (data_.type == data_type::f16) put(conv::round_to<f16>(value));
    }
    /// What outputs hold before: small numbers in any type.
    static std::vector<std::byte> initial(std::size_t bytes) {
        std::vector<std::byte> values(bytes);
        for (std::size_t i = 0; i < bytes; ++i)
            values[i] = std::byte{static_cast<unsigned char>(0x20 + i % 7)};
        return values;
    }

    problem data_, weights_;
    std::array<std::vector<std::byte>, 3> inputs_;
    results results_;
};

struct shape {
    dim mb, groups, ic, oc;
    conv::axis x[3];
};

/// Both gradients of a convolution, or of a transposed one, whose diff_dst is src.
layer make_layer(const shape &s, data_type type, data_layout layout, bool transposed, bool bias,
    bool accumulate, std::uint64_t seed) {
    problem p;
    p.type = p.out_type = p.diff_bias_type = type;
    p.mb = s.mb;
    p.groups = s.groups;
    p.ic = s.ic;
    p.oc = s.oc;
    for (std::size_t a = 0; a < 3; ++a) p.x[a] = s.x[a];
    p.accumulate = accumulate;
    p.what = transposed ? pass::forward : pass::backward_data;
    set_layouts(p, layout, seed % 2 == 0 ? weights_layout::xio : weights_layout::oix, layout);
    problem w = p;
    w.what = pass::backward_weights;
    if (bias) w.diff_bias = transposed ? bias_gradient::from_src : bias_gradient::from_dst;
    return layer(p, w, seed);
}

/// How often each algorithm took part.
using tally = std::map<std::string, int>;

/// `only`: an algorithm by name, or what is chosen; in one layout or in both.
void expect_same(const shape &s, bool only_fma, tally &joined, std::string_view only = {},
    std::optional<data_layout> where = {}) {
    spawning_pool real;
    reversing_pool backwards;
    std::uint64_t seed = 0;
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
        for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
            for (const bool transposed : {false, true})
                for (const bool bias : {false, true}) {
                    const bool accumulate = ++seed % 3 == 0;
                    if (where && *where != layout) continue;
                    cpu::plan_limits limits;
                    limits.only_algorithm = only;
                    limits.max_isa = only_fma ? usable_fma_isas().back() : affordable_isa(seed);
                    layer l = make_layer(s, type, layout, transposed, bias, accumulate, seed);
                    const layer::results expected = l.separately(limits);
                    for (const int threads : {1, 2, 3, 5, 16}) {
                        thread_pool *pool = &backwards;
                        if (threads % 2 == 1 && !limits.max_isa.include(isa::avx512_bf16))
                            pool = &real;
                        std::set<std::string> names;
                        const layer::results got = l.together(limits, threads, pool, names);
                        if (names.empty()) continue;
                        for (const std::string &name : names) ++joined[name];
                        ASSERT_TRUE(got == expected)
                            << to_string(type) << (layout == data_layout::nxc ? " NXC" : " NCX")
                            << (transposed ? " transposed" : "") << (bias ? " bias" : "")
                            << (accumulate ? " accumulate" : "") << " threads " << threads << ' '
                            << to_string(cpu::name_of(limits.max_isa)) << " data "
                            << (got.data == expected.data) << " weights "
                            << (got.weights == expected.weights) << " bias "
                            << (got.bias == expected.bias) << " mb " << s.mb << " groups "
                            << s.groups;
                    }
                }
}

TEST(joint, depthwise) {
    const conv::axis none;
    const shape shapes[] = {
        {5, 40, 1, 1, {none, make_axis(9, 3, 1, 1, 1, 1), make_axis(11, 3, 1, 1, 1, 1)}},
        {3, 70, 1, 1, {none, make_axis(14, 3, 2, 1, 1, 1), make_axis(15, 3, 2, 1, 1, 1)}},
        {2, 33, 1, 1, {none, make_axis(12, 5, 1, 2, 4, 4), make_axis(13, 3, 1, 3, 3, 3)}},
        {7, 400, 1, 1, {none, make_axis(7, 3, 1, 1, 1, 1), make_axis(7, 3, 1, 1, 1, 1)}},
        {1, 24, 1, 1, {none, make_axis(60, 7, 1, 1, 3, 3), make_axis(50, 7, 1, 1, 3, 3)}},
        {4, 32, 1, 1, {none, none, make_axis(300, 5, 1, 1, 2, 2)}},
        {3, 20, 1, 1, {none, make_axis(40, 3, 1, 1, 1, 1), none}},
        {2, 18, 1, 1,
            {make_axis(6, 3, 1, 1, 1, 1), make_axis(8, 3, 1, 1, 1, 1),
                make_axis(9, 3, 2, 1, 1, 1)}},
        {2, 12, 1, 1, {none, make_axis(20, 2, 3, 1, 0, 0), make_axis(21, 2, 3, 1, 0, 0)}},
        {3, 6, 1, 3, {none, make_axis(10, 3, 1, 1, 1, 1), make_axis(10, 3, 1, 1, 1, 1)}}};
    tally joined;
    for (const shape &s : shapes) {
        expect_same(s, true, joined);
        expect_same(s, true, joined, "planes.fma", data_layout::ncx);
    }
    EXPECT_GT(joined["depthwise.fma"], 100);
    EXPECT_GT(joined["planes.fma"], 100);
}

TEST(joint, dense_and_grouped) {
    const conv::axis none;
    const shape shapes[] = {{4, 1, 24, 40, {none, none, make_axis(150, 1, 1, 1, 0, 0)}},
        {6, 1, 20, 36, {none, make_axis(12, 1, 1, 1, 0, 0), make_axis(12, 1, 1, 1, 0, 0)}},
        {6, 1, 64, 32, {none, make_axis(10, 1, 2, 1, 0, 0), make_axis(10, 1, 2, 1, 0, 0)}},
        {3, 1, 24, 48, {none, make_axis(40, 1, 1, 1, 0, 0), make_axis(40, 1, 1, 1, 0, 0)}},
        {4, 3, 20, 24, {none, make_axis(10, 1, 1, 1, 0, 0), make_axis(9, 1, 1, 1, 0, 0)}},
        {3, 2, 18, 17, {none, make_axis(10, 3, 1, 1, 1, 1), make_axis(9, 3, 1, 1, 1, 1)}},
        {3, 2, 18, 17, {none, make_axis(10, 5, 1, 1, 1, 1), make_axis(9, 2, 1, 1, 1, 1)}},
        {3, 8, 4, 4, {none, make_axis(10, 3, 1, 1, 1, 1), make_axis(9, 3, 1, 1, 1, 1)}},
        {3, 1, 3, 20, {none, make_axis(16, 3, 2, 1, 1, 1), make_axis(16, 3, 2, 1, 1, 1)}},
        {2, 1, 130, 140, {none, make_axis(8, 3, 1, 1, 1, 1), make_axis(8, 3, 1, 1, 1, 1)}}};
    tally joined;
    for (const shape &s : shapes) {
        expect_same(s, false, joined);
        expect_same(s, true, joined, "tiled.fma");
    }
    EXPECT_GT(joined["tiled.fma"], 100);
    EXPECT_GT(joined["pointwise.fma"], 0);
}

// Less memory means other parts, or one after the other; never other bits than with the same limit.
TEST(joint, within_a_workspace_limit) {
    const conv::axis none;
    const shape s{3, 70, 1, 1, {none, make_axis(14, 3, 1, 1, 1, 1), make_axis(15, 3, 1, 1, 1, 1)}};
    for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
        for (const std::size_t limit : {20U << 10, 40U << 10, 80U << 10, 200U << 10, 1U << 20}) {
            cpu::plan_limits limits;
            limits.max_isa = usable_fma_isas().back();
            limits.workspace = limit;
            layer l = make_layer(s, data_type::f32, layout, false, true, false, limit);
            layer::results expected;
            try {
                expected = l.separately(limits);
            } catch (const error &e) {
                EXPECT_EQ(e.code(), error_code::out_of_memory);
                continue;
            }
            spawning_pool pool;
            for (const int threads : {1, 3}) {
                std::set<std::string> names;
                const layer::results got = l.together(limits, threads, &pool, names);
                if (!names.empty()) {
                    EXPECT_TRUE(got == expected) << limit;
                }
            }
        }
}

}  // namespace
}  // namespace convgrad::test

// verify's own machinery: it must pass what is right, and notice what is not.
#include "check.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "bench.hpp"
#include "bench_engines.hpp"
#include "embedded_problems.hpp"
#include "op/lower.hpp"

namespace convgrad::cli {
namespace {

op_case make_case(std::string_view text, op_kind kind, data_type type = data_type::f32) {
    op_case c;
    c.problem = std::make_shared<problem_string>(parse_problem(text, is_transposed(kind)));
    c.kind = kind;
    c.type = type;
    c.weights = weights_formats_of(kind)[0];
    return c;
}

/// Strides along axes of length 1 and of tensors without elements mean nothing, so they are left
/// out of comparisons.
conv::problem without_idle_strides(conv::problem p) {
    for (std::size_t i = 0; i < 3; ++i) {
        if (p.x[i].src == 1) p.src.x[i] = 0;
        if (p.x[i].dst == 1) p.dst.x[i] = 0;
        if (p.x[i].kernel == 1) p.weights.k[i] = 0;
    }
    const auto idle = [](dim length, dim &stride) {
        if (length == 1) stride = 0;
    };
    idle(p.mb, p.src.n);
    idle(p.mb, p.dst.n);
    idle(p.groups * p.ic, p.src.c);
    idle(p.groups * p.oc, p.dst.c);
    idle(p.groups, p.weights.g);
    idle(p.ic, p.weights.i);
    idle(p.oc, p.weights.o);
    if (p.mb * p.ic == 0) p.src = {};
    if (p.mb * p.oc == 0) p.dst = {};
    if (p.ic * p.oc == 0) p.weights = {};
    return p;
}

TEST(op_case, problem_string_and_op_mean_the_same) {
    for (const embedded_problem &e : embedded_problems(embedded_set::verify)) {
        for (op_kind kind : convolution_op_kinds) {
            if (is_transposed(kind) != e.deconv) continue;
            for (auto data : {data_format::nxc, data_format::ncx}) {
                for (auto weights : weights_formats_of(kind)) {
                    op_case c = make_case(e.text, kind);
                    c.data = data;
                    c.weights = weights;
                    for (int variant = 0; variant < 6; ++variant) {
                        const bool extras = variant % 2 != 0;
                        const auto how = static_cast<arrangement::kind>(variant / 2);
                        const op_call call = make_call(c, true, extras, {how, 7});
                        const auto attrs = ops::check_op(call.node);
                        std::vector<logical_tensor> outputs = call.node.outputs();
                        ops::infer_shapes(attrs, call.node.inputs(), outputs);
                        conv::problem lowered = ops::lower(attrs, call.node.inputs(), outputs);
                        // A tensor to add is an option of calls: an op of a graph has none.
                        EXPECT_EQ(call.problem.add, extras && !is_gradient(kind));
                        lowered.add = call.problem.add;
                        lowered.add_strides = call.problem.add_strides;
                        EXPECT_EQ(without_idle_strides(lowered), without_idle_strides(call.problem))
                            << to_string(kind) << ' ' << to_string(data) << ' '
                            << to_string(weights) << ' ' << e.text;
                    }
                }
            }
        }
    }
}

TEST(arrangement, outputs_get_gaps_and_inputs_may_overlap) {
    const dims shape = {2, 5, 4, 3};
    std::size_t with_gaps = 0, overlapping = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const arrangement how{arrangement::kind::overlapping, seed};
        const dims output = draw_strides(shape, how, true), input = draw_strides(shape, how, false);
        const std::vector<bool> used = element_places(shape, output);
        EXPECT_EQ(std::count(used.begin(), used.end(), true), 120) << "elements share memory";
        with_gaps += used.size() > 120;
        const std::vector<bool> shared = element_places(shape, input);
        overlapping += std::count(shared.begin(), shared.end(), true) < 120;
    }
    EXPECT_GT(with_gaps, 40U);
    EXPECT_GT(overlapping, 40U);
    EXPECT_TRUE(draw_strides({2, 0, 3}, {arrangement::kind::gaps, 1}, true).empty());
}

TEST(arrangement, scattered_elements_are_where_strides_say_and_the_rest_is_poison) {
    const std::vector<std::uint8_t> packed = {1, 2, 3, 4, 5, 6};
    const std::vector<std::byte> memory = scatter(packed.data(), 1, {2, 3}, {7, 2});
    const std::vector<int> expected = {1, 255, 2, 255, 3, 255, 255, 4, 255, 5, 255, 6};
    ASSERT_EQ(memory.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(std::to_integer<int>(memory[i]), expected[i]) << i;
}

/// Says yes and does nothing.
class lazy_pool final : public thread_pool {
public:
    [[nodiscard]] int concurrency() const noexcept override { return 2; }
    void run(int, void (*)(void *, int), void *) override {}
};

check_result check(const op_case &c, const engine &on) {
    tensor_store store;
    return check_case(c, on, store, {});
}

TEST(check, passes_what_is_right) {
    for (op_kind kind : convolution_op_kinds)
        for (data_type type : {data_type::f32, data_type::bf16, data_type::f16}) {
            const check_result r =
                check(make_case("g2mb2ic8ih9oc12kh3sh2ph1", kind, type), engine());
            EXPECT_EQ(r.what, outcome::passed) << to_string(kind) << ": " << r.detail;
        }
}

TEST(check, notices_work_that_was_not_done) {
    lazy_pool pool;
    engine_options options;
    options.threads = 2;
    options.pool = &pool;
    const engine on(options);
    // Large enough for two threads, and for a sample instead of all elements.
    for (op_kind kind : convolution_op_kinds) {
        const check_result r = check(make_case("mb8ic64ih28oc64kh3ph1", kind), on);
        EXPECT_EQ(r.what, outcome::failed) << to_string(kind);
        EXPECT_NE(r.detail.find("expected"), std::string::npos) << r.detail;
        EXPECT_NE(r.detail.find("sampled elements wrong"), std::string::npos) << r.detail;
    }
}

TEST(check, illegal_calls_fail_with_the_library_message) {
    op_case c = make_case("mb2ic8ih9oc8kh3", op_kind::convolution);
    c.weights = weights_format::iox;
    const check_result r = check(c, engine());
    EXPECT_EQ(r.what, outcome::failed);
    EXPECT_NE(r.detail.find("invalid_op"), std::string::npos) << r.detail;
    EXPECT_NE(r.detail.find("weights_format"), std::string::npos) << r.detail;
}

TEST(check, same_seed_same_bits) {
    const op_case c = make_case("mb2ic8ih9oc8kh3", op_kind::convolution_backward_weights);
    tensor_store store;
    check_options options;
    options.want_bits = true;
    const auto first = check_case(c, engine(), store, options);
    EXPECT_EQ(check_case(c, engine(), store, options).bits, first.bits);
    options.seed = 2;
    EXPECT_NE(check_case(c, engine(), store, options).bits, first.bits);
}

TEST(check, bound_follows_the_number_of_terms) {
    const auto bound = [](dim terms, data_type type = data_type::f32,
                           math_mode math = math_mode::accurate) {
        return error_bound({0.0, 1.0, terms}, type, type, math);
    };
    EXPECT_NEAR(bound(1), 2 * 0x1p-24, 1e-12);
    EXPECT_NEAR(bound(10000), 602 * 0x1p-24, 1e-9);
    EXPECT_GT(bound(100, data_type::f32, math_mode::fast), 0x1p-7);
    // The value itself is rounded once more, to the output's type.
    EXPECT_GT(
        error_bound({1.0, 1.0, 1}, data_type::bf16, data_type::bf16, math_mode::accurate), 0x1p-8);
    EXPECT_LT(
        error_bound({1.0, 1.0, 1}, data_type::f32, data_type::f32, math_mode::accurate), 0x1p-22);
}

TEST(bench, json_has_the_documented_keys) {
    bench_result r;
    r.what = make_case("mb1ic8ih9oc8kh3n\"a \\ b*2\"", op_kind::convolution, data_type::bf16);
    r.algorithm = "tiled";
    r.uses = "portable";
    r.threads = 2;
    r.min_seconds = 0.001;
    r.median_seconds = 0.002;
    r.bound.flops = r.bound.needed = 4e6;
    r.bound.bytes = 1e3;
    r.bound.peak_flops = 8e9;
    r.bound.peak_bandwidth = 1e9;
    EXPECT_EQ(json_line(r),
        R"({"op": "Convolution", "dtype": "bf16", "data_format": "NXC", "weights_format": "XIO", )"
        R"("problem": "mb1ic8ih9oc8oh7kh3", "name": "a \\ b*2", "engine": "cpu", "math": "accurate", )"
        R"("isa": "portable", "algorithm": "tiled", "threads": 2, "min_ms": 1, "median_ms": 2, "gflops": 4, "roofline": 0.5})");
    EXPECT_TRUE(r.bound.compute_bound());
}

// Needs neither engine: only what was measured.
TEST(bench, engines_stand_side_by_side) {
    std::vector<bench_result> results;
    const auto add = [&](const char *problem, engine_kind kind, double ms) {
        bench_result r;
        r.what = make_case(problem, op_kind::convolution);
        r.what.on.kind = kind;
        r.what.on.device = kind == engine_kind::cuda ? 1 : 0;
        r.min_seconds = ms * 1e-3;
        results.push_back(r);
    };
    add("mb1ic8ih9oc8kh3n\"small\"", engine_kind::cpu, 0.01);
    add("mb1ic8ih9oc8kh3n\"small\"", engine_kind::cuda, 0.04);
    add("mb64ic64ih56oc64kh3ph1n\"large\"", engine_kind::cpu, 8);
    add("mb64ic64ih56oc64kh3ph1n\"large\"", engine_kind::cuda, 0.08);
    add("mb8ic64ih56oc64kh3ph1n\"alone\"", engine_kind::cpu, 1);
    engine_cache engines;
    const engine_comparison c = compare_engines(results, engines);
    EXPECT_EQ(c.names, (std::vector<std::string>{"cpu", "cuda:1"}));
    ASSERT_EQ(c.rows.size(), 2U);
    EXPECT_EQ(c.rows[0].fastest(), 0U);
    EXPECT_NEAR(c.rows[0].lead(), 4, 1e-9);
    EXPECT_EQ(c.rows[1].fastest(), 1U);
    EXPECT_NEAR(c.rows[1].lead(), 100, 1e-9);
    const std::string text = comparison_text(c);
    for (const char *part : {"cpu ms", "cuda:1 ms", "8.0000", "0.0800",
             "cpu is the fastest in 1 of 2 cases, by a factor of 4 in",
             "cuda:1 is the fastest in 1 of 2 cases, by a factor of 100 in"})
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
    EXPECT_EQ(text.find("alone"), std::string::npos);
    results.resize(1);
    EXPECT_EQ(comparison_text(compare_engines(results, engines)), "");
}

}  // namespace
}  // namespace convgrad::cli

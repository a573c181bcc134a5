// cuDNN as an algorithm: what it may be asked for without a GPU, and what it computes on one.
#include <atomic>
#include <cstdlib>
#include <thread>

#include <convgrad/convgrad.hpp>

#include "cuda/cudnn_library.hpp"
#include "cuda/machine.hpp"
#include "cuda/products.hpp"
#include "engine/engine.hpp"
#include "graph/device_layer.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;
using cuda::architecture;
using products::all_passes;
using enum error_code;

constexpr std::string_view name = "cuda.cudnn";

architecture hopper_with_cudnn() {
    architecture made = cuda::architecture_of(9, 0);
    made.cudnn = true;
    return made;
}

problem layer(pass what, data_type type, dim ic, dim oc, dim size, dim kernel, data_layout layout,
    dim mb = 64) {
    problem p;
    p.what = what;
    p.type = p.out_type = type;
    p.math = math_mode::fast;
    p.mb = mb;
    p.ic = ic;
    p.oc = oc;
    for (std::size_t d = 1; d < 3; ++d)
        p.x[d] = make_axis(size, kernel, 1, 1, kernel / 2, kernel / 2);
    set_layouts(p, layout, weights_layout::oix, layout);
    return p;
}

TEST(cudnn_choice, it_is_asked_for_only_where_it_is_allowed) {
    for (const pass what : all_passes) {
        const problem p = layer(what, data_type::f32, 256, 256, 14, 3, data_layout::nxc);
        std::vector<engines::verdict> verdicts;
        EXPECT_NE(
            cuda::make_plan(p, cuda::architecture_of(9, 0), {}, &verdicts)->algorithm(), name);
        bool told = false;
        for (const engines::verdict &v : verdicts)
            told = told || (v.algorithm == name && v.reason.find("cudnn") != std::string::npos);
        EXPECT_TRUE(told);
        EXPECT_EQ(cuda::make_plan(p, hopper_with_cudnn(), {})->algorithm(), name);
    }
}

TEST(cudnn_choice, refusals_have_reasons) {
    const architecture on = hopper_with_cudnn();
    const problem good = layer(pass::forward, data_type::bf16, 64, 64, 14, 3, data_layout::nxc);
    const auto reason = [&](auto change) {
        problem p = good;
        change(p);
        std::vector<engines::verdict> verdicts;
        const auto plan = cuda::make_plan(p, on, {}, &verdicts);
        for (const engines::verdict &v : verdicts)
            if (v.algorithm == name && v.seconds == 0) return v.reason;
        return std::string();
    };
    EXPECT_EQ(reason([](problem &) {}), "");
    EXPECT_EQ(reason([](problem &p) { p.math = math_mode::accurate; }), "");
    EXPECT_NE(reason([](problem &p) { p.math = math_mode::strict; }), "");
    EXPECT_NE(reason([](problem &p) {
        p.type = p.out_type = data_type::f32;
        p.math = math_mode::accurate;
    }),
        "");
    EXPECT_NE(reason([](problem &p) { p.bias = true; }), "");
    EXPECT_NE(reason([](problem &p) { p.relu = true; }), "");
    EXPECT_NE(reason([](problem &p) { p.accumulate = true; }), "");
    EXPECT_NE(reason([](problem &p) { p.src.n += 8; }), "");
    EXPECT_NE(reason([](problem &p) { p.dst.x[1] += 8; }), "");
    EXPECT_NE(reason([](problem &p) { p.x[1].dst -= 3; }), "");
    EXPECT_NE(reason([](problem &p) {
        p.groups = 2;
        set_layouts(p, data_layout::nxc, weights_layout::oix, data_layout::nxc);
    }),
        "");
    EXPECT_NE(reason([](problem &p) {
        p.what = pass::backward_weights;
        p.out_type = data_type::f32;
    }),
        "");
}

// For devices given as data: there is a plan, though nothing could run it.
TEST(cudnn_choice, plans_without_a_device_are_described) {
    for (const pass what : all_passes)
        for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
            for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16}) {
                if (layout == data_layout::ncx && type != data_type::f32) continue;
                const auto plan = cuda::make_plan(layer(what, type, 64, 96, 14, 3, layout),
                    hopper_with_cudnn(), {.only_algorithm = name});
                EXPECT_EQ(plan->algorithm(), name);
                EXPECT_NE(plan->describe().find("cuDNN"), std::string::npos);
                EXPECT_EQ(plan->facts().kept == engines::accuracy::fast, type == data_type::f32);
            }
}

TEST(cudnn_library, a_missing_one_is_told) {
    if (why_no_cudnn().empty()) GTEST_SKIP() << "there is one";
    expect_error(unsupported, {"cudnn", "libcudnn.so.9"}, [] { (void)cuda::the_cudnn(); });
}

TEST(cudnn_library, a_bad_value_in_the_environment_is_told) {
    setenv("CONVGRAD_CUDNN", "maybe", 1);
    expect_error(invalid_argument, {"CONVGRAD_CUDNN", "maybe"},
        [] { (void)engine(engine_options{.kind = engine_kind::cuda}); });
    unsetenv("CONVGRAD_CUDNN");
}

TEST(cudnn_library, an_engine_tells_what_it_uses) {
    CONVGRAD_NEEDS_GPU();
    const engine_options options{.kind = engine_kind::cuda, .cudnn = true};
    if (!why_no_cudnn().empty()) {
        expect_error(unsupported, {"cudnn", "libcudnn"}, [&] { (void)engine(options); });
        return;
    }
    const engine on(options);
    EXPECT_NE(on.get().backend->name().find("cuDNN 9."), std::string::npos);
    attributes attrs;
    attrs.strides = attrs.dilations = {1, 1};
    attrs.pads_begin = attrs.pads_end = {0, 0};
    attrs.data_format = data_format::ncx;
    attrs.weights_format = weights_format::oix;
    const auto bf16 = [](std::size_t id, dims shape) {
        return logical_tensor(id, data_type::bf16, std::move(shape));
    };
    const compiled_partition ready =
        compile(op_kind::convolution, {bf16(0, {64, 64, 56, 56}), bf16(1, {256, 64, 1, 1})},
            {bf16(2, {64, 256, 56, 56})}, attrs, {.on = &on});
    EXPECT_NE(ready.describe().find("cuda.cudnn"), std::string::npos) << ready.describe();
    EXPECT_NE(ready.describe().find("engine"), std::string::npos) << ready.describe();
}

/// A problem without what cuDNN does not take.
problem plain(problem p) {
    p.bias = p.add = p.relu = false;
    p.out_type = p.type;
    if (p.what != pass::backward_weights || p.type != data_type::f32) p.accumulate = false;
    return p;
}

/// What a run may be off by: cuDNN cuts the operands of TF32 off, which is twice what rounding
/// loses.
leniency allowed_for(const problem &p) {
    leniency allowed;
    if (p.type == data_type::f32) allowed.product_error = 1.01 * 0x1p-9;
    return allowed;
}

/// Runs it; false if it does not take the problem.
bool runs(
    gpu_bench &gpu, workbench &bench, std::size_t limit = std::numeric_limits<std::size_t>::max()) {
    try {
        EXPECT_EQ(gpu.run(bench, name, limit), name);
    } catch (const error &e) {
        EXPECT_TRUE(e.code() == unsupported || e.code() == out_of_memory) << e.what();
        return false;
    }
    return true;
}

/// Failures of many problems, so that all are seen.
class failures {
public:
    void count(const std::string &difference, const gpu_bench &gpu, const problem &p) {
        ++ran_;
        if (difference.empty()) return;
        if (++failed_ <= 12)
            ADD_FAILURE() << gpu.description() << ": " << difference << ' ' << to_text(p);
    }
    ~failures() {
        EXPECT_EQ(failed_, 0) << "of " << ran_;
        testing::Test::RecordProperty("ran", ran_);
    }
    [[nodiscard]] int ran() const { return ran_; }

private:
    int ran_ = 0, failed_ = 0;
};

TEST(cudnn, integers_are_exact) {
    CONVGRAD_NEEDS_CUDNN();
    rng random(117);
    workbench bench;
    gpu_bench gpu;
    gpu.allow_cudnn();
    failures failed;
    std::uint64_t seed = 0;
    products::for_each(random, [&](const problem &p) {
        bench.load(plain(p), fill::integers, ++seed);
        if (!runs(gpu, bench)) return;
        bench.run_reference();
        failed.count(bench.compare_exact(), gpu, p);
    });
    EXPECT_GT(failed.ran(), 60);
}

TEST(cudnn, reals_within_bound_and_the_same_bits_again) {
    CONVGRAD_NEEDS_CUDNN();
    rng random(118);
    workbench bench;
    gpu_bench gpu;
    gpu.allow_cudnn();
    failures failed;
    std::uint64_t seed = 0;
    products::for_each(random, [&](const problem &loaded) {
        const problem p = plain(loaded);
        bench.load(p, fill::reals, ++seed);
        if (!runs(gpu, bench)) return;
        bench.run_reference();
        failed.count(bench.compare_bounded(allowed_for(p)), gpu, p);
        const auto expected = bench.output_bytes();
        runs(gpu, bench);
        EXPECT_EQ(bench.output_bytes(), expected) << gpu.description() << ' ' << to_text(p);
        cuda::limit_grids_for_testing(3);
        runs(gpu, bench);
        cuda::limit_grids_for_testing(0);
        EXPECT_EQ(bench.output_bytes(), expected) << gpu.description() << ' ' << to_text(p);
        // Elsewhere another algorithm computes, as exactly.
        gpu.misalign(true);
        runs(gpu, bench);
        gpu.misalign(false);
        failed.count(bench.compare_bounded(allowed_for(p)), gpu, p);
    });
}

TEST(cudnn, special_values_as_in_the_reference) {
    CONVGRAD_NEEDS_CUDNN();
    rng random(119);
    workbench bench;
    gpu_bench gpu;
    gpu.allow_cudnn();
    failures failed;
    std::uint64_t seed = 0;
    products::for_each(random, [&](const problem &loaded) {
        const problem p = plain(loaded);
        bench.load(p, fill::integers, ++seed);
        plant_special_values(bench, random);
        if (!runs(gpu, bench)) return;
        bench.run_reference();
        failed.count(bench.compare_bounded(allowed_for(p)), gpu, p);
    });
}

TEST(cudnn, random_problems) {
    CONVGRAD_NEEDS_CUDNN();
    workbench bench;
    gpu_bench gpu;
    gpu.allow_cudnn();
    failures failed;
    for (std::uint64_t seed = 90001; seed < 91201; seed += sample_step()) {
        rng random(seed);
        // 32 channels on each side make of these a thousand times as many products.
        problem p = plain(random_problem(random, 3e4));
        p.math = math_mode::fast;
        p.groups = 1;
        const dim least = p.type == data_type::f32 ? 8 : 32;
        p.ic = std::max(least, (p.ic + 7) / 8 * 8);
        p.oc = std::max(least, (p.oc + 7) / 8 * 8);
        const data_layout layout = random.pick({data_layout::nxc, data_layout::ncx});
        set_layouts(p, layout, random.pick({weights_layout::oix, weights_layout::xio}), layout);
        const fill how = seed % 2 == 0 ? fill::integers : fill::reals;
        bench.load(p, how, seed);
        const bool special = seed % 3 == 0;
        if (special) plant_special_values(bench, random);
        if (!runs(gpu, bench)) continue;
        bench.run_reference();
        failed.count(how == fill::integers && !special ? bench.compare_exact()
                                                       : bench.compare_bounded(allowed_for(p)),
            gpu, p);
    }
    EXPECT_GT(failed.ran(), 100 / sample_step());
}

TEST(cudnn, workspace_limits_are_kept_or_named) {
    CONVGRAD_NEEDS_CUDNN();
    workbench bench;
    gpu_bench gpu;
    gpu.allow_cudnn();
    for (const pass what : all_passes)
        for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
            for (const data_type type : {data_type::f32, data_type::bf16}) {
                // 16-bit planes: 1x1 layers.
                const bool planes = layout == data_layout::ncx && type == data_type::bf16;
                const problem p = layer(what, type, 64, 32, 28, planes ? 1 : 3, layout, 4);
                bench.load(p, fill::integers, 5);
                bench.run_reference();
                const std::size_t needed =
                    cuda::make_plan(p, gpu.arch(), {.only_algorithm = name})->workspace();
                for (const std::size_t limit : {needed, needed / 2, std::size_t{0}})
                    if (runs(gpu, bench, limit)) {
                        EXPECT_EQ(bench.compare_exact(), "") << limit << " of " << needed;
                    }
            }
}

TEST(cudnn, many_threads_at_once) {
    CONVGRAD_NEEDS_CUDNN();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < 6; ++i)
        threads.emplace_back([&wrong, i] {
            workbench bench;
            gpu_bench gpu;
            gpu.allow_cudnn();
            for (int round = 0; round < 10; ++round)
                for (const pass what : all_passes) {
                    const auto type = round % 2 == 0 ? data_type::bf16 : data_type::f32;
                    bench.load(
                        layer(what, type, 64, 64, 14, 3, data_layout::nxc, 3), fill::integers, i);
                    bench.run_reference();
                    if (gpu.run(bench, name) != name || !bench.compare_exact().empty()) ++wrong;
                }
        });
    for (std::thread &t : threads) t.join();
    EXPECT_EQ(wrong, 0);
}

TEST(cudnn, a_captured_graph_replays_with_the_same_bits) {
    CONVGRAD_NEEDS_CUDNN();
    gpu_bench gpu;
    gpu.allow_cudnn();
    const cuda::current here(gpu.device());
    const test_driver &cu = tests_driver();
    CUstream own = nullptr;
    ASSERT_EQ(cuda::the_driver().cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cuda::lane lane(gpu.device(), own);
    for (const pass what : all_passes) {
        // A shape of its own, so that the first execution is the one that is captured.
        const problem p = layer(
            what, data_type::bf16, 72, 40, 13 + static_cast<dim>(what), 3, data_layout::nxc, 3);
        workbench bench;
        bench.load(p, fill::reals, 3);
        const auto plan = cuda::make_plan(p, gpu.arch(), {.only_algorithm = name});
        const auto bytes = [&](role r) { return static_cast<std::size_t>(span_of(p, r)) * 2; };
        gpu_memory src(bytes(role::src)), weights(bytes(role::weights)), dst(bytes(role::dst)),
            room(plan->workspace());
        src.copy_in(bench.data().src, bytes(role::src));
        weights.copy_in(bench.data().weights, bytes(role::weights));
        dst.copy_in(bench.data().dst, bytes(role::dst));
        const conv::buffers data{src.data(), weights.data(), dst.data(), nullptr, nullptr};
        gpu_memory &out = what == pass::forward ? dst : what == pass::backward_data ? src : weights;
        const std::size_t size = bytes(output_of(p));
        ASSERT_EQ(cu.begin_capture(own, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
        plan->execute({&data, 1}, room.data(), lane);
        CUgraph graph = nullptr;
        ASSERT_EQ(cu.end_capture(own, &graph), CUDA_SUCCESS);
        CUgraphExec ready = nullptr;
        ASSERT_EQ(cu.instantiate(&ready, graph, 0), CUDA_SUCCESS);
        std::vector<std::byte> replayed(size), direct(size);
        for (int i = 0; i < 2; ++i) {
            out.fill(0xff);
            ASSERT_EQ(cu.launch_graph(ready, own), CUDA_SUCCESS);
            lane.wait();
        }
        out.copy_out(replayed.data(), size);
        out.fill(0xff);
        plan->execute({&data, 1}, room.data(), lane);
        lane.wait();
        out.copy_out(direct.data(), size);
        EXPECT_EQ(replayed, direct) << plan->describe();
        bench.run_reference();
    }
}

}  // namespace
}  // namespace convgrad::test

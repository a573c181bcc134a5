// Several devices in one process: each with kernels, memory and streams of its own. The emulator
// has two.
#include <atomic>
#include <thread>

#include <convgrad/convgrad.hpp>

#include "cuda/machine.hpp"
#include "graph/device_layer.hpp"

namespace convgrad::test {
namespace {

using enum error_code;

#define CONVGRAD_NEEDS_TWO_GPUS()                                                                  \
    CONVGRAD_NEEDS_GPU();                                                                          \
    if (cuda::device_count() < 2) GTEST_SKIP() << "there is one device"

engine engine_of(int device) {
    return engine(engine_options{.kind = engine_kind::cuda, .device = device});
}

template <int Device>
struct memory_of : gpu_memory {
    explicit memory_of(std::size_t bytes) : gpu_memory(bytes, Device) {}
};
using first_layer = device_layer<memory_of<0>>;
using second_layer = device_layer<memory_of<1>>;

template <typename Layer>
void expect_right(const Layer &l) {
    EXPECT_EQ(l.dst.values(), l.expected());
    EXPECT_EQ(l.diff_src.values(), l.host.diff_src());
    EXPECT_EQ(l.diff_weights.values(), l.host.diff_weights());
}

template <typename Layer>
void run_all(const Layer &l, const stream &queue) {
    l.call(queue);
    convolution_backward(l.src.view(), l.diff_dst.view(), l.weights.view(), l.diff_src.view(),
        l.diff_weights.view(), l.host.attrs, {.queue = &queue});
}

compiled_partition compiled_for(const engine &on, const layer &l) {
    return compile(op_kind::convolution, {l.src.described(0), l.weights.described(1)},
        {f32(2, {2, 5, 5, 4})}, l.attrs, {.on = &on});
}

TEST(cuda_devices, the_second_computes_on_own_and_given_streams) {
    CONVGRAD_NEEDS_TWO_GPUS();
    const engine on = engine_of(1);
    const second_layer l;
    const stream queue(on);
    run_all(l, queue);
    queue.wait();
    expect_right(l);

    // Whatever device is current to the caller, it stays so.
    const cuda::current other(cuda::the_device(0));
    CUstream given = nullptr;
    {
        const cuda::current here(cuda::the_device(1));
        ASSERT_EQ(cuda::the_driver().cuStreamCreate(&given, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    }
    const second_layer again;
    run_all(again, stream(on, given));
    ASSERT_EQ(cuda::the_driver().cuStreamSynchronize(given), CUDA_SUCCESS);
    expect_right(again);
    CUcontext now = nullptr;
    ASSERT_EQ(tests_driver().current(&now), CUDA_SUCCESS);
    EXPECT_EQ(now, cuda::the_device(0).context);
    cuda::the_driver().cuStreamDestroy(given);
}

TEST(cuda_devices, memory_of_another_device_is_refused) {
    CONVGRAD_NEEDS_TWO_GPUS();
    const first_layer l;
    const second_layer other;
    const stream queue(engine_of(1));
    expect_error(
        invalid_argument, {"input 0 (src)", "cuda device 1", "memory of another device"}, [&] {
            convolution(l.src.view(), other.weights.view(), {}, other.dst.view(), l.host.attrs,
                {.queue = &queue});
        });
    expect_error(
        invalid_argument, {"output 0 (dst)", "cuda device 1", "memory of another device"}, [&] {
            convolution(other.src.view(), other.weights.view(), {}, l.dst.view(), l.host.attrs,
                {.queue = &queue});
        });
}

TEST(cuda_devices, streams_and_plans_of_another_device_are_refused) {
    CONVGRAD_NEEDS_TWO_GPUS();
    const engine first = engine_of(0), second = engine_of(1);
    const cuda::current here(cuda::the_device(0));
    CUstream given = nullptr;
    ASSERT_EQ(cuda::the_driver().cuStreamCreate(&given, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    expect_error(invalid_argument, {"native queue", "another device", "cuda device 1"},
        [&] { const stream s(second, given); });
    cuda::the_driver().cuStreamDestroy(given);

    const second_layer l;
    const auto run = [&](const engine &made_for, const engine &on) {
        const stream queue(on);
        compiled_for(made_for, l.host)
            .execute(queue, {l.src.view(), l.weights.view()}, {l.dst.view()});
        queue.wait();
    };
    expect_error(invalid_argument, {"cuda device 1", "cuda device 0"}, [&] { run(first, second); });
    run(second, engine_of(1));
    EXPECT_EQ(l.dst.values(), l.expected());
}

TEST(cuda_devices, both_compute_at_once) {
    CONVGRAD_NEEDS_TWO_GPUS();
    std::atomic<int> wrong{0};
    const auto work = [&]<typename Layer>(std::in_place_type_t<Layer>, int device) {
        const engine on = engine_of(device);
        const Layer l;
        const stream queue(on);
        for (int round = 0; round < 20; ++round) run_all(l, queue);
        queue.wait();
        if (l.dst.values() != l.expected() || l.diff_src.values() != l.host.diff_src()
            || l.diff_weights.values() != l.host.diff_weights())
            ++wrong;
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] { work(std::in_place_type<first_layer>, 0); });
        threads.emplace_back([&] { work(std::in_place_type<second_layer>, 1); });
    }
    for (std::thread &t : threads) t.join();
    EXPECT_EQ(wrong, 0);
}

// Whose kernels were loaded for each.
TEST(cuda_devices, every_algorithm_has_the_same_bits_on_both) {
    CONVGRAD_NEEDS_TWO_GPUS();
    workbench bench;
    gpu_bench first(0), second(1);
    if (first.arch().major != second.arch().major || first.arch().minor != second.arch().minor)
        GTEST_SKIP() << "two kinds of devices";
    for (std::uint64_t seed = 90001; seed < 90061; ++seed) {
        rng random(seed);
        bench.load(random_problem(random, 2e4), fill::reals, seed);
        for (const std::string_view algorithm : cuda::algorithm_names()) {
            try {
                first.run(bench, algorithm);
            } catch (const error &e) {
                ASSERT_EQ(e.code(), unsupported) << e.what();
                continue;
            }
            const auto expected = bench.output_bytes();
            second.run(bench, algorithm);
            ASSERT_EQ(bench.output_bytes(), expected) << algorithm << to_text(bench.problem());
        }
    }
}

/// What the emulator's second device answers while this lives.
struct answers {
    answers(CUresult of_launches, CUresult of_all) {
        tests_driver().answer(1, of_launches, of_all);
    }
    ~answers() { tests_driver().answer(1, CUDA_SUCCESS, CUDA_SUCCESS); }
    answers(const answers &) = delete;
    answers &operator=(const answers &) = delete;
};

TEST(cuda_devices, errors_of_the_driver_name_op_device_and_cause) {
    CONVGRAD_NEEDS_TWO_GPUS();
    if (tests_driver().answer == nullptr) GTEST_SKIP() << "devices do not fail on demand";
    const first_layer other;
    const second_layer l;
    const engine on = engine_of(1);
    const stream queue(on), healthy(engine_of(0));
    graph g;
    op forward = padded(0, op_kind::convolution, "stem");
    forward.add_input(l.host.src.described(0)).add_input(l.host.weights.described(1));
    g.add(forward.add_output(f32(2, {2, 5, 5, 4})));
    g.finalize();
    const compiled_partition ready = g.partitions().at(0).compile(on);
    const auto run = [&] {
        ready.execute(queue, {l.src.view(), l.weights.view()}, {l.dst.view()});
    };
    {
        const answers refused(CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS);
        expect_error(device_failure,
            {"Convolution: device failure: cuda device 1 (emulator): launching "},
            [&] { l.call(queue); });
        expect_error(device_failure, {R"(Convolution "stem": device failure: cuda device 1)"}, run);
        queue.wait();
    }
    {
        const answers lost(CUDA_SUCCESS, CUDA_ERROR_ILLEGAL_ADDRESS);
        expect_error(device_failure,
            {"Convolution: device failure: cuda device 1 (emulator): ", "work that was queued",
                "cannot be used by this process any more"},
            [&] { l.call(queue); });
        expect_error(device_failure, {R"(Convolution "stem": device failure: cuda device 1)"}, run);
        expect_error(device_failure, {"cuda device 1 (emulator): waiting"}, [&] { queue.wait(); });
        other.call(healthy);
        healthy.wait();
        EXPECT_EQ(other.dst.values(), other.expected());
    }
    run();
    queue.wait();
    EXPECT_EQ(l.dst.values(), l.expected());
}

// A caller's workspace is memory of the device, aligned as the device's own is.
TEST(cuda_devices, workspaces_of_other_memory_are_refused) {
    CONVGRAD_NEEDS_GPU();
    const device_layer<gpu_memory> l;
    const engine on = engine_of(0);
    const compiled_partition ready = compile(op_kind::convolution_backward_weights,
        {l.host.src.described(0), l.host.diff_dst.described(1)}, {f32(2, {3, 3, 3, 4})},
        l.host.attrs, {.on = &on});
    ASSERT_EQ(ready.workspace_alignment(), 256U);
    const std::size_t bytes = ready.workspace_size();
    ASSERT_GT(bytes, 0U);
    const stream queue(on);
    const auto run = [&](void *workspace) {
        ready.execute(queue, {l.src.view(), l.diff_dst.view()}, {l.diff_weights.view()}, workspace);
    };
    std::vector<std::byte> host(bytes);
    expect_error(invalid_argument,
        {"ConvolutionBackwardWeights", "workspace", "cuda device 0", "memory of the host"},
        [&] { run(host.data()); });
    gpu_memory own(bytes + 256);
    expect_error(invalid_argument, {"workspace", "aligned to 256"},
        [&] { run(static_cast<std::byte *>(own.data()) + 64); });
    if (cuda::device_count() > 1) {
        const gpu_memory other(bytes, 1);
        expect_error(invalid_argument, {"workspace", "memory of another device"},
            [&] { run(other.data()); });
    }
    run(own.data());
    queue.wait();
    EXPECT_EQ(l.diff_weights.values(), l.host.diff_weights());
}

}  // namespace
}  // namespace convgrad::test

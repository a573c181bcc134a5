// The engine as a user meets it: loaded by the library, on streams, under capture, with errors.
#include <cstring>
#include <thread>

#include <convgrad/convgrad.hpp>

#include "cuda/machine.hpp"
#include "graph/device_layer.hpp"

namespace convgrad::test {
namespace {

using enum error_code;

/// The engine of device 0, loaded from its shared object.
engine gpu_engine() {
    return engine(engine_options{.kind = engine_kind::cuda});
}

using gpu_buffer = device_buffer<gpu_memory>;
using gpu_layer = device_layer<gpu_memory>;

TEST(cuda_engine, says_what_is_missing) {
    if (why_no_gpu().empty()) GTEST_SKIP() << "nothing is";
    expect_error(unsupported, {"engine", "cuda"}, [] { (void)gpu_engine(); });
    EXPECT_NO_THROW(release_scratch());
}

TEST(cuda_engine, refuses_settings_that_are_not_its_own) {
    CONVGRAD_NEEDS_GPU();
    expect_error(invalid_argument, {"device", "99", "CUDA devices"},
        [] { const engine e(engine_options{.kind = engine_kind::cuda, .device = 99}); });
    expect_error(invalid_argument, {"device", "-1"},
        [] { const engine e(engine_options{.kind = engine_kind::cuda, .device = -1}); });
    expect_error(invalid_argument, {"threads"},
        [] { const engine e(engine_options{.kind = engine_kind::cuda, .threads = 3}); });
    EXPECT_EQ(gpu_engine().kind(), engine_kind::cuda);
}

TEST(cuda_engine, eager_calls_on_own_and_given_streams) {
    CONVGRAD_NEEDS_GPU();
    const gpu_layer l;
    const engine on = gpu_engine();
    const stream queue(on);
    l.call(queue);
    queue.wait();
    EXPECT_EQ(l.dst.values(), l.expected());
    convolution_backward(l.src.view(), l.diff_dst.view(), l.weights.view(), l.diff_src.view(),
        l.diff_weights.view(), l.host.attrs, {.on = &on});
    EXPECT_EQ(l.diff_src.values(), l.host.diff_src());
    EXPECT_EQ(l.diff_weights.values(), l.host.diff_weights());

    const cuda::device &d = cuda::the_device(0);
    const cuda::current here(d);
    CUstream own = nullptr;
    ASSERT_EQ(cuda::the_driver().cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    const gpu_layer again;
    again.call(stream(on, own));
    ASSERT_EQ(cuda::the_driver().cuStreamSynchronize(own), CUDA_SUCCESS);
    EXPECT_EQ(again.dst.values(), l.expected());
    cuda::the_driver().cuStreamDestroy(own);
}

TEST(cuda_engine, memory_of_the_host_is_refused_by_name_and_managed_memory_is_not) {
    CONVGRAD_NEEDS_GPU();
    const gpu_layer l;
    const stream queue(gpu_engine());
    expect_error(
        invalid_argument, {"input 1 (weights)", "cuda device 0", "memory of the host"}, [&] {
            convolution(l.src.view(), l.host.weights.view(), {}, l.dst.view(), l.host.attrs,
                {.queue = &queue});
        });
    const cuda::current here(cuda::the_device(0));
    void *pinned = nullptr;
    ASSERT_EQ(tests_driver().alloc_host(&pinned, 4096), CUDA_SUCCESS);
    expect_error(invalid_argument, {"output 0 (dst)", "pinned memory of the host"}, [&] {
        convolution(l.src.view(), l.weights.view(), {},
            tensor(pinned, data_type::f32, {2, 5, 5, 4}), l.host.attrs, {.queue = &queue});
    });
    CUdeviceptr managed = 0;
    ASSERT_EQ(tests_driver().alloc_managed(&managed, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    auto *const values = reinterpret_cast<float *>(managed);
    convolution(l.src.view(), l.weights.view(), {}, tensor(values, data_type::f32, {2, 5, 5, 4}),
        l.host.attrs, {.queue = &queue});
    queue.wait();
    EXPECT_EQ(std::vector<float>(values, values + 200), l.expected());
    tests_driver().free(managed);
}

TEST(cuda_engine, a_captured_graph_replays_with_other_values) {
    CONVGRAD_NEEDS_GPU();
    const gpu_layer l;
    const engine on = gpu_engine();
    const cuda::current here(cuda::the_device(0));
    const test_driver &cu = tests_driver();
    CUstream own = nullptr;
    ASSERT_EQ(cuda::the_driver().cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    const stream queue(on, own);
    ASSERT_EQ(cu.begin_capture(own, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    l.call(queue);
    convolution_backward(l.src.view(), l.diff_dst.view(), l.weights.view(), l.diff_src.view(),
        l.diff_weights.view(), l.host.attrs, {.queue = &queue});
    CUgraph graph = nullptr;
    ASSERT_EQ(cu.end_capture(own, &graph), CUDA_SUCCESS);
    EXPECT_EQ(l.dst.values(), std::vector<float>(200, -99));
    CUgraphExec ready = nullptr;
    ASSERT_EQ(cu.instantiate(&ready, graph, 0), CUDA_SUCCESS);
    for (int replay = 0; replay < 3; ++replay) {
        ASSERT_EQ(
            cu.fill(reinterpret_cast<CUdeviceptr>(l.dst.view().data), 0xff, 800), CUDA_SUCCESS);
        ASSERT_EQ(cu.fill(reinterpret_cast<CUdeviceptr>(l.diff_weights.view().data), 0xff, 432),
            CUDA_SUCCESS);
        ASSERT_EQ(cu.launch_graph(ready, own), CUDA_SUCCESS);
        queue.wait();
        EXPECT_EQ(l.dst.values(), l.expected());
        EXPECT_EQ(l.diff_src.values(), l.host.diff_src());
        EXPECT_EQ(l.diff_weights.values(), l.host.diff_weights());
    }
}

TEST(cuda_engine, many_threads_and_streams_at_once) {
    CONVGRAD_NEEDS_GPU();
    const engine on = gpu_engine();
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] {
            const gpu_layer l;
            const stream queue(on);
            for (int round = 0; round < 50; ++round) {
                l.call(queue);
                convolution_backward(l.src.view(), l.diff_dst.view(), l.weights.view(),
                    l.diff_src.view(), l.diff_weights.view(), l.host.attrs, {.queue = &queue});
            }
            queue.wait();
            if (l.dst.values() != l.expected() || l.diff_src.values() != l.host.diff_src()
                || l.diff_weights.values() != l.host.diff_weights())
                ++wrong;
        });
    for (std::thread &t : threads) t.join();
    EXPECT_EQ(wrong, 0);
}

TEST(cuda_engine, scratch_that_cannot_be_had_is_told) {
    CONVGRAD_NEEDS_GPU();
    cuda::lane lane(cuda::the_device(0), nullptr);
    expect_error(out_of_memory, {"cuda device 0", "scratch"},
        [&] { (void)lane.take(std::size_t{1} << 50); });
    void *some = lane.take(4096);
    lane.give_back(some, 4096);
    lane.wait();
    lane.check();
}

TEST(cuda_engine, a_plan_of_another_engine_is_refused) {
    CONVGRAD_NEEDS_GPU();
    const gpu_layer l;
    const engine on = gpu_engine();
    const compiled_partition ready =
        compile(op_kind::convolution, {l.host.src.described(0), l.host.weights.described(1)},
            {f32(2, {2, 5, 5, 4})}, l.host.attrs, {.on = &on});
    EXPECT_NE(ready.describe().find("cuda."), std::string::npos) << ready.describe();
    expect_error(invalid_argument, {"cpu", "cuda device 0"}, [&] {
        ready.execute(stream(default_engine()), {l.src.view(), l.weights.view()}, {l.dst.view()});
    });
}

// A fault of the device stays, and everybody is told. In a process of its own: nothing brings the
// device back.
TEST(cuda_engine_death, a_fault_is_reported_and_stays) {
    CONVGRAD_NEEDS_GPU();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            const gpu_layer l;
            const stream queue(gpu_engine());
            // Refused only where the driver can tell; this lies inside an allocation at its start
            // and far behind it at its end.
            convolution(tensor(l.src.view().data, data_type::f32, {1 << 14, 1 << 10, 1 << 10, 3}),
                l.weights.view(), {},
                tensor(l.dst.view().data, data_type::f32, {1 << 14, 1 << 10, 1 << 10, 4}),
                l.host.attrs, {.queue = &queue});
            for (int i = 0; i < 2; ++i) try {
                    queue.wait();
                    std::exit(3);
                } catch (const error &e) {
                    if (e.code() != device_failure) std::exit(4);
                    if (i == 1) std::fprintf(stderr, "%s\n", e.what());
                }
            try {
                l.call(queue);
                std::exit(5);
            } catch (const error &e) {
                const bool named = std::string_view(e.what()).starts_with(
                    "Convolution: device failure: cuda device 0");
                std::exit(e.code() == device_failure && named ? 0 : 6);
            }
        },
        testing::ExitedWithCode(0), "cuda device 0.*CUDA_ERROR");
}

}  // namespace
}  // namespace convgrad::test

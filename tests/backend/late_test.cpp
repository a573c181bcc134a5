// The seam between graphs and engines, on an engine that does everything late.
#include <cstring>
#include <memory>
#include <optional>

#include "graph/device_layer.hpp"
#include "support/late_backend.hpp"

namespace convgrad::test {
namespace {

using enum error_code;

using late_buffer = device_buffer<device_memory>;
using late_layer = device_layer<device_memory>;

const std::vector<float> untouched(200, -99);

compiled_partition forward_on(const engine &on, const late_layer &l) {
    return compile(op_kind::convolution, {l.host.src.described(0), l.host.weights.described(1)},
        {f32(2, {2, 5, 5, 4})}, l.host.attrs, {.on = &on});
}

TEST(late_engine, a_whole_graph_runs_when_it_is_waited_for) {
    const late_layer l;
    const engine on = late_engine();
    graph g;
    op forward = padded(0, op_kind::convolution);
    forward.add_input(l.host.src.described(0)).add_input(l.host.weights.described(1));
    op data = padded(1, op_kind::convolution_backward_data);
    data.add_input(l.host.diff_dst.described(2)).add_input(l.host.weights.described(1));
    op weights = padded(2, op_kind::convolution_backward_weights);
    weights.add_input(l.host.src.described(0)).add_input(l.host.diff_dst.described(2));
    g.add(forward.add_output(f32(3, {2, 5, 5, 4})));
    g.add(data.add_output(f32(4, {2, 5, 5, 3})));
    g.add(weights.add_output(f32(5, {3, 3, 3, 4})));
    g.finalize();

    std::optional<stream> queue(on);
    for (const partition &p : g.partitions()) {
        const compiled_partition ready = p.compile(on);
        EXPECT_NE(ready.describe().find("late.loops, late"), std::string::npos);
        const auto memory = [&](std::size_t id) {
            const tensor all[] = {l.src.view(), l.weights.view(), l.diff_dst.view(), l.dst.view(),
                l.diff_src.view(), l.diff_weights.view()};
            return all[id];
        };
        std::vector<tensor> ins, outs;
        for (const logical_tensor &t : ready.inputs()) ins.push_back(memory(t.id));
        for (const logical_tensor &t : ready.outputs()) outs.push_back(memory(t.id));
        ready.execute(*queue, ins, outs);
    }  // partitions, plans and lists of tensors are gone before anything ran
    EXPECT_EQ(l.dst.values(), untouched);
    EXPECT_EQ(lane_of(*queue).taken, 0U);
    queue->wait();
    EXPECT_EQ(l.dst.values(), l.expected());
    EXPECT_EQ(l.diff_src.values(), l.host.diff_src());
    EXPECT_EQ(l.diff_weights.values(), l.host.diff_weights());
}

TEST(late_engine, eager_calls_queue_on_a_given_stream_and_wait_for_their_own) {
    const late_layer l;
    const engine on = late_engine();
    const stream queue(on);
    l.call(queue);
    EXPECT_EQ(l.dst.values(), untouched);
    queue.wait();
    EXPECT_EQ(l.dst.values(), l.expected());

    convolution_backward(l.src.view(), l.diff_dst.view(), l.weights.view(), l.diff_src.view(),
        l.diff_weights.view(), l.host.attrs, {.on = &on});
    EXPECT_EQ(l.diff_src.values(), l.host.diff_src());
    EXPECT_EQ(l.diff_weights.values(), l.host.diff_weights());

    const engine other = late_engine();
    expect_error(invalid_argument, {"on", "queue", "different engines"}, [&] {
        convolution(l.src.view(), l.weights.view(), {}, l.dst.view(), l.host.attrs,
            {.on = &other, .queue = &queue});
    });
}

TEST(late_engine, memory_of_the_host_is_refused_by_name_before_anything_is_queued) {
    const late_layer l;
    const engine on = late_engine();
    const stream queue(on);
    expect_error(
        invalid_argument, {"input 1 (weights)", "late device 0", "memory of the host"}, [&] {
            convolution(l.src.view(), l.host.weights.view(), {}, l.dst.view(), l.host.attrs,
                {.queue = &queue});
        });
    EXPECT_EQ(lane_of(queue).waiting(), 0U);
}

TEST(late_engine, shape_inputs_are_read_during_the_call) {
    const late_layer l;
    const engine on = late_engine();
    const compiled_partition ready = compile(op_kind::convolution_backward_data,
        {l.host.diff_dst.described(0), l.host.weights.described(1),
            logical_tensor(2, data_type::s32, {4})},
        {f32(3)}, l.host.attrs, {.on = &on});
    std::vector<std::int32_t> shape = {2, 5, 5, 3};
    const stream queue(on);
    ready.execute(
        queue, {l.diff_dst.view(), l.weights.view(), {shape.data(), {4}}}, {l.diff_src.view()});
    shape.assign(4, -1);
    queue.wait();
    EXPECT_EQ(l.diff_src.values(), l.host.diff_src());
}

TEST(late_engine, plans_run_on_their_own_device_only) {
    const late_layer l;
    const engine first = late_engine(0), second = late_engine(1);
    const auto run = [&](const compiled_partition &ready, const engine &on) {
        ready.execute(stream(on), {l.src.view(), l.weights.view()}, {l.dst.view()});
    };
    expect_error(invalid_argument, {"late device 1", "late device 0"},
        [&] { run(forward_on(first, l), second); });
    expect_error(invalid_argument, {"cpu", "late device 0"},
        [&] { run(forward_on(first, l), default_engine()); });
    expect_error(invalid_argument, {"late device 0", "cpu"},
        [&] { run(forward_on(default_engine(), l), first); });
    run(forward_on(first, l), late_engine(0));  // another engine on the same device
}

TEST(late_engine, a_failure_stays_and_is_told_to_all_who_ask) {
    const late_layer l;
    const engine on = late_engine();
    const stream queue(on), healthy(on);
    const auto call = [&](const stream &s) {
        convolution(l.src.view(), l.weights.view(), {}, l.dst.view(), l.host.attrs, {.queue = &s});
    };
    lane_of(queue).fail_next();
    call(queue);
    for (int i = 0; i < 2; ++i)
        expect_error(device_failure, {"late device", "a fault"}, [&] { queue.wait(); });
    expect_error(device_failure, {"Convolution: device failure: late device: a fault"},
        [&] { call(queue); });
    EXPECT_EQ(l.dst.values(), untouched);
    call(healthy);
    healthy.wait();
    EXPECT_EQ(l.dst.values(), l.expected());
}

// Whatever a device refuses: the message begins with the op that met it.
TEST(late_engine, errors_of_the_device_name_the_op) {
    const late_layer l;
    const engine on = late_engine();
    const stream lost(on), busy(on), full(on);
    lane_of(full).run_out();
    const auto both = [&](const stream &queue) {
        convolution_backward(l.src.view(), l.diff_dst.view(), l.weights.view(), l.diff_src.view(),
            l.diff_weights.view(), l.host.attrs, {.queue = &queue});
    };
    expect_error(out_of_memory, {"Convolution: out of memory: late device: taking scratch"},
        [&] { l.call(full); });
    expect_error(out_of_memory, {"ConvolutionBackwardData: out of memory: late device"},
        [&] { both(full); });
    lane_of(busy).refuse_after(1);
    expect_error(device_failure,
        {"ConvolutionBackwardWeights: device failure: late device: launch"}, [&] { both(busy); });

    graph g;
    op data = padded(1, op_kind::convolution_backward_data, "layer 3, data");
    data.add_input(l.host.diff_dst.described(2)).add_input(l.host.weights.described(1));
    op weights = padded(2, op_kind::convolution_backward_weights, "layer 3, weights");
    weights.add_input(l.host.src.described(0)).add_input(l.host.diff_dst.described(2));
    g.add(data.add_output(f32(4, {2, 5, 5, 3}))).add(weights.add_output(f32(5, {3, 3, 3, 4})));
    g.finalize();
    const compiled_partition ready = g.partitions().at(0).compile(on);
    const auto run = [&](const stream &queue) {
        ready.execute(queue, {l.diff_dst.view(), l.weights.view(), l.src.view()},
            {l.diff_src.view(), l.diff_weights.view()});
    };
    expect_error(out_of_memory, {R"(BackwardData "layer 3, data": out of memory: late device)"},
        [&] { run(full); });
    lane_of(busy).refuse_after(1);
    expect_error(device_failure, {R"(BackwardWeights "layer 3, weights": device failure: late)"},
        [&] { run(busy); });
    lane_of(lost).fail_next();
    run(lost);
    lane_of(lost).run();
    expect_error(device_failure, {R"("layer 3, data": device failure: late device: a fault)"},
        [&] { run(lost); });
}

TEST(late_engine, a_callers_workspace_is_used_and_its_alignment_is_the_devices) {
    const late_layer l;
    const engine on = late_engine(0, 512);
    const compiled_partition ready = forward_on(on, l);
    ASSERT_EQ(ready.workspace_size(), 512U);
    ASSERT_EQ(ready.workspace_alignment(), 256U);
    device_memory workspace(512 + 256);
    const std::vector<unsigned char> nan(512 + 256, 0xff);
    workspace.copy_in(nan.data(), nan.size());
    const stream queue(on);
    const auto run = [&](std::size_t offset) {
        ready.execute(queue, {l.src.view(), l.weights.view()}, {l.dst.view()},
            static_cast<std::byte *>(workspace.data()) + offset);
    };
    expect_error(
        invalid_argument, {"Convolution", "workspace", "aligned to 256"}, [&] { run(64); });
    EXPECT_EQ(lane_of(queue).waiting(), 0U);
    run(256);
    queue.wait();
    EXPECT_EQ(l.dst.values(), l.expected());
    std::vector<unsigned char> after(nan.size());
    workspace.copy_out(after.data(), after.size());
    EXPECT_EQ(after[256], 0x11);
    EXPECT_EQ(after[255], 0xff);
}

TEST(late_engine, a_workspace_of_the_host_is_refused_before_anything_is_queued) {
    const late_layer l;
    const engine on = late_engine(0, 512), no_scratch = late_engine(0, 0);
    alignas(256) std::byte host[512];
    const stream queue(on);
    const auto run = [&](const compiled_partition &ready, void *workspace) {
        ready.execute(queue, {l.src.view(), l.weights.view()}, {l.dst.view()}, workspace);
    };
    expect_error(invalid_argument,
        {"Convolution", "workspace", "late device 0", "memory of the host", "null"},
        [&] { run(forward_on(on, l), host); });
    EXPECT_EQ(lane_of(queue).waiting(), 0U);
    // One that nobody writes to may be anywhere.
    run(forward_on(no_scratch, l), host + 1);
    // And none at all is the library's to take.
    run(forward_on(on, l), nullptr);
    queue.wait();
    EXPECT_EQ(l.dst.values(), l.expected());
}

TEST(late_engine, a_native_queue_reaches_the_backend) {
    int native = 0;
    EXPECT_EQ(lane_of(stream(late_engine(), &native)).native, &native);
    expect_error(invalid_argument, {"native queue", "CPU"},
        [&] { const stream s(default_engine(), &native); });
}

// A CPU engine runs what was made for fewer instructions, never for more.
TEST(cpu_engine, refuses_plans_for_more_than_it_may_use) {
    const layer l;
    const engine portable(engine_options{.max_isa = isa::portable}), best;
    if (best.instruction_set() == isa::portable) GTEST_SKIP() << "nothing but portable here";
    const auto run = [&](const engine &compiled_for, const engine &on) {
        buffer out({2, 5, 5, 4});
        compile(op_kind::convolution, {l.src.described(0), l.weights.described(1)},
            {out.described(2)}, l.attrs, {.on = &compiled_for})
            .execute(stream(on), {l.src.view(), l.weights.view()}, {out.view()});
    };
    expect_error(invalid_argument, {"cpu portable", "compiled for"}, [&] { run(best, portable); });
    run(portable, best);
    run(engine(engine_options{.threads = 2}), engine(engine_options{.threads = 1}));
}

}  // namespace
}  // namespace convgrad::test

// The drop-in without memory: each request of each call fails in turn. Whatever fails must say
// dnnl_out_of_memory, leak nothing, and work when it is called again. In front of a library whose
// own requests fail, what that throws reaches the client, as without the drop-in.
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl_graph.h>

#include "memory/injector.hpp"

namespace convgrad::test {
namespace {

using injector::mode;

/// Every handle that a run makes; destroyed in any state.
struct handles {
    dnnl_engine_t engine = nullptr;
    dnnl_stream_t stream = nullptr;
    dnnl_graph_op_t op = nullptr, relu = nullptr;
    dnnl_graph_graph_t graph = nullptr;
    dnnl_graph_partition_t partition = nullptr;
    dnnl_graph_compiled_partition_t compiled = nullptr;
    dnnl_graph_tensor_t tensors[3] = {};

    handles() = default;
    handles(const handles &) = delete;
    handles &operator=(const handles &) = delete;
    ~handles() {
        for (dnnl_graph_tensor_t t : tensors) dnnl_graph_tensor_destroy(t);
        dnnl_graph_compiled_partition_destroy(compiled);
        dnnl_graph_partition_destroy(partition);
        dnnl_graph_graph_destroy(graph);
        dnnl_graph_op_destroy(op);
        dnnl_graph_op_destroy(relu);
        if (stream != nullptr) dnnl_stream_destroy(stream);
        if (engine != nullptr) dnnl_engine_destroy(engine);
    }
};

class allocation_client {
public:
    /// One convolution with a ReLU from engine to result; ends at the first status that is no
    /// success, and returns it.
    dnnl_status_t run() {
        handles h;
        const std::int64_t one[] = {1, 1}, zero[] = {0, 0}, groups = 1;
        const dnnl_dims_t src_dims = {1, 3, 5, 5}, weights_dims = {4, 3, 2, 2},
                          dst_dims = {1, 4, 4, 4};
        dnnl_graph_logical_tensor_t lt[4];
        for (int i = 0; i < 4; ++i)
            failed(dnnl_graph_logical_tensor_init_with_dims(&lt[i], static_cast<std::size_t>(i),
                dnnl_f32, 4,
                i == 0   ? src_dims
                : i == 1 ? weights_dims
                         : dst_dims,
                dnnl_graph_layout_type_strided, dnnl_graph_tensor_property_variable));
        const dnnl_graph_logical_tensor_t *ins[] = {&lt[0], &lt[1]}, *outs[] = {&lt[3]};
        void *data[] = {src_.data(), weights_.data(), dst_.data()};
        status_ = dnnl_success;
        if (failed(dnnl_engine_create(&h.engine, dnnl_cpu, 0))
            || failed(dnnl_stream_create(&h.stream, h.engine, dnnl_stream_default_flags))
            || failed(dnnl_graph_op_create(
                &h.op, 1, dnnl_graph_op_convolution, "a name that is too long for a small string"))
            || failed(dnnl_graph_op_set_attr_s64(h.op, dnnl_graph_op_attr_strides, one, 2))
            || failed(dnnl_graph_op_set_attr_s64(h.op, dnnl_graph_op_attr_dilations, one, 2))
            || failed(dnnl_graph_op_set_attr_s64(h.op, dnnl_graph_op_attr_pads_begin, zero, 2))
            || failed(dnnl_graph_op_set_attr_s64(h.op, dnnl_graph_op_attr_pads_end, zero, 2))
            || failed(dnnl_graph_op_set_attr_s64(h.op, dnnl_graph_op_attr_groups, &groups, 0))
            || failed(dnnl_graph_op_set_attr_str(h.op, dnnl_graph_op_attr_data_format, "NCX", 3))
            || failed(dnnl_graph_op_set_attr_str(h.op, dnnl_graph_op_attr_weights_format, "OIX", 3))
            || failed(dnnl_graph_op_add_input(h.op, &lt[0]))
            || failed(dnnl_graph_op_add_input(h.op, &lt[1]))
            || failed(dnnl_graph_op_add_output(h.op, &lt[2]))
            || failed(dnnl_graph_op_create(&h.relu, 2, dnnl_graph_op_relu, "relu"))
            || failed(dnnl_graph_op_add_input(h.relu, &lt[2]))
            || failed(dnnl_graph_op_add_output(h.relu, &lt[3]))
            || failed(dnnl_graph_graph_create(&h.graph, dnnl_cpu))
            || failed(dnnl_graph_add_op(h.graph, h.op))
            || failed(dnnl_graph_add_op(h.graph, h.relu))
            || failed(dnnl_graph_graph_finalize(h.graph))
            || failed(dnnl_graph_graph_filter(h.graph, dnnl_graph_partition_policy_fusion))
            || failed(dnnl_graph_graph_get_partitions(h.graph, 1, &h.partition))
            || failed(dnnl_graph_compiled_partition_create(&h.compiled, h.partition))
            || failed(
                dnnl_graph_partition_compile(h.partition, h.compiled, 2, ins, 1, outs, h.engine)))
            return status_;
        for (int i = 0; i < 3; ++i)
            if (failed(dnnl_graph_tensor_create(
                    &h.tensors[i], &lt[i == 2 ? 3 : i], h.engine, data[i])))
                return status_;
        const_dnnl_graph_tensor_t in_tensors[] = {h.tensors[0], h.tensors[1]};
        const_dnnl_graph_tensor_t out_tensors[] = {h.tensors[2]};
        failed(dnnl_graph_compiled_partition_execute(
            h.compiled, h.stream, 2, in_tensors, 1, out_tensors));
        return status_;
    }

    /// The same where oneDNN may throw.
    dnnl_status_t try_run() {
        if (std::strcmp(dnnl_version()->hash, "convgrad") == 0) return run();  // alone
        try {
            return run();
        } catch (const std::bad_alloc &) {
            return dnnl_out_of_memory;
        }
    }

    void clear() { dst_.assign(dst_.size(), -1.0F); }
    [[nodiscard]] const std::vector<float> &result() const { return dst_; }

private:
    bool failed(dnnl_status_t status) {
        status_ = status;
        return status != dnnl_success;
    }

    dnnl_status_t status_ = dnnl_success;
    std::vector<float> src_ = std::vector<float>(75, 2.0F);
    std::vector<float> weights_ = std::vector<float>(48, 0.5F);
    std::vector<float> dst_ = std::vector<float>(64, -1.0F);
};

/// One run in which request `k` fails.
struct attempt {
    dnnl_status_t status;
    long requests, kept;

    attempt(allocation_client &client, long k, mode how) {
        client.clear();
        const long before = injector::live();
        injector::arm(k, how);
        status = client.try_run();
        requests = injector::disarm();
        kept = injector::live() - before;
    }
};

TEST(AllocationClient, EveryRequestMayFail) {
    if (!injector::available) GTEST_SKIP() << "allocations cannot be made to fail here";
    allocation_client client;
    // Without memory, each may have to run what else would be the other's.
    const std::vector<float> by_stand_in(64, 4242.0F), by_drop_in(64, 12.0F);
    const auto is_right = [&] {
        return client.result() == by_drop_in || client.result() == by_stand_in;
    };
    ASSERT_EQ(client.run(), dnnl_success);
    ASSERT_TRUE(is_right());
    const std::vector<float> expected = client.result();
    int failures = 0;
    for (const mode how : {mode::once, mode::from_then_on})
        for (long k = 0;; ++k) {
            SCOPED_TRACE("request " + std::to_string(k));
            attempt one(client, k, how);
            // What the library keeps for good is made once.
            if (one.kept != 0) one = attempt(client, k, how);
            ASSERT_EQ(one.kept, 0) << "leaked";
            ASSERT_TRUE(one.status == dnnl_success || one.status == dnnl_out_of_memory)
                << one.status;
            ASSERT_TRUE(one.status != dnnl_success || is_right());
            failures += one.status != dnnl_success;
            ASSERT_EQ(client.run(), dnnl_success) << "again";
            ASSERT_EQ(client.result(), expected) << "again";
            if (one.requests <= k) break;
        }
    EXPECT_GT(failures, 100);
}

}  // namespace
}  // namespace convgrad::test

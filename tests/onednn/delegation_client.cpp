// The drop-in in front of a oneDNN that has graphs (fake_dnnl.cpp): who runs what, and that nothing
// of what a client of oneDNN alone sees is taken away.
#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <stdexcept>
#include <thread>

#include "client.hpp"

extern "C" {
int fake_dnnl_live();
void fake_dnnl_convolution_compile(int what);
int fake_dnnl_executions();
int fake_dnnl_waits();
dnnl_status_t dnnl_graph_partition_fake_newer(
    const_dnnl_graph_partition_t partition, std::size_t *answer);
}

namespace convgrad::test {
namespace {

using kind = dg::op::kind;

/// What results of convolutions hold that the fake ran.
constexpr float foreign_result = 4242;

bool policy_is(const char *name) {
    const char *value = std::getenv("CONVGRAD_ONEDNN_POLICY");
    return std::string_view(value != nullptr ? value : "faster") == name;
}

dg::logical_tensor f32(std::size_t id, const dims &shape, lt_layout layout = lt_layout::strided) {
    return {id, lt_type::f32, shape, layout};
}

/// Between tests nothing is left behind of what the fake made.
class DelegationClient : public ::testing::Test {
protected:
    void SetUp() override { fake_dnnl_convolution_compile(0); }
    void TearDown() override { EXPECT_EQ(fake_dnnl_live() - lost_by_header_, before_); }

    /// oneDNN's C++ header loses a compiled partition whenever compiling fails.
    int lost_by_header_ = 0;

private:
    int before_ = fake_dnnl_live();
};

/// Abs → Convolution → ReLU → Square, with memory for all.
struct mixed {
    layer l = make_layer(false, 2, "NCX", "OIX", 1, "None");
    operand given{0, data_type::f32, l.src}, src{1, data_type::f32, l.src},
        weights{2, data_type::f32, l.weights}, sum{3, data_type::f32, l.dst},
        dst{4, data_type::f32, l.dst}, squares{5, data_type::f32, l.dst};
    operand expected = dst.blank();

    mixed() {
        given.fill(1);
        weights.fill(2);
        operand magnitudes = given;
        for (std::size_t at = 0; at < magnitudes.bytes.size(); at += 4) {
            float value = 0;
            std::memcpy(&value, &magnitudes.bytes[at], 4);
            value = std::abs(value);
            std::memcpy(&magnitudes.bytes[at], &value, 4);
        }
        compute_reference(
            op_kind::convolution, l.attrs, magnitudes, weights, expected, {.relu = true});
    }

    [[nodiscard]] std::vector<dg::op> ops() const {
        dg::op abs(10, kind::Abs, "abs"), relu(12, kind::ReLU, "relu"),
            square(13, kind::Square, "square");
        dg::op conv = make_op(11, op_kind::convolution, l.attrs);
        abs.add_input(given.described());
        abs.add_output(src.described());
        conv.add_inputs({src.described(), weights.described()});
        conv.add_output(sum.described());
        relu.add_input(sum.described());
        relu.add_output(dst.described());
        square.add_input(dst.described());
        square.add_output(squares.described());
        return {abs, conv, relu, square};
    }

    void run_all(const std::vector<dg::partition> &parts, const dnnl::engine &engine) {
        run(parts[0], {&given}, {&src}, engine);
        run(parts[1], {&src, &weights}, {&dst}, engine);
        run(parts[2], {&dst}, {&squares}, engine);
    }

    [[nodiscard]] float result(std::size_t i) const {
        float value = 0;
        std::memcpy(&value, &dst.bytes[4 * i], 4);
        return value;
    }
    /// The right one, or that of the fake, as the policy says.
    [[nodiscard]] bool has_a_result() const {
        const bool theirs = result(0) == foreign_result;
        if (policy_is("always") && theirs) return false;
        if (policy_is("correct") && !theirs) return false;
        return theirs || dst.bytes == expected.bytes;
    }
    [[nodiscard]] bool squares_fit() const {
        for (std::size_t i = 0; i < dst.bytes.size() / 4; ++i) {
            float value = 0;
            std::memcpy(&value, &squares.bytes[4 * i], 4);
            if (value != result(i) * result(i)) return false;
        }
        return true;
    }
};

TEST_F(DelegationClient, EveryOpRuns) {
    mixed m;
    const auto parts = partitions_of(m.ops());
    ASSERT_EQ(parts.size(), 3U);
    for (const dg::partition &p : parts) EXPECT_TRUE(p.is_supported());
    EXPECT_EQ(parts[1].get_ops(), (std::vector<std::size_t>{11, 12}));
    EXPECT_EQ(parts[1].get_id(), parts[0].get_id() + 1) << "the ids of the library behind";
    m.run_all(parts, cpu_engine());
    EXPECT_TRUE(m.has_a_result());
    EXPECT_TRUE(m.squares_fit());
}

TEST_F(DelegationClient, UnknownKindsReachTheLibraryBehind) {
    mixed m;
    std::vector<dg::op> ops = m.ops();
    dg::op strange(14, static_cast<kind>(4711), "strange");
    strange.set_attr<float>(static_cast<dg::op::attr>(0x1f), 1.0F);
    strange.add_input(m.squares.described());
    strange.add_output(f32(6, m.l.dst));
    ops.push_back(strange);
    const auto parts = partitions_of(ops);
    ASSERT_EQ(parts.size(), 4U);
    EXPECT_FALSE(parts[3].is_supported());
    EXPECT_EQ(parts[3].get_ops(), std::vector<std::size_t>{14});
}

TEST_F(DelegationClient, OtherPostOpsAreHandedOverWhole) {
    mixed m;
    std::vector<dg::op> ops = m.ops();
    dg::op gelu(12, kind::GELU, "gelu");
    gelu.add_input(m.sum.described());
    gelu.add_output(m.dst.described());
    const auto parts = partitions_of({ops[0], ops[1], gelu, ops[3]});
    ASSERT_EQ(parts.size(), 3U);
    EXPECT_EQ(parts[1].get_ops_num(), 2U);
    m.run_all(parts, cpu_engine());
    EXPECT_EQ(m.result(0), foreign_result);
}

TEST_F(DelegationClient, OpaqueTensorsStayWithTheirMaker) {
    mixed m;
    const auto parts = partitions_of(m.ops());
    const dnnl::engine engine = cpu_engine();
    const auto abs =
        parts[0].compile({m.given.described()}, {f32(1, m.l.src, lt_layout::any)}, engine);
    const dg::logical_tensor opaque = abs.query_logical_tensor(1);
    ASSERT_EQ(opaque.get_layout_type(), lt_layout::opaque);
    EXPECT_EQ(opaque.get_mem_size(), m.src.bytes.size());
    // A convolution of an opaque tensor is theirs, whoever is faster.
    const auto conv = parts[1].compile(
        {opaque, m.weights.described()}, {f32(4, m.l.dst, lt_layout::any)}, engine);
    const dg::logical_tensor result = conv.query_logical_tensor(4);
    EXPECT_EQ(result.get_layout_type(), lt_layout::strided);
    dnnl::stream stream(engine);
    conv.execute(stream, {dg::tensor(opaque, engine, m.src.bytes.data()), m.weights.on(engine)},
        {dg::tensor(result, engine, m.dst.bytes.data())});
    EXPECT_EQ(m.result(0), foreign_result);
}

TEST_F(DelegationClient, AnyBecomesPlainHere) {
    mixed m;
    const auto parts = partitions_of(m.ops());
    const dnnl::engine engine = cpu_engine();
    const auto conv = parts[1].compile({f32(1, m.l.src, lt_layout::any), m.weights.described()},
        {f32(4, m.l.dst, lt_layout::any)}, engine);
    EXPECT_EQ(conv.query_logical_tensor(4).get_layout_type(), lt_layout::strided);
    if (policy_is("always")) {
        EXPECT_EQ(conv.query_logical_tensor(1).get_layout_type(), lt_layout::strided);
        EXPECT_TRUE(conv.get_inplace_ports().empty()) << "our own pairs";
    }
    const auto square = parts[2].compile({m.dst.described()}, {m.squares.described()}, engine);
    ASSERT_EQ(square.get_inplace_ports().size(), 1U) << "theirs";
    EXPECT_EQ(square.get_inplace_ports()[0].first, 90U);
}

/// The data gradient of a transposed layer, as an op, and what it should give.
struct transposed_gradient {
    transposed_gradient(const layer &l, const dims &dst)
        : diff_dst(0, data_type::f32, dst), weights(1, data_type::f32, l.weights),
          diff_src(2, data_type::f32, l.src), expected(diff_src.blank()),
          op(make_op(5, op_kind::conv_transpose_backward_data, l.attrs)) {
        diff_dst.fill(1);
        weights.fill(2);
        compute_reference(
            op_kind::conv_transpose_backward_data, l.attrs, diff_dst, weights, expected);
        op.add_inputs({diff_dst.described(), weights.described()});
        op.add_output(diff_src.described());
    }

    operand diff_dst, weights, diff_src, expected;
    dg::op op;
};

TEST_F(DelegationClient, WhatTheyRefuseIsOurs) {
    // Padding of the output of a transposed gradient: the library behind has no such attribute.
    layer l = make_layer(true, 2, "NCX", "IOX", 1, "None");
    l.attrs.output_padding = {1, 0};
    const dims dst = infer_shape(op_kind::conv_transpose, l.src, l.weights, l.attrs);
    transposed_gradient g(l, dst);
    const auto parts = partitions_of({g.op});
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_TRUE(parts[0].is_supported());
    EXPECT_EQ(parts[0].get_ops(), std::vector<std::size_t>{5});
    run(parts[0], {&g.diff_dst, &g.weights}, {&g.diff_src});
    EXPECT_EQ(g.diff_src.bytes, g.expected.bytes);
}

TEST_F(DelegationClient, WhatNeitherTakesIsRefusedAsTheyDo) {
    dg::op bare(0, kind::Convolution, "bare");
    EXPECT_EQ(status_of([&] { partitions_of({bare}); }), dnnl_invalid_graph_op);
    // A stride of 0 would end the process there.
    mixed m;
    m.l.attrs.strides = {0, 1};
    EXPECT_EQ(status_of([&] { partitions_of(m.ops()); }), dnnl_invalid_graph_op);
}

TEST_F(DelegationClient, NeighboursThatTheyDoNotSupportRunAsOne) {
    const layer l = make_layer(false, 2, "NXC", "XIO", 1, "None");
    operand given(0, data_type::f32, l.dst), doubled(6, data_type::f32, l.dst);
    operand src(1, data_type::f16, l.src), weights(2, data_type::f16, l.weights),
        sum(3, data_type::f16, l.dst), dst(4, data_type::f16, l.dst);
    src.fill(1);
    weights.fill(2);
    operand expected = dst.blank();
    compute_reference(op_kind::convolution, l.attrs, src, weights, expected, {.relu = true});
    dg::op conv = make_op(11, op_kind::convolution, l.attrs);
    conv.add_inputs({src.described(), weights.described()});
    conv.add_output(sum.described());
    dg::op abs(10, kind::Abs, "abs"), relu(12, kind::ReLU, "relu");
    abs.add_input(given.described());
    abs.add_output(doubled.described());
    relu.add_input(sum.described());
    relu.add_output(dst.described());
    const auto parts = partitions_of({conv, abs, relu});
    ASSERT_EQ(parts.size(), 2U);
    const dg::partition &ours = parts[parts[0].get_ops_num() == 2 ? 0 : 1];
    EXPECT_EQ(ours.get_ops(), (std::vector<std::size_t>{11, 12}));
    EXPECT_TRUE(ours.is_supported());
    ASSERT_EQ(ours.get_input_ports().size(), 2U);
    ASSERT_EQ(ours.get_output_ports().size(), 1U);
    EXPECT_EQ(ours.get_output_ports()[0].get_id(), 4U);
    run(ours, {&src, &weights}, {&dst});
    EXPECT_EQ(dst.bytes, expected.bytes);
    EXPECT_EQ(partitions_of({conv, abs, relu}, dg::partition::policy::debug).size(), 3U);
}

TEST_F(DelegationClient, WhereTheyFailWeRun) {
    for (const int how : {1, 2}) {
        fake_dnnl_convolution_compile(how);
        mixed m;
        m.run_all(partitions_of(m.ops()), cpu_engine());
        EXPECT_EQ(m.dst.bytes, m.expected.bytes);
    }
}

TEST_F(DelegationClient, WhereBothFailTheirAnswerCounts) {
    fake_dnnl_convolution_compile(1);
    mixed m;
    const auto parts = partitions_of(m.ops());
    const dg::logical_tensor wrong = f32(2, {6, 3, 2, 3});  // other channels
    EXPECT_EQ(status_of([&] {
        parts[1].compile({m.src.described(), wrong}, {m.dst.described()}, cpu_engine());
    }),
        dnnl_invalid_shape);
    fake_dnnl_convolution_compile(2);
    EXPECT_THROW(parts[1].compile({m.src.described(), wrong}, {m.dst.described()}, cpu_engine()),
        std::runtime_error);
    lost_by_header_ = 2;
}

TEST_F(DelegationClient, KnownFaultsAreNotLeftToThem) {
    // Dilations of transposed data gradients are lost in oneDNN, in all policies.
    const layer l = make_layer(true, 2, "NCX", "IOX", 1, "None", 2);
    transposed_gradient g(l, l.dst);
    run(partitions_of({g.op}).at(0), {&g.diff_dst, &g.weights}, {&g.diff_src});
    EXPECT_EQ(g.diff_src.bytes, g.expected.bytes);
}

TEST_F(DelegationClient, NewerFunctionsWorkOnTheSameHandles) {
    mixed m;
    const auto parts = partitions_of(m.ops());
    std::size_t answer = 0;
    EXPECT_EQ(dnnl_graph_partition_fake_newer(parts[1].get(), &answer), dnnl_success);
    EXPECT_EQ(answer, parts[1].get_id() * 2 + 2);
}

TEST_F(DelegationClient, SettingsAreTheirs) {
    int capacity = 0;
    EXPECT_EQ(dnnl_graph_get_compiled_partition_cache_capacity(&capacity), dnnl_success);
    EXPECT_EQ(capacity, 77);
    EXPECT_EQ(dnnl_graph_set_compiled_partition_cache_capacity(78), dnnl_success);
    EXPECT_EQ(dnnl_graph_get_compiled_partition_cache_capacity(&capacity), dnnl_success);
    EXPECT_EQ(capacity, 78);
    dnnl_graph_set_compiled_partition_cache_capacity(77);
    // Functions that came later than the library behind.
    EXPECT_EQ(dnnl_graph_set_dump_mode(dnnl_graph_dump_mode_none), dnnl_unimplemented);
    EXPECT_EQ(dnnl_version()->minor, 99);
}

TEST_F(DelegationClient, ScratchpadsOfNewerHeadersWork) {
    mixed m;
    const auto parts = partitions_of(m.ops());
    const dnnl::engine engine = cpu_engine();
    const auto abs = parts[0].compile({m.given.described()}, {m.src.described()}, engine);
    const dg::logical_tensor none = abs.get_scratchpad_logical_tensor();
    EXPECT_EQ(none.get_mem_size(), 0U);
    dnnl::stream stream(engine);
    abs.execute(
        stream, {m.given.on(engine)}, {m.src.on(engine)}, dg::tensor(none, engine, nullptr));
    EXPECT_NE(m.src.bytes, m.src.blank().bytes);
}

TEST_F(DelegationClient, BothFunctionsThatExecute) {
    mixed m;
    const auto parts = partitions_of(m.ops());
    const dnnl::engine engine = cpu_engine();
    const auto abs = parts[0].compile({m.given.described()}, {m.src.described()}, engine);
    const dnnl::stream stream(engine);
    const dg::tensor in = m.given.on(engine), out = m.src.on(engine);
    const_dnnl_graph_tensor_t inputs[] = {in.get()}, outputs[] = {out.get()};
    const int runs = fake_dnnl_executions();
    EXPECT_EQ(dnnl_graph_compiled_partition_execute(abs.get(), stream.get(), 1, inputs, 1, outputs),
        dnnl_success);
    EXPECT_EQ(dnnl_graph_compiled_partition_execute_v2(
                  abs.get(), stream.get(), 1, inputs, 1, outputs, nullptr),
        dnnl_success);
    EXPECT_EQ(fake_dnnl_executions(), runs + 2);
}

TEST_F(DelegationClient, OursWaitForTheStream) {
    if (!policy_is("always")) GTEST_SKIP() << "the convolution may be theirs";
    mixed m;
    const auto parts = partitions_of(m.ops());
    const int waits = fake_dnnl_waits(), runs = fake_dnnl_executions();
    run(parts[1], {&m.src, &m.weights}, {&m.dst});
    EXPECT_GE(fake_dnnl_waits(), waits + 2) << "one is the client's";
    EXPECT_EQ(fake_dnnl_executions(), runs);
}

TEST_F(DelegationClient, PartitionOfOneOp) {
    mixed m;
    const auto ops = m.ops();
    run(dg::partition(ops[0], dnnl::engine::kind::cpu), {&m.given}, {&m.src});
    const dg::partition conv(ops[1], dnnl::engine::kind::cpu);
    run(conv, {&m.src, &m.weights}, {&m.sum});
    float value = 0;
    std::memcpy(&value, m.sum.bytes.data(), 4);
    EXPECT_TRUE(policy_is("faster") || (value == foreign_result) == policy_is("correct"));
}

/// Whether the fake is left to run a convolution of these sizes.
bool is_theirs(dim channels, dim length, dim kernel) {
    attributes attrs = {.strides = {1, 1},
        .pads_begin = dims(2, kernel / 2),
        .pads_end = dims(2, kernel / 2),
        .dilations = {1, 1},
        .auto_pad = "None",
        .groups = 1,
        .data_format = "NXC",
        .weights_format = "XIO"};
    operand src(0, data_type::f32, {1, length, length, channels}),
        weights(1, data_type::f32, {kernel, kernel, channels, channels}),
        dst(2, data_type::f32, {1, length, length, channels});
    dg::op op = make_op(5, op_kind::convolution, attrs);
    op.add_inputs({src.described(), weights.described()});
    op.add_output(dst.described());
    run(partitions_of({op}).at(0), {&src, &weights}, {&dst});
    float value = 0;
    std::memcpy(&value, dst.bytes.data(), 4);
    return value == foreign_result;
}

TEST_F(DelegationClient, TheFasterOneRuns) {
    if (!policy_is("faster")) GTEST_SKIP() << "the policy is another one";
    // Whatever the machine: where sums are direct nobody is known to be faster than oneDNN.
    EXPECT_TRUE(is_theirs(256, 14, 1));
    const bool direct = std::getenv("CONVGRAD_ONEDNN_MATH") == nullptr;
    EXPECT_TRUE(!direct || is_theirs(128, 28, 3)) << "exact numbers are expected there";
#if defined(__x86_64__)
    // By Winograd's algorithm, where that is allowed, half the time that oneDNN takes.
    const bool has_vectors =
        __builtin_cpu_supports("avx512f") != 0 && std::getenv("CONVGRAD_MAX_ISA") == nullptr;
    EXPECT_TRUE(direct || !has_vectors || !is_theirs(128, 28, 3));
#endif
}

TEST_F(DelegationClient, SumsAreExactWhereTheirsAre) {
    if (!policy_is("always") || std::getenv("CONVGRAD_ONEDNN_MATH") != nullptr)
        GTEST_SKIP() << "the convolution may be theirs, or rounded";
    attributes attrs = {.strides = {1, 1},
        .pads_begin = {1, 1},
        .pads_end = {1, 1},
        .dilations = {1, 1},
        .auto_pad = "None",
        .groups = 1,
        .data_format = "NXC",
        .weights_format = "XIO"};
    for (const data_type type : {data_type::f32, data_type::f16}) {
        operand src(0, type, {1, 12, 12, 128}), weights(1, type, {3, 3, 128, 16}),
            dst(2, type, {1, 12, 12, 16});
        src.fill(1);
        weights.fill(2);
        operand expected = dst.blank();
        compute_reference(op_kind::convolution, attrs, src, weights, expected);
        dg::op op = make_op(5, op_kind::convolution, attrs);
        op.add_inputs({src.described(), weights.described()});
        op.add_output(dst.described());
        run(partitions_of({op}).at(0), {&src, &weights}, {&dst});
        EXPECT_EQ(dst.bytes, expected.bytes);
    }
}

/// A client's allocator that throws when told to.
struct throwing {
    static inline std::atomic<bool> refuse = false;
    static inline std::atomic<int> live = 0;
    static void *allocate(std::size_t size, std::size_t alignment) {
        if (refuse) throw std::length_error("the client has no memory for this");
        ++live;
        return std::aligned_alloc(alignment, (size + alignment) / alignment * alignment);
    }
    static void deallocate(void *memory) {
        --live;
        std::free(memory);
    }
};

TEST_F(DelegationClient, TheAllocatorsExceptionPassesThroughBoth) {
    mixed m;
    const auto parts = partitions_of(m.ops());
    {
        const dnnl::engine engine = dg::make_engine_with_allocator(
            dnnl::engine::kind::cpu, 0, {throwing::allocate, throwing::deallocate});
        m.run_all(parts, engine);
        const auto abs = parts[0].compile({m.given.described()}, {m.src.described()}, engine);
        dnnl::stream stream(engine);
        throwing::refuse = true;
        EXPECT_THROW(parts[0].compile({m.given.described()}, {m.src.described()}, engine),
            std::length_error);
        EXPECT_THROW(
            abs.execute(stream, {m.given.on(engine)}, {m.src.on(engine)}), std::length_error);
        EXPECT_THROW(dg::tensor(m.given.described(), engine), std::length_error);
        throwing::refuse = false;
        abs.execute(stream, {m.given.on(engine)}, {m.src.on(engine)});
    }
    EXPECT_EQ(throwing::live, 0);
    lost_by_header_ = 1;
}

TEST_F(DelegationClient, ManyThreadsAndMixedGraphs) {
    const dnnl::engine engine = cpu_engine();
    dnnl::stream shared(engine);
    mixed first;
    const auto common = partitions_of(first.ops());
    std::atomic<int> wrong = 0;
    const auto work = [&] {
        for (int round = 0; round < 8; ++round) {
            mixed m;
            const auto own = partitions_of(m.ops());
            for (const auto *parts : {&common, &own}) {
                const auto abs =
                    (*parts)[0].compile({m.given.described()}, {m.src.described()}, engine);
                const auto conv = (*parts)[1].compile(
                    {m.src.described(), m.weights.described()}, {m.dst.described()}, engine);
                const auto square =
                    (*parts)[2].compile({m.dst.described()}, {m.squares.described()}, engine);
                abs.execute(shared, {m.given.on(engine)}, {m.src.on(engine)});
                conv.execute(shared, {m.src.on(engine), m.weights.on(engine)}, {m.dst.on(engine)});
                square.execute(shared, {m.dst.on(engine)}, {m.squares.on(engine)});
                if (!m.squares_fit() || !m.has_a_result()) ++wrong;
            }
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back(work);
    for (std::thread &t : threads) t.join();
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace convgrad::test

// In front of a real oneDNN, where one is found (the tests set CONVGRAD_TEST_ONEDNN then): ops that
// the drop-in has no part in compute, fusions stay whole, and tensors pass from one to the other.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "client.hpp"

namespace convgrad::test {
namespace {

using kind = dg::op::kind;

class RealClient : public ::testing::Test {
protected:
    void SetUp() override {
        if (std::getenv("CONVGRAD_TEST_ONEDNN") == nullptr)
            GTEST_SKIP() << "no installed oneDNN is known";
    }
};

float value_of(const operand &o, std::size_t i) {
    float value = 0;
    std::memcpy(&value, &o.bytes[4 * i], 4);
    return value;
}

dg::op make(std::size_t id, kind what, const std::vector<const operand *> &in, const operand &out) {
    dg::op op(id, what, "op" + std::to_string(id));
    for (const operand *o : in) op.add_input(o->described());
    op.add_output(out.described());
    return op;
}

/// A layer as oneDNN spells it.
struct spelled {
    layer l = make_layer(false, 2, "NCX", "OIX", 1, "None");
    operand src{0, data_type::f32, l.src}, weights{1, data_type::f32, l.weights},
        sum{2, data_type::f32, l.dst}, dst{3, data_type::f32, l.dst};

    spelled() {
        src.fill(1);
        weights.fill(2);
    }
    [[nodiscard]] dg::op convolution() const {
        dg::op op = make_op(10, op_kind::convolution, l.attrs);
        op.set_attr<std::string>(dg::op::attr::auto_pad, "None");
        op.add_inputs({src.described(), weights.described()});
        op.add_output(sum.described());
        return op;
    }
};

TEST_F(RealClient, MatMul) {
    operand a(0, data_type::f32, {3, 5}), b(1, data_type::f32, {5, 4}),
        c(2, data_type::f32, {3, 4});
    a.fill(1);
    b.fill(2);
    const auto parts = partitions_of({make(0, kind::MatMul, {&a, &b}, c)});
    ASSERT_EQ(parts.size(), 1U);
    ASSERT_TRUE(parts[0].is_supported());
    run(parts[0], {&a, &b}, {&c});
    for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t j = 0; j < 4; ++j) {
            float expected = 0;
            for (std::size_t k = 0; k < 5; ++k)
                expected += value_of(a, 5 * i + k) * value_of(b, 4 * k + j);
            EXPECT_EQ(value_of(c, 4 * i + j), expected);
        }
}

TEST_F(RealClient, ChainsThatTheDropInHasNoPartInStayWhole) {
    spelled s;
    const auto parts = partitions_of({s.convolution(), make(11, kind::Sigmoid, {&s.sum}, s.dst)});
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].get_ops_num(), 2U);
    ASSERT_TRUE(parts[0].is_supported());
    run(parts[0], {&s.src, &s.weights}, {&s.dst});
    operand plain = s.sum.blank();
    compute_reference(op_kind::convolution, s.l.attrs, s.src, s.weights, plain);
    for (std::size_t i = 0; i < plain.bytes.size() / 4; ++i)
        EXPECT_NEAR(value_of(s.dst, i), 1 / (1 + std::exp(-value_of(plain, i))), 1e-5);
}

TEST_F(RealClient, ReluIsFusedByWhoeverRunsIt) {
    spelled s;
    const auto parts = partitions_of({s.convolution(), make(11, kind::ReLU, {&s.sum}, s.dst)});
    ASSERT_EQ(parts.size(), 1U);
    run(parts[0], {&s.src, &s.weights}, {&s.dst});
    operand expected = s.dst.blank();
    compute_reference(op_kind::convolution, s.l.attrs, s.src, s.weights, expected, {.relu = true});
    EXPECT_EQ(s.dst.bytes, expected.bytes);
}

/// One for the process: what oneDNN 3.6 keeps compiled refers to its engine after that is gone.
const dnnl::engine &lasting_engine() {
    static const dnnl::engine engine = cpu_engine();
    return engine;
}

/// Square → Convolution → Abs: three partitions, or two if oneDNN fuses Abs.
struct mixed : spelled {
    operand given{5, data_type::f32, l.src}, magnitudes{6, data_type::f32, l.dst};
    operand expected = sum.blank();

    mixed() {
        given.fill(3);
        operand squares = src.blank();
        for (std::size_t i = 0; i < given.bytes.size() / 4; ++i) {
            const float square = value_of(given, i) * value_of(given, i);
            std::memcpy(&squares.bytes[4 * i], &square, 4);
        }
        compute_reference(op_kind::convolution, l.attrs, squares, weights, expected);
    }
    [[nodiscard]] std::vector<dg::partition> partitions() const {
        return partitions_of({make(9, kind::Square, {&given}, src), convolution(),
            make(12, kind::Abs, {&sum}, magnitudes)});
    }
    void run_on(const std::vector<dg::partition> &parts, const dnnl::stream &stream) {
        step(parts.at(0), {&given}, src, stream);
        if (parts.size() == 2) return step(parts[1], {&src, &weights}, magnitudes, stream);
        step(parts.at(1), {&src, &weights}, sum, stream);
        step(parts.at(2), {&sum}, magnitudes, stream);
    }
    [[nodiscard]] bool is_right() const {
        for (std::size_t i = 0; i < expected.bytes.size() / 4; ++i)
            if (value_of(magnitudes, i) != std::fabs(value_of(expected, i))) return false;
        return true;
    }

private:
    static void step(const dg::partition &part, const std::vector<operand *> &in, operand &out,
        dnnl::stream stream) {
        const dnnl::engine engine = stream.get_engine();
        std::vector<dg::logical_tensor> described;
        std::vector<dg::tensor> tensors;
        for (operand *o : in) {
            described.push_back(o->described());
            tensors.push_back(o->on(engine));
        }
        part.compile(described, {out.described()}, engine)
            .execute(stream, tensors, {out.on(engine)});
    }
};

TEST_F(RealClient, TensorsPassFromOneToTheOther) {
    mixed m;
    const auto parts = m.partitions();
    ASSERT_GE(parts.size(), 2U);
    dnnl::stream stream(lasting_engine());
    m.run_on(parts, stream);
    stream.wait();
    EXPECT_TRUE(m.is_right());
}

TEST_F(RealClient, ManyThreadsAndMixedGraphsOnOneStream) {
    dnnl::stream stream(lasting_engine());
    const std::vector<dg::partition> common = mixed().partitions();
    std::atomic<int> wrong = 0;
    const auto work = [&] {
        for (int round = 0; round < 6; ++round)
            for (const bool own : {false, true}) {
                mixed m;
                m.run_on(own ? m.partitions() : common, stream);
                stream.wait();
                wrong += m.is_right() ? 0 : 1;
            }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) threads.emplace_back(work);
    for (std::thread &t : threads) t.join();
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace convgrad::test

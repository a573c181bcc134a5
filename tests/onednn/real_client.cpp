// In front of a real oneDNN, where one is found (the tests set CONVGRAD_TEST_ONEDNN then): ops that
// the drop-in has no part in compute, fusions stay whole, and tensors pass from one to the other.
#include <cmath>
#include <cstdlib>

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

TEST_F(RealClient, TensorsPassFromOneToTheOther) {
    // Square → Convolution → Abs: three partitions, or two if oneDNN fuses Abs.
    spelled s;
    operand given(5, data_type::f32, s.l.src), magnitudes(6, data_type::f32, s.l.dst);
    given.fill(3);
    operand squares = s.src.blank();
    for (std::size_t i = 0; i < given.bytes.size() / 4; ++i) {
        const float square = value_of(given, i) * value_of(given, i);
        std::memcpy(&squares.bytes[4 * i], &square, 4);
    }
    operand expected = s.sum.blank();
    compute_reference(op_kind::convolution, s.l.attrs, squares, s.weights, expected);
    const auto parts = partitions_of({make(9, kind::Square, {&given}, s.src), s.convolution(),
        make(12, kind::Abs, {&s.sum}, magnitudes)});
    ASSERT_GE(parts.size(), 2U);
    run(parts[0], {&given}, {&s.src});
    if (parts.size() == 2) {
        run(parts[1], {&s.src, &s.weights}, {&magnitudes});
    } else {
        run(parts[1], {&s.src, &s.weights}, {&s.sum});
        run(parts[2], {&s.sum}, {&magnitudes});
    }
    for (std::size_t i = 0; i < expected.bytes.size() / 4; ++i)
        EXPECT_EQ(value_of(magnitudes, i), std::fabs(value_of(expected, i)));
}

}  // namespace
}  // namespace convgrad::test

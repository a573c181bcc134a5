// BiasAdd, Add and ReLU: checks, and shapes along them.
#include <gtest/gtest.h>

#include <convgrad/eager.hpp>

#include "op/expect_error.hpp"
#include "op/geometry.hpp"
#include "op/op_builder.hpp"

namespace convgrad {
namespace {

using test::expect_error;
using test::inferred;
using test::tensor_of;
using test::unk;

std::optional<dims> result_of(op_kind kind, std::initializer_list<dims> inputs,
    const dims &output = {}, const char *word = nullptr) {
    op node(1, kind, "tail");
    std::size_t id = 10;
    for (const dims &shape : inputs) node.add_input(tensor_of(id++, shape));
    node.add_output(tensor_of(20, output));
    if (word != nullptr) node.set(kind == op_kind::add ? "auto_broadcast" : "data_format", word);
    return inferred(node)[0].shape;
}

TEST(epilogue, has_the_kinds_of_the_operation_set) {
    EXPECT_EQ(static_cast<int>(op_kind::add), 2);
    EXPECT_EQ(static_cast<int>(op_kind::bias_add), 8);
    EXPECT_EQ(static_cast<int>(op_kind::relu), 58);
    for (const op_kind kind : {op_kind::add, op_kind::bias_add, op_kind::relu})
        EXPECT_TRUE(ops::schema_of(kind).epilogue);
    EXPECT_EQ(op_kind_from_name("ReLU-1"), op_kind::relu);
}

TEST(epilogue, shapes_pass_through) {
    EXPECT_EQ(result_of(op_kind::relu, {{2, 3, 4}}), (dims{2, 3, 4}));
    EXPECT_EQ(result_of(op_kind::relu, {{2, unk, 4}}, {unk, 3, 4}), (dims{2, 3, 4}));
    EXPECT_EQ(result_of(op_kind::relu, {{}}), std::nullopt);
    EXPECT_EQ(result_of(op_kind::relu, {{}}, {7}), (dims{7}));
    EXPECT_EQ(result_of(op_kind::bias_add, {{2, 3, 4}, {4}}), (dims{2, 3, 4}));
    EXPECT_EQ(result_of(op_kind::bias_add, {{2, 3, 4}, {3}}, {}, "NCX"), (dims{2, 3, 4}));
    EXPECT_EQ(result_of(op_kind::bias_add, {{2, 3, 4}, {}}, {}, "NXC"), (dims{2, 3, 4}));
}

TEST(epilogue, sums_are_broadcast_by_numpys_rules) {
    const auto sum = [](const dims &a, const dims &b, const char *rule = nullptr) {
        return result_of(op_kind::add, {a, b}, {}, rule);
    };
    EXPECT_EQ(sum({2, 3, 4}, {2, 3, 4}), (dims{2, 3, 4}));
    EXPECT_EQ(sum({2, 3, 4}, {4}), (dims{2, 3, 4}));
    EXPECT_EQ(sum({3, 1}, {2, 1, 4}), (dims{2, 3, 4}));
    EXPECT_EQ(sum({unk, 3}, {2, 3}), (dims{2, 3}));
    EXPECT_EQ(sum({unk, 3}, {1, 3}), (dims{unk, 3}));
    EXPECT_EQ(sum({unk, 3}, {unk, 1}), (dims{unk, 3}));
    EXPECT_EQ(sum({0, 3}, {1, 3}), (dims{0, 3}));
    EXPECT_EQ(sum({2, 3}, {}), std::nullopt);
    EXPECT_EQ(sum({2, 3}, {2, 3}, "None"), (dims{2, 3}));
    constexpr auto bad = error_code::invalid_shape;
    expect_error(bad, {"Add \"tail\"", "[2, 3]", "[2, 4]", "NumPy"}, [&] { sum({2, 3}, {2, 4}); });
    expect_error(bad, {"auto_broadcast is none"}, [&] { sum({2, 3}, {3}, "none"); });
    expect_error(bad, {"auto_broadcast is none"}, [&] { sum({2, 3}, {1, 3}, "none"); });
    expect_error(bad, {"must not be negative"}, [&] { sum({2, -3}, {1, 3}); });
    expect_error(bad, {"dst has shape [5]", "[2, 3]"}, [] {
        result_of(op_kind::add, {{2, 3}, {3}}, {5});
    });
}

TEST(epilogue, refuses_what_does_not_fit) {
    constexpr auto bad = error_code::invalid_shape;
    expect_error(bad, {"ReLU \"tail\"", "dst has shape [2, 4]", "[2, 3]"}, [] {
        result_of(op_kind::relu, {{2, 3}}, {2, 4});
    });
    expect_error(bad, {"bias has shape [1, 4]", "1-D"}, [] {
        result_of(op_kind::bias_add, {{2, 3, 4}, {1, 4}});
    });
    expect_error(bad, {"bias has 3 elements", "4 channels"}, [] {
        result_of(op_kind::bias_add, {{2, 3, 4}, {3}}, {}, "NXC");
    });
    expect_error(error_code::invalid_op, {"auto_broadcast is \"all\"", "numpy, none"}, [] {
        result_of(op_kind::add, {{2}, {2}}, {}, "all");
    });
    expect_error(error_code::invalid_op, {"it has 1 inputs", "src_0, src_1"},
        [] { result_of(op_kind::add, {{2}}); });
    op mixed(1, op_kind::add);
    mixed.add_input(tensor_of(1, {2})).add_input(tensor_of(2, {2}, data_type::f16));
    mixed.add_output(tensor_of(3, {}));
    expect_error(error_code::invalid_op, {"src_1 has type f16"}, [&] { ops::check_op(mixed); });
    for (const op_kind kind : {op_kind::add, op_kind::bias_add, op_kind::relu})
        expect_error(error_code::invalid_op, {"in graphs only", "options add and relu"},
            [&] { ops::parse(kind, {}, 4, {}); });
}

TEST(epilogue, tells_what_can_be_repeated) {
    EXPECT_TRUE(ops::broadcasts_to({}, {2, 3}));
    EXPECT_TRUE(ops::broadcasts_to({1, 3}, {2, 3}));
    EXPECT_TRUE(ops::broadcasts_to({unk}, {2, 3}));
    EXPECT_FALSE(ops::broadcasts_to({2}, {2, 3}));
    EXPECT_FALSE(ops::broadcasts_to({1, 2, 3}, {2, 3}));
    EXPECT_FALSE(ops::broadcasts_to({2, 3}, {1, 3}));
}

}  // namespace
}  // namespace convgrad

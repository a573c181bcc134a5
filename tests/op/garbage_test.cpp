// Whatever is asked, the answer is a result or a convgrad::error: no crash, no other exception.
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <convgrad/eager.hpp>
#include <convgrad/error.hpp>

#include "op/op_builder.hpp"

namespace convgrad {
namespace {

/// Random ops: mostly plausible, with garbage strewn in.
class garbage {
public:
    explicit garbage(unsigned seed) : random_(seed) {}

    std::size_t below(std::size_t n) { return random_() % n; }
    bool chance(std::size_t one_in) { return below(one_in) == 0; }

    dim number() {
        static constexpr dim strange[] = {0, -1, unknown_dim, std::numeric_limits<dim>::max(),
            std::numeric_limits<dim>::max() / 2, dim{1} << 32, dim{1} << 31, 7919, -7919};
        if (chance(25)) return strange[below(std::size(strange))];
        return static_cast<dim>(below(3)) + 1;
    }
    dims list(std::size_t length) {
        if (chance(20)) length = below(8);
        dims values(length);
        for (dim &v : values) v = number();
        return values;
    }
    std::string text() {
        static constexpr const char *words[] = {"NXC", "NCX", "XIO", "OIX", "XOI", "IOX", "none",
            "same_upper", "SAME_LOWER", "valid", "", "x"};
        return words[below(std::size(words))];
    }
    attribute_value value(const ops::attribute_schema &a, std::size_t axes) {
        if (chance(60)) return 1.5F;
        if (chance(60)) return true;
        if (chance(30)) return text();
        switch (a.type) {
        case ops::attribute_type::s64:
            return number();
        case ops::attribute_type::s64_list:
            return list(
                a.id == ops::attribute_id::dst_shape || a.id == ops::attribute_id::weights_shape
                    ? axes + 2
                    : axes);
        case ops::attribute_type::string:
            break;
        }
        return chance(4) ? text() : std::string(a.choices[below(a.choices.size())]);
    }
    logical_tensor tensor(std::size_t id, std::size_t rank) {
        logical_tensor t(id, data_type::f32);
        if (chance(40)) t.type = static_cast<data_type>(below(6));
        if (!chance(10)) t.shape = list(rank);
        if (chance(6)) t.strides = list(rank);
        return t;
    }
    op node() {
        const op_kind kind = convolution_op_kinds[below(std::size(convolution_op_kinds))];
        const ops::op_schema &schema = ops::schema_of(kind);
        const std::size_t axes = 1 + below(3);
        op made = test::plain_op(kind, axes, text());
        for (const ops::attribute_schema &a : schema.attributes)
            if (chance(3)) made.set(a.name, value(a, axes));
        if (chance(50)) made.set(text(), number());
        for (std::size_t i = 0; i < (chance(30) ? below(5) : 2); ++i)
            made.add_input(tensor(i, axes + 2));
        if (chance(4)) {
            logical_tensor shape(7, chance(4) ? data_type::f32 : data_type::s32);
            if (chance(2)) shape.shape = list(1);
            if (chance(2)) shape.value = list(axes + 2);
            made.add_input(shape);
        }
        for (std::size_t i = 0; i < (chance(30) ? below(3) : 1); ++i)
            made.add_output(tensor(8 + i, axes + 2));
        return made;
    }

private:
    std::mt19937 random_;
};

// A problem that came out must be sound: this is what everything below relies on.
void expect_sound(const conv::problem &p) {
    EXPECT_GE(p.mb, 0);
    EXPECT_GE(p.groups, 1);
    EXPECT_GE(p.ic, 0);
    EXPECT_GE(p.oc, 0);
    for (const conv::axis &a : p.x) {
        EXPECT_GE(a.src, 0);
        EXPECT_GE(a.dst, 1);
        EXPECT_GE(a.kernel, 1);
        EXPECT_GE(a.stride, 1);
        EXPECT_GE(a.dilation, 1);
        EXPECT_GE(a.pad, 0);
        EXPECT_LE(a.stride * (a.dst - 1) + a.dilation * (a.kernel - 1), dim{1} << 60);
    }
}

TEST(garbage, never_crashes_the_op_layer) {
    garbage random(20240607);
    int compiled = 0, refused = 0;
    for (int i = 0; i < 200000; ++i) {
        const op node = random.node();
        try {
            expect_sound(test::lowered(node));
            ++compiled;
        } catch (const error &e) {
            ASSERT_FALSE(std::string_view(e.what()).empty());
            ASSERT_TRUE(e.code() == error_code::invalid_op || e.code() == error_code::invalid_shape)
                << e.what();
            ++refused;
        }
    }
    // Both outcomes must be common, or the loop proves little.
    EXPECT_GT(compiled, 200);
    EXPECT_GT(refused, 10000);
}

TEST(garbage, never_crashes_the_queries) {
    garbage random(7);
    for (int i = 0; i < 50000; ++i) {
        const op_kind kind = convolution_op_kinds[random.below(std::size(convolution_op_kinds))];
        const std::size_t axes = 1 + random.below(3);
        const std::string pad = random.text(), data = random.text(), weights = random.text();
        attributes attrs{.strides = random.list(axes)};
        if (random.chance(2)) attrs.dilations = random.list(axes);
        if (random.chance(3)) attrs.pads_begin = random.list(axes);
        if (random.chance(3)) attrs.output_padding = random.list(axes);
        try {
            if (random.chance(2)) attrs.auto_pad = pad;
            if (random.chance(5)) attrs.data_format = data;
            if (random.chance(5)) attrs.weights_format = weights;
            static_cast<void>(
                infer_shape(kind, random.list(axes + 2), random.list(axes + 2), attrs));
            static_cast<void>(resolve_pads(
                kind, random.list(axes + 2), random.list(axes + 2), random.list(axes), attrs));
        } catch (const error &e) {
            ASSERT_FALSE(std::string_view(e.what()).empty());
        }
    }
}

}  // namespace
}  // namespace convgrad

// Tensors and offsets beyond 2^31 and 2^32 elements through the public interface, and sizes whose
// arithmetic overflows. (tests/conv/huge_test.cpp does the former for every instruction set.)
//
// Memory is mapped but mostly never touched. What needs real memory says so where it is skipped.
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

#include <convgrad/convgrad.hpp>

#include "conv/convert.hpp"
#include "op/expect_error.hpp"
#include "support/eager_call.hpp"
#include "support/memory.hpp"
#include "support/random.hpp"

namespace convgrad::test {
namespace {

constexpr dim two31 = dim{1} << 31, two32 = dim{1} << 32;
constexpr dim most = std::numeric_limits<dim>::max();

/// A tensor on sparse memory.
class sparse {
public:
    sparse(data_type type, dims shape, dims strides = {})
        : type_(type), shape_(std::move(shape)), strides_(std::move(strides)),
          memory_(std::make_unique<guarded_memory>(bytes_of(type_, shape_, strides_))),
          data_(memory_->place(bytes_of(type_, shape_, strides_))) {}

    [[nodiscard]] tensor view() const { return {data_, type_, shape_, strides_}; }
    [[nodiscard]] logical_tensor described(std::size_t id) const {
        return {id, type_, shape_, strides_};
    }
    void write(dim offset, double value) {
        std::byte *at = data_ + offset * static_cast<dim>(size_of(type_));
        const auto put = [&](auto v) { std::memcpy(at, &v, sizeof v); };
        if (type_ == data_type::f32) put(conv::round_to<float>(value));
        if (type_ == data_type::bf16) put(conv::round_to<bf16>(value));
        if (type_ == data_type::f16) put(conv::round_to<f16>(value));
    }
    [[nodiscard]] double read(dim offset) const {
        const std::byte *at = data_ + offset * static_cast<dim>(size_of(type_));
        const auto get = [&](auto v) {
            std::memcpy(&v, at, sizeof v);
            return static_cast<double>(conv::to_float(v));
        };
        return type_ == data_type::f32    ? get(float{})
               : type_ == data_type::bf16 ? get(bf16{})
                                          : get(f16{});
    }
    /// Calls body(offset) for each element in order.
    template <typename Body>
    void for_each(Body &&body) const {
        visit(0, 0, body);
    }
    void fill(std::uint64_t seed) {
        rng random(seed);
        for_each([&](dim offset) { write(offset, 2 * random.unit() - 1); });
    }
    [[nodiscard]] std::vector<double> values() const {
        std::vector<double> all;
        for_each([&](dim offset) { all.push_back(read(offset)); });
        return all;
    }

private:
    static dim stride(const dims &shape, const dims &strides, std::size_t axis) {
        if (!strides.empty()) return strides[axis];
        dim packed = 1;
        for (std::size_t i = axis + 1; i < shape.size(); ++i) packed *= shape[i];
        return packed;
    }
    static std::size_t bytes_of(data_type type, const dims &shape, const dims &strides) {
        dim last = 0;
        for (std::size_t i = 0; i < shape.size(); ++i)
            last += (shape[i] - 1) * stride(shape, strides, i);
        return static_cast<std::size_t>(last + 1) * size_of(type);
    }
    template <typename Body>
    void visit(std::size_t axis, dim offset, Body &body) const {
        if (axis == shape_.size()) return body(offset);
        for (dim i = 0; i < shape_[axis]; ++i)
            visit(axis + 1, offset + i * stride(shape_, strides_, axis), body);
    }

    data_type type_;
    dims shape_, strides_;
    std::unique_ptr<guarded_memory> memory_;
    std::byte *data_;
};

/// A small layer; its data tensors lie `far` elements apart from image to image, and so do the
/// input channels of its weights.
struct far_layer {
    bool transposed;
    dims src{2, 5, 4, 3}, weights, dst;
    attributes attrs{.strides = {2, 1}, .pads_begin = {1, 1}, .pads_end = {1, 1}};

    explicit far_layer(bool is_transposed) : transposed(is_transposed) {
        weights = transposed ? dims{3, 3, 2, 3} : dims{3, 3, 3, 2};
        dst = infer_shape(
            transposed ? op_kind::conv_transpose : op_kind::convolution, src, weights, attrs);
    }
    static dims far_data(const dims &shape, dim far) {
        return {far, shape[2] * shape[3], shape[3], 1};
    }
    [[nodiscard]] dims far_weights(dim far) const { return {3 * weights[3], weights[3], far, 1}; }
};

/// in0, in1 and out of an op on a layer; far = 0: packed.
std::vector<sparse> operands(const far_layer &l, op_kind kind, data_type type, dim far) {
    std::vector<sparse> all;
    all.reserve(3);
    const auto data = [&](const dims &shape) {
        all.emplace_back(type, shape, far == 0 ? dims{} : far_layer::far_data(shape, far));
    };
    const auto weights = [&] {
        all.emplace_back(type, l.weights, far == 0 ? dims{} : l.far_weights(far));
    };
    switch ((static_cast<int>(kind) - static_cast<int>(op_kind::convolution)) % 3) {
    case 0:
        data(l.src), weights(), data(l.dst);
        break;
    case 1:
        data(l.dst), weights(), data(l.src);
        break;
    default:
        data(l.src), data(l.dst), weights();
    }
    all[0].fill(1);
    all[1].fill(2);
    return all;
}

std::vector<double> run_eager(const far_layer &l, op_kind kind, data_type type, dim far) {
    const auto t = operands(l, kind, type, far);
    call_eager(kind, t[0].view(), t[1].view(), {}, t[2].view(), l.attrs);
    return t[2].values();
}

std::vector<double> run_graph(const far_layer &l, op_kind kind, data_type type, dim far) {
    const auto t = operands(l, kind, type, far);
    op node(0, kind);
    node.set("strides", l.attrs.strides).set("dilations", dims{1, 1});
    node.set("pads_begin", l.attrs.pads_begin).set("pads_end", l.attrs.pads_end);
    node.add_input(t[0].described(0)).add_input(t[1].described(1)).add_output(t[2].described(2));
    graph g;
    g.add(node);
    g.finalize();
    g.partitions()[0].compile().execute(stream(), {t[0].view(), t[1].view()}, {t[2].view()});
    return t[2].values();
}

TEST(large, views_compute_the_same_bits_at_any_distance) {
    for (const op_kind kind : convolution_op_kinds) {
        const far_layer l(kind >= op_kind::conv_transpose);
        for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16}) {
            const auto near = run_eager(l, kind, type, 0);
            for (const dim far : {two31 - 1, two31 + 3, two32 - 5, two32 + 7, 5 * two32}) {
                EXPECT_EQ(run_eager(l, kind, type, far), near) << to_string(kind) << ' ' << far;
                EXPECT_EQ(run_graph(l, kind, type, far), near) << to_string(kind) << ' ' << far;
            }
        }
    }
}

// A packed tensor of more than 2^32 elements of which a strided op looks at few.
TEST(large, packed_input_of_more_than_32_bits) {
    constexpr dim side = 40000, step = 9999;
    const attributes attrs{.strides = {step, step}};
    for (const char *format : {"NXC", "NCX"}) {
        const bool last = std::string_view(format) == "NXC";
        attributes a = attrs;
        a.data_format = format;
        a.weights_format = "OIX";
        sparse src(data_type::bf16, last ? dims{3, side, side, 1} : dims{3, 1, side, side});
        sparse weights(data_type::bf16, {2, 1, 2, 2});
        sparse dst(data_type::bf16, last ? dims{3, 5, 5, 2} : dims{3, 2, 5, 5});
        weights.fill(1);
        for (dim n = 0; n < 3; ++n)
            for (dim y = 0; y < 5; ++y)
                for (dim x = 0; x < 5; ++x)
                    src.write((n * side + y * step) * side + x * step,
                        static_cast<double>(n * 25 + y * 5 + x));
        convolution(src.view(), weights.view(), {}, dst.view(), a);
        for (dim n = 0; n < 3; ++n)
            for (dim o = 0; o < 2; ++o)
                for (dim y = 0; y < 25; ++y) {
                    const double product = static_cast<double>(n * 25 + y) * weights.read(o * 4);
                    EXPECT_EQ(dst.read(last ? (n * 25 + y) * 2 + o : (n * 2 + o) * 25 + y),
                        conv::to_float(conv::round_to<bf16>(product)))
                        << format << ' ' << n << ' ' << o << ' ' << y;
                }
        sparse diff_weights(data_type::bf16, {2, 1, 2, 2});
        dst.for_each([&](dim offset) { dst.write(offset, 1); });
        convolution_backward_weights(src.view(), dst.view(), diff_weights.view(), a);
        EXPECT_EQ(diff_weights.read(0), conv::to_float(conv::round_to<bf16>(74 * 75 / 2.0)));
        EXPECT_EQ(diff_weights.read(1), 0);
    }
}

double available_memory() {
    std::ifstream info("/proc/meminfo");
    for (std::string key; info >> key;) {
        double kib = 0;
        if (key == "MemAvailable:" && info >> kib) return kib * 1024;
    }
    return 0;
}

// More than 2^32 elements are written: needs their memory.
TEST(large, packed_output_of_more_than_32_bits) {
    constexpr dim channels = 256, length = two32 / channels + 3, step = dim{1} << 19;
    const double needed = 2.0 * channels * static_cast<double>(length);
    const double available = available_memory();
    if (available < 1.6 * needed)
        GTEST_SKIP() << "needs " << needed / 0x1p30 << " GiB, and " << available / 0x1p30
                     << " GiB of memory are available";
    constexpr dim outputs = 33;
    sparse diff_dst(data_type::bf16, {1, outputs, 1}), weights(data_type::bf16, {2, channels, 1});
    sparse diff_src(data_type::bf16, {1, length, channels});
    for (dim y = 0; y < outputs; ++y) diff_dst.write(y, static_cast<double>(y + 1));
    for (dim c = 0; c < channels; ++c) {
        weights.write(c, 1);
        weights.write(channels + c, -1);
    }
    diff_src.write(length * channels - 1, 7);  // to be overwritten
    convolution_backward_data(
        diff_dst.view(), weights.view(), diff_src.view(), {.strides = {step}});
    for (dim y = 0; y < outputs; ++y)
        for (const dim c : {dim{0}, channels - 1}) {
            const dim at = y * step * channels + c;
            EXPECT_EQ(diff_src.read(at), static_cast<double>(y + 1)) << at;
            EXPECT_EQ(diff_src.read(at + channels), static_cast<double>(-y - 1)) << at;
            EXPECT_EQ(diff_src.read(at + 2 * channels), 0) << at;
        }
}

// ---- overflow ----

/// Shapes of a convolution in 1-D, NXC, XIO, that overflow somewhere; what the message must say.
struct too_large {
    dims src, weights;
    attributes attrs;
    std::string_view says;
};

std::vector<too_large> too_large_forward() {
    return {
        {{two32, two32, 1}, {1, 1, 1}, {}, "[4294967296, 4294967296, 1]"},
        {{2, most / 2, 1}, {1, 1, 1}, {}, "src"},
        {{1, 3, two32}, {1, two32, two32}, {}, "weights"},
        {{two31, two31 / 8, 1}, {1, 1, 16}, {}, "dst"},
        {{1, 8, 1}, {3, 1, 1}, {.pads_begin = {most}}, "spatial axis 0"},
        {{1, 8, 1}, {3, 1, 1}, {.pads_begin = {most / 2}, .pads_end = {most / 2}},
            "spatial axis 0"},
        {{1, 8, 1}, {3, 1, 1}, {.pads_begin = {most}, .pads_end = {most}, .dilations = {most}},
            "spatial axis 0"},
    };
}

// Never dereferenced: a refused call touches nothing.
void *nowhere() {
    static std::byte place[64];
    return place;
}

TEST(large, overflow_is_refused_by_eager_calls) {
    for (const too_large &c : too_large_forward()) {
        const tensor src(nowhere(), data_type::f32, c.src),
            weights(nowhere(), data_type::f32, c.weights);
        for (const dims &dst : {dims{1, 1, 1}, dims{c.src[0], c.src[1], c.weights[2]}})
            expect_error(error_code::invalid_shape, {"Convolution"}, [&] {
                convolution(src, weights, {}, tensor(nowhere(), data_type::f32, dst), c.attrs);
            });
    }
}

TEST(large, overflow_is_refused_when_inferring) {
    for (const too_large &c : too_large_forward())
        // Enormous pads and dilations can cancel in the shape; offsets still overflow.
        if (c.attrs.dilations.empty())
            expect_error(error_code::invalid_shape, {"Convolution", c.says, "overflows"},
                [&] { return infer_shape(op_kind::convolution, c.src, c.weights, c.attrs); });
    expect_error(error_code::invalid_shape, {"ConvTranspose", "overflows"}, [] {
        return infer_shape(op_kind::conv_transpose, {1, two32, 1}, {3, 1, 1}, {.strides = {two32}});
    });
    expect_error(error_code::invalid_shape, {"auto_pad", "overflows"}, [] {
        return resolve_pads(op_kind::convolution, {1, 8, 1}, {}, {most},
            {.dilations = {most}, .auto_pad = "same_upper"});
    });
}

TEST(large, overflow_is_refused_when_compiling) {
    for (const too_large &c : too_large_forward()) {
        const logical_tensor src(0, data_type::f32, c.src), weights(1, data_type::f32, c.weights);
        const logical_tensor dst(2, data_type::f32);
        expect_error(error_code::invalid_shape, {"Convolution", c.says, "overflows"}, [&] {
            return compile(op_kind::convolution, {src, weights}, {dst}, c.attrs);
        });
        // In a graph, either as the op's own shapes or as those given to compile().
        op node(0, op_kind::convolution);
        const auto list = [](const dims &given, dim standard) {
            return given.empty() ? dims{standard} : given;
        };
        node.set("strides", list(c.attrs.strides, 1)).set("dilations", list(c.attrs.dilations, 1));
        node.set("pads_begin", list(c.attrs.pads_begin, 0));
        node.set("pads_end", list(c.attrs.pads_end, 0));
        op late = node;
        node.add_input(src).add_input(weights).add_output(dst);
        expect_error(error_code::invalid_shape, {"Convolution", "overflows"}, [&] {
            graph g;
            g.add(node);
            g.finalize();
            static_cast<void>(g.partitions()[0].compile());
        });
        late.add_input({0, data_type::f32}).add_input({1, data_type::f32}).add_output(dst);
        expect_error(error_code::invalid_shape, {"Convolution", "overflows"}, [&] {
            graph g;
            g.add(late);
            g.finalize();
            static_cast<void>(g.partitions()[0].compile({src, weights}, {dst}));
        });
    }
}

TEST(large, strides_that_overflow_are_refused) {
    const dims shape{2, 3, 2};
    for (const dims &strides : {dims{most, 2, 1}, dims{2, most / 2, 1}, dims{1, 1, most}}) {
        const tensor src(nowhere(), data_type::f32, shape, strides);
        const tensor weights(nowhere(), data_type::f32, {1, 2, 2});
        const tensor dst(nowhere(), data_type::f32, {2, 3, 2});
        expect_error(error_code::invalid_shape, {"Convolution", "src", "strides", "overflows"},
            [&] { convolution(src, weights, {}, dst); });
        expect_error(error_code::invalid_shape, {"diff_src", "overflows"},
            [&] { convolution_backward_data(dst, weights, src); });
        expect_error(error_code::invalid_shape, {"src", "overflows"}, [&] {
            return compile_backward(op_kind::convolution,
                {{0, data_type::f32, shape, strides}, {1, data_type::f32, dst.shape},
                    {2, data_type::f32, weights.shape}},
                {{3, data_type::f32, shape}, {4, data_type::f32, weights.shape}});
        });
    }
}

// Legal sizes whose products with each other (multiply-adds, bytes of a batch) pass 64 bits are no
// reason to refuse or to stumble: plans are made without touching memory.
TEST(large, plans_of_enormous_legal_problems) {
    const logical_tensor src(0, data_type::bf16, {1, two32, 1 << 20});
    const logical_tensor weights(1, data_type::bf16, {3, 1 << 20, 1 << 20});
    const logical_tensor dst(2, data_type::bf16);
    const attributes attrs{.pads_begin = {1}, .pads_end = {1}};
    const auto forward = compile(op_kind::convolution, {src, weights}, {dst}, attrs);
    EXPECT_EQ(*forward.outputs()[0].shape, (dims{1, two32, 1 << 20}));
    const logical_tensor diff(2, data_type::bf16, {1, two32, 1 << 20});
    for (const op_kind kind :
        {op_kind::convolution_backward_data, op_kind::conv_transpose_backward_data})
        EXPECT_GT(
            compile(kind, {diff, weights}, {{3, data_type::bf16}}, attrs).describe().size(), 0U);
    const auto gradient =
        compile(op_kind::convolution_backward_weights, {src, diff}, {weights}, attrs);
    EXPECT_GT(gradient.describe().size(), 0U);
}

}  // namespace
}  // namespace convgrad::test

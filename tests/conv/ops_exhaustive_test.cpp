// All six ops through the public API against the independent definition, on exact integers, bit for
// bit.
//
// One dimension: the full product of kernel 1-3, stride 1-3, dilation 1-2, explicit pads 0-2 at
// either end and the three values of auto_pad, every output_padding, length 1-7, all ops, groups 1,
// 2 and C, both data formats, all weights formats and both grouped forms, all types; instruction
// set, bias and accumulation change from case to case. Two and three dimensions: a fixed random
// sample of axes with everything else drawn as well (of 1.1e7 pairs and 3.5e10 triples).
//
// Left out where the specification can be read in two ways: lengths of ConvolutionBackwardData that
// fit only with, or only without, output_padding taken off; and auto_pad where output_padding
// leaves nothing of diff_dst.
#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

#include "conv/convert.hpp"
#include "support/definition.hpp"
#include "support/eager_call.hpp"
#include "support/sanitizers.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

struct axis_case {
    dim K, S, D, pb, pe, q, L;
};

constexpr std::string_view auto_pads[] = {"none", "valid", "same_upper", "same_lower"};

/// Explicit pads only with auto_pad none; the others differ in nothing else.
std::vector<axis_case> all_axes(std::string_view auto_pad) {
    std::vector<axis_case> axes;
    const dim most_pad = auto_pad == "none" ? 2 : 0;
    for (dim K = 1; K <= 3; ++K)
        for (dim S = 1; S <= 3; ++S)
            for (dim D = 1; D <= 2; ++D)
                for (dim pb = 0; pb <= most_pad; ++pb)
                    for (dim pe = 0; pe <= most_pad; ++pe)
                        for (dim q = 0; q < std::max(S, D); ++q)
                            for (dim L = 1; L <= 7; ++L) axes.push_back({K, S, D, pb, pe, q, L});
    return axes;
}

struct op_case {
    op_kind kind;
    attributes attrs;
    data_type type;
    dim N, IC, OC;
    dims kernel, longer, shorter;  // spatial lengths
    bool second_form;              // (IC/G, OC) weights of grouped ConvTranspose
    bool bias, accumulate, diff_bias;
};

bool is_transpose(op_kind kind) {
    return kind >= op_kind::conv_transpose;
}
bool is_weights_gradient(op_kind kind) {
    return kind == op_kind::convolution_backward_weights
           || kind == op_kind::conv_transpose_backward_weights;
}
bool takes_output_padding(op_kind kind) {
    return kind == op_kind::convolution_backward_data || is_transpose(kind);
}

std::ostream &operator<<(std::ostream &out, const dims &list) {
    out << '(';
    for (dim d : list) out << d << ' ';
    return out << ')';
}

std::string to_text(const op_case &c) {
    std::ostringstream out;
    out << to_string(c.kind) << ' ' << to_string(c.type) << " N" << c.N << " IC" << c.IC << " OC"
        << c.OC << " G" << c.attrs.groups << " kernel" << c.kernel << " longer" << c.longer
        << " shorter" << c.shorter << " strides" << c.attrs.strides << " dilations"
        << c.attrs.dilations << " pads" << c.attrs.pads_begin << c.attrs.pads_end << ' '
        << to_string(c.attrs.auto_pad) << " q" << c.attrs.output_padding << ' '
        << to_string(c.attrs.data_format) << ' ' << to_string(*c.attrs.weights_format)
        << (c.second_form ? " second form" : "") << (c.bias ? " bias" : "")
        << (c.accumulate ? " accumulate" : "") << (c.diff_bias ? " diff_bias" : "");
    return out.str();
}

bool positive(const dims &list) {
    return std::ranges::min(list) >= 1;
}

/// Whether ConvolutionBackwardData's lengths fit together: Convolution applied to diff_src, with
/// and without the end that output_padding added, gives diff_dst.
bool is_consistent(const op_case &c) {
    const dims &q = c.attrs.output_padding;
    attributes explicit_pads = c.attrs;
    if (c.attrs.auto_pad == "same_upper" || c.attrs.auto_pad == "same_lower") {
        for (std::size_t d = 0; d < c.kernel.size(); ++d) {
            const dim E = c.attrs.dilations[d] * (c.kernel[d] - 1) + 1;
            const dim T =
                c.attrs.strides[d] * (c.shorter[d] - 1) + E - c.longer[d] + (q.empty() ? 0 : q[d]);
            explicit_pads.pads_begin[d] = 0;
            explicit_pads.pads_end[d] = std::max<dim>(0, T);
        }
        explicit_pads.auto_pad = "none";
    }
    // The kind chooses whether output_padding is taken off first.
    for (const op_kind kind : {op_kind::convolution, op_kind::conv_transpose_backward_data})
        if (defined_convolution_lengths(kind, explicit_pads, c.longer, c.kernel) != c.shorter)
            return false;
    return true;
}

/// Sets the lengths that follow from `given` lengths; false where the specification forbids them.
bool set_lengths(op_case &c, const dims &given) {
    switch (c.kind) {
    case op_kind::conv_transpose:
    case op_kind::conv_transpose_backward_weights:
        c.shorter = given;
        c.longer = defined_transpose_lengths(op_kind::conv_transpose, c.attrs, given, c.kernel);
        return positive(c.longer);
    case op_kind::convolution_backward_data:
        c.longer = given;
        c.shorter = defined_convolution_lengths(op_kind::convolution, c.attrs, given, c.kernel);
        return positive(c.shorter) && is_consistent(c);
    default:
        c.longer = given;
        for (std::size_t d = 0; d < c.attrs.output_padding.size(); ++d)
            if (c.attrs.auto_pad != "none" && given[d] <= c.attrs.output_padding[d]) return false;
        c.shorter = defined_convolution_lengths(c.kind, c.attrs, given, c.kernel);
        return positive(c.shorter);
    }
}

dims data_shape(const op_case &c, dim channels, const dims &space) {
    dims shape = {c.N};
    shape.insert(shape.end(), space.begin(), space.end());
    shape.insert(c.attrs.data_format == "NCX" ? shape.begin() + 1 : shape.end(), channels);
    return shape;
}

dims weights_shape(const op_case &c) {
    const dim G = c.attrs.groups;
    const std::string_view format = to_string(*c.attrs.weights_format);
    const bool split_i = !is_transpose(c.kind) || c.second_form;  // I is IC/G
    const dim I = split_i ? c.IC / G : c.IC, O = split_i ? c.OC : c.OC / G;
    const bool i_first = format.find('I') < format.find('O');
    const dim first = i_first ? I : O, second = i_first ? O : I;
    dims shape = c.kernel;
    if (format.front() == 'X')
        shape.insert(shape.end(), {first, second});
    else
        shape.insert(shape.begin(), {first, second});
    return shape;
}

/// One tensor as f64 and as memory of its type.
class typed_tensor {
public:
    void set(data_type type, dims shape) {
        type_ = type;
        values = dense(std::move(shape));
        // Both guard pages in turn, out of step with the loops over cases.
        const bool front = rng(++placed_).next() % 2 == 0;
        data_ = memory_.place(values.values.size() * size_of(type),
            front ? guarded_memory::side::begin : guarded_memory::side::end);
    }
    void fill_integers(rng &random) {
        for (double &v : values.values) v = static_cast<double>(random.between(-15, 15));
        store(data_);
    }
    void fill_nan() { std::memset(data_, 0xff, bytes()); }
    [[nodiscard]] tensor get() const { return {data_, type_, values.shape}; }
    /// Whether memory holds exactly the rounded values.
    [[nodiscard]] bool matches() {
        expected_.resize(bytes());
        store(expected_.data());
        return bytes() == 0 || std::memcmp(expected_.data(), data_, bytes()) == 0;
    }

    dense values;

private:
    [[nodiscard]] std::size_t bytes() const { return values.values.size() * size_of(type_); }
    template <typename T>
    void store_as(std::byte *to) const {
        for (std::size_t i = 0; i < values.values.size(); ++i) {
            const T v = conv::round_to<T>(values.values[i]);
            std::memcpy(to + i * sizeof(T), &v, sizeof(T));
        }
    }
    void store(std::byte *to) const {
        switch (type_) {
        case data_type::bf16:
            return store_as<bf16>(to);
        case data_type::f16:
            return store_as<f16>(to);
        default:
            return store_as<float>(to);
        }
    }

    guarded_memory memory_{1U << 14};
    std::uint64_t placed_ = 0;
    data_type type_ = data_type::undef;
    std::byte *data_ = nullptr;
    std::vector<std::byte> expected_;
};

class op_checker {
public:
    op_checker() {
        for (const isa set : usable_isas())
            engines_.emplace_back(engine_options{.threads = 1, .max_isa = set});
    }

    /// Runs one case on one engine; false if it failed.
    bool check(const op_case &c, rng &random, std::uint64_t number) {
        const bool transpose = is_transpose(c.kind);
        const dims src = data_shape(c, c.IC, transpose ? c.shorter : c.longer);
        const dims dst = data_shape(c, c.OC, transpose ? c.longer : c.shorter);
        const dims weights = weights_shape(c);
        const int which = (static_cast<int>(c.kind) - 13) % 3;
        in0_.set(c.type, which == 1 ? dst : src);
        in1_.set(c.type, which == 2 ? dst : weights);
        out_.set(c.type, which == 0 ? dst : which == 1 ? src : weights);
        bias_.set(c.type, {c.OC});
        in0_.fill_integers(random);
        in1_.fill_integers(random);
        bias_.fill_integers(random);
        out_.fill_integers(random);
        const std::vector<double> previous = out_.values.values;
        if (!c.accumulate) out_.fill_nan();

        const auto sets = usable_isas();
        const auto found = std::ranges::find(sets, affordable_isa(number));
        const engine &on = engines_[static_cast<std::size_t>(found - sets.begin())];
        const tensor diff_bias = bias_.get();
        const options opts = {
            .accumulate = c.accumulate, .diff_bias = c.diff_bias ? &diff_bias : nullptr, .on = &on};
        try {
            call_eager(c.kind, in0_.get(), in1_.get(), c.bias ? bias_.get() : tensor{}, out_.get(),
                c.attrs, opts);
        } catch (const error &e) {
            ADD_FAILURE() << e.what() << "\n  in " << to_text(c);
            return false;
        }
        out_.values = defined_result(c.kind, c.attrs, in0_.values, in1_.values,
            c.bias ? &bias_.values : nullptr, out_.values.shape);
        if (c.accumulate)
            for (std::size_t i = 0; i < previous.size(); ++i) out_.values.values[i] += previous[i];
        if (c.diff_bias) add_diff_bias(c);
        if (out_.matches() && bias_.matches()) return true;
        ADD_FAILURE() << to_string(on.instruction_set()) << ": wrong result of " << to_text(c);
        return false;
    }

private:
    /// The sum of diff_dst over batch and space, added to what was there when accumulating.
    void add_diff_bias(const op_case &c) {
        if (!c.accumulate) std::ranges::fill(bias_.values.values, 0);
        const std::size_t channels = bias_.values.values.size();
        const std::vector<double> &diff_dst = in1_.values.values;
        const std::size_t inner = c.attrs.data_format == "NCX"
                                      ? diff_dst.size() / (channels * static_cast<std::size_t>(c.N))
                                      : 1;
        for (std::size_t i = 0; i < diff_dst.size(); ++i)
            bias_.values.values[i / inner % channels] += diff_dst[i];
    }

    std::vector<engine> engines_;
    typed_tensor in0_, in1_, out_, bias_;
};

void add_axis(op_case &c, dims &given, const axis_case &a) {
    c.kernel.push_back(a.K);
    c.attrs.strides.push_back(a.S);
    c.attrs.dilations.push_back(a.D);
    c.attrs.pads_begin.push_back(a.pb);
    c.attrs.pads_end.push_back(a.pe);
    if (takes_output_padding(c.kind)) c.attrs.output_padding.push_back(a.q);
    given.push_back(a.L);
}

void set_channels(op_case &c, int groups, rng &random) {
    c.attrs.groups = groups == 0 ? 1 : groups == 1 ? 2 : 4;
    const dim g = c.attrs.groups;
    const bool depthwise = groups == 2;
    c.IC = g * (depthwise ? 1 : random.between(1, 3));
    c.OC = g * (depthwise ? random.between(1, 2) : random.between(1, 3));
    if (random.chance(0.05)) c.OC = g * 17;
    if (random.chance(0.05) && !depthwise) c.IC = g * 18;
}

constexpr data_type types[] = {data_type::f32, data_type::bf16, data_type::f16};

void set_extras(op_case &c, rng &random) {
    c.type = types[random.next() % 3];
    c.N = random.between(1, 2);
    const bool forward = c.kind == op_kind::convolution || c.kind == op_kind::conv_transpose;
    c.bias = forward && random.chance(0.5);
    c.accumulate = !forward && random.chance(0.25);
    c.diff_bias = is_weights_gradient(c.kind) && random.chance(0.25);
}

/// The weights formats of an op, the grouped forms of the transposed ones included.
constexpr struct {
    std::string_view convolution, transpose;
    bool second_form;
} formats[] = {
    {"XIO", "XOI", false}, {"OIX", "IOX", false}, {"XIO", "XOI", true}, {"OIX", "IOX", true}};

void check_one_dimension(op_kind kind) {
    op_checker checker;
    sampler sample(7);
    int failures = 0;
    std::uint64_t number = static_cast<std::uint64_t>(kind) << 32;
    for (const std::string_view auto_pad : auto_pads)
        for (const axis_case &a : all_axes(auto_pad)) {
            if (a.q > 0 && !takes_output_padding(kind)) continue;
            for (int variant = 0; variant < 3 * 3 * 2 * 4; ++variant) {
                const auto &format = formats[variant % 4];
                if (format.second_form && !is_transpose(kind)) continue;
                rng random(++number);
                if (!sample.takes_next()) continue;
                op_case c{};
                c.kind = kind;
                c.attrs.auto_pad = auto_pad;
                c.attrs.data_format = variant / 4 % 2 ? "NCX" : "NXC";
                c.attrs.weights_format = is_transpose(kind) ? format.transpose : format.convolution;
                c.second_form = format.second_form;
                dims given;
                add_axis(c, given, a);
                set_channels(c, variant / 8 % 3, random);
                set_extras(c, random);
                c.type = types[variant / 24];
                if (!set_lengths(c, given)) continue;
                if (!checker.check(c, random, number) && ++failures == 5) return;
            }
        }
}

void check_sample(op_kind kind, int rank, int count) {
    op_checker checker;
    int failures = 0;
    std::uint64_t number =
        static_cast<std::uint64_t>(kind) << 40 | static_cast<unsigned>(rank) << 30;
    for (int done = 0; done < count;) {
        rng random(++number);
        op_case c{};
        c.kind = kind;
        c.attrs.auto_pad = auto_pads[random.chance(0.5) ? 0 : random.between(1, 3)];
        c.attrs.data_format = random.chance(0.5) ? "NCX" : "NXC";
        const auto &format = formats[random.next() % (is_transpose(kind) ? 4 : 2)];
        c.attrs.weights_format = is_transpose(kind) ? format.transpose : format.convolution;
        c.second_form = format.second_form;
        dims given;
        for (int d = 0; d < rank; ++d) {
            const dim S = random.between(1, 3), D = random.between(1, 2);
            add_axis(c, given,
                {random.between(1, 3), S, D, random.between(0, 2), random.between(0, 2),
                    random.chance(0.5) ? 0 : random.between(0, std::max(S, D) - 1),
                    random.between(1, 7)});
        }
        set_channels(c, static_cast<int>(random.between(0, 2)), random);
        set_extras(c, random);
        if (!set_lengths(c, given)) continue;
        ++done;
        if (!checker.check(c, random, number) && ++failures == 5) return;
    }
}

class ops_exhaustive : public testing::TestWithParam<op_kind> {};

TEST_P(ops_exhaustive, one_dimension) {
    check_one_dimension(GetParam());
}
TEST_P(ops_exhaustive, two_dimensions) {
    check_sample(GetParam(), 2, sampled(150000, 20));
}
TEST_P(ops_exhaustive, three_dimensions) {
    check_sample(GetParam(), 3, sampled(20000, 8));
}

INSTANTIATE_TEST_SUITE_P(all, ops_exhaustive, testing::ValuesIn(convolution_op_kinds),
    [](const auto &about) { return std::string(to_string(about.param)); });

}  // namespace
}  // namespace convgrad::test

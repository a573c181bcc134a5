// Eager calls, single compiled ops and the shape queries, with garbage strewn in. Layers that were
// not spoilt must be computed, and their results be those of the definition, bit for bit.
#include <algorithm>
#include <cstring>
#include <sstream>

#include <convgrad/eager.hpp>

#include "conv/convert.hpp"
#include "fuzz/layer.hpp"
#include "support/definition.hpp"
#include "support/eager_call.hpp"

namespace convgrad::fuzz {
namespace {

/// Tensors of one call: inputs first, then outputs, then the optional ones.
struct call {
    op_kind kind;
    logical_tensor first, second, output, bias, add, diff_bias;
    bool has_bias, has_add, has_diff_bias;
    bool in_place = false;  // add is the output
};

void spoil(input &in, logical_tensor &t) {
    switch (in.byte() % 5) {
    case 0:
        fuzz::spoil(in, *t.shape);
        break;
    case 1:
        t.strides = in.numbers(t.shape->size());
        break;
    case 2:
        t.strides = in.numbers(in.byte() % 6);
        break;
    case 3:
        t.type = static_cast<data_type>(in.byte() % 7);
        break;
    default:
        std::ranges::reverse(*t.shape);
    }
}

/// The same elements with gaps, or in another order of axes.
void scatter(input &in, logical_tensor &t) {
    const std::size_t rank = t.shape->size();
    dims strides(rank, 1);
    dim step = in.between(1, 2);
    const std::size_t first = in.byte() % std::max<std::size_t>(rank, 1);
    for (std::size_t i = 0; i < rank; ++i) {
        const std::size_t axis = (first + rank - i) % rank;
        strides[axis] = step;
        step = std::min(step, dim{1} << 40) * std::clamp<dim>((*t.shape)[axis], 1, 4096)
               + in.byte() % 2;
    }
    t.strides = strides;
}

/// Elements of an input may share memory.
void overlap(input &in, logical_tensor &t) {
    t.strides = dims(t.shape->size());
    for (dim &stride : t.strides) stride = in.between(1, 9);
}

call draw_call(input &in, const layer &l) {
    const int which = in.byte() % 3;
    call c{.kind = l.kind(which),
        .first = {0, l.type, which == 1 ? l.dst : l.src},
        .second = {1, l.type, which == 2 ? l.dst : l.weights},
        .output = {2, l.type,
            which == 0   ? l.dst
            : which == 1 ? l.src
                         : l.weights},
        .bias = {3, l.type, {l.channels_out}},
        .add = {4, l.type, l.dst},
        .diff_bias = {5, l.type, {l.channels_out}},
        .has_bias = which == 0 && in.chance(3),
        .has_add = which == 0 && in.chance(3),
        .has_diff_bias = which == 2 && in.chance(3)};
    logical_tensor *const all[] = {&c.first, &c.second, &c.output, &c.bias, &c.add, &c.diff_bias};
    for (logical_tensor *t : all)
        if (in.chance(4)) scatter(in, *t);
    c.in_place = c.has_add && in.chance(2);
    if (c.in_place) c.add.strides = c.output.strides;
    for (logical_tensor *t : {&c.first, &c.second})
        if (in.chance(8)) overlap(in, *t);
    return c;
}

/// What a tensor holds now.
test::dense values_of(const tensor &t) {
    test::dense read(t.shape);
    const std::size_t rank = t.shape.size(), size = size_of(t.type);
    dims strides = t.strides;
    if (strides.empty()) {
        strides.resize(rank);
        dim packed = 1;
        for (std::size_t i = rank; i-- > 0; packed *= t.shape[i]) strides[i] = packed;
    }
    for (std::size_t n = 0; n < read.values.size(); ++n) {
        dim rest = static_cast<dim>(n), offset = 0;
        for (std::size_t i = rank; i-- > 0; rest /= t.shape[i])
            offset += rest % t.shape[i] * strides[i];
        const auto *at = static_cast<const std::byte *>(t.data) + offset * static_cast<dim>(size);
        const auto as = [&](auto element) {
            std::memcpy(&element, at, size);
            return static_cast<double>(conv::to_float(element));
        };
        read.values[n] = t.type == data_type::f32    ? as(0.0F)
                         : t.type == data_type::bf16 ? as(bf16{})
                                                     : as(f16{});
    }
    return read;
}

double rounded(data_type type, double value) {
    if (type == data_type::bf16)
        return static_cast<double>(conv::to_float(conv::round_to<bf16>(value)));
    if (type == data_type::f16)
        return static_cast<double>(conv::to_float(conv::round_to<f16>(value)));
    return static_cast<double>(conv::round_to<float>(value));
}

/// Whether the definition can be read in one way only: not where auto_pad meets output_padding.
bool is_plain(const layer &l) {
    const dims &q = l.attrs.output_padding;
    return l.auto_pad == "none" || std::ranges::find_if(q, [](dim n) { return n > 0; }) == q.end();
}

std::string text_of(const call &c, const layer &l) {
    const attributes &a = l.attrs;
    std::ostringstream out;
    const auto put = [&](const char *name, const dims &list) {
        out << ' ' << name;
        for (dim d : list) out << ' ' << d;
    };
    out << to_string(c.kind) << ' ' << to_string(l.type) << ' ' << l.auto_pad << ' '
        << l.data_format << ' ' << l.weights_format << " groups " << a.groups;
    put("first", *c.first.shape);
    put("second", *c.second.shape);
    put("output", *c.output.shape);
    put("strides", a.strides);
    put("dilations", a.dilations);
    put("pads_begin", a.pads_begin);
    put("pads_end", a.pads_end);
    put("output_padding", a.output_padding);
    return out.str();
}

struct expected_result {
    test::dense first, second, previous, bias, add;

    void compare(const call &c, const layer &l, const options &opts, const tensor &output) const {
        test::dense result = test::defined_result(
            c.kind, l.attrs, first, second, c.has_bias ? &bias : nullptr, output.shape);
        const test::dense got = values_of(output);
        for (std::size_t i = 0; i < got.values.size(); ++i) {
            double &v = result.values[i];
            if (c.has_add) v += add.values[i];
            if (opts.accumulate) v += previous.values[i];
            if (opts.relu) v = std::max(v, 0.0);
            if (got.values[i] == rounded(output.type, v)) continue;
            require(false, ("not the result of the definition: " + text_of(c, l)).c_str());
        }
    }
};

void run_call(const call &c, const layer &l, const options &opts, bool spoilt, bool must_succeed) {
    tensor_memory memory;
    const tensor first = memory.make(c.first), second = memory.make(c.second);
    const tensor output = memory.make(c.output);
    const tensor bias = c.has_bias ? memory.make(c.bias) : tensor{};
    const tensor add = c.in_place ? output : memory.make(c.add),
                 diff_bias = memory.make(c.diff_bias);
    if (memory.has_refused() || memory.work() > most_work) return;
    options all = opts;
    if (c.has_add) all.add = &add;
    if (c.has_diff_bias) all.diff_bias = &diff_bias;
    expected_result expected;
    const bool compares = !spoilt && is_plain(l);
    if (compares)
        expected = {values_of(first), values_of(second), values_of(output),
            c.has_bias ? values_of(bias) : test::dense{}, values_of(add)};
    const bool done =
        succeeds([&] { test::call_eager(c.kind, first, second, bias, output, l.attrs, all); });
    if (done && compares) expected.compare(c, l, opts, output);
    require(done || !must_succeed || opts.on->workspace_limit() < 1U << 20U,
        "a legal call was refused");
}

void compile_call(input &in, const call &c, const layer &l, const options &opts) {
    const compile_options plain{.accumulate = opts.accumulate, .relu = opts.relu, .on = opts.on};
    compile_options all = plain;
    all.add = c.has_add;
    all.diff_bias = c.has_diff_bias;
    std::vector<logical_tensor> inputs = {c.first, c.second}, outputs = {c.output};
    if (c.has_bias || c.has_add) inputs.push_back(c.has_bias ? c.bias : logical_tensor{});
    if (c.has_add) inputs.push_back(c.add);
    if (c.has_diff_bias) outputs.push_back(c.diff_bias);
    if (in.chance(4)) outputs[0].shape.reset();
    if (in.chance(16)) inputs.pop_back();
    succeeds([&] {
        const auto compiled = convgrad::compile(c.kind, inputs, outputs, l.attrs, all);
        require(!compiled.describe().empty(), "no description");
    });
    if (in.chance(4)) {
        const logical_tensor both_in[] = {
            {0, l.type, l.src}, {1, l.type, l.dst}, {2, l.type, l.weights}};
        const logical_tensor both_out[] = {{3, l.type, l.src}, {4, l.type, l.weights}};
        succeeds([&] { return compile_backward(l.forward(), both_in, both_out, l.attrs, plain); });
    }
}

void run(input &in) {
    layer l;
    draw_layer(in, l);
    bool spoilt = l.dst.empty();
    for (; in.chance(4); spoilt = true) fuzz::spoil(in, l);
    call c = draw_call(in, l);
    options opts;
    opts.on = &draw_engine(in);
    opts.relu = c.kind == l.forward() && in.chance(4);
    opts.accumulate = c.kind != l.forward() && in.chance(4);
    if (in.chance(4)) {
        spoilt = true;
        logical_tensor *const all[] = {
            &c.first, &c.second, &c.output, &c.bias, &c.add, &c.diff_bias};
        spoil(in, *all[in.byte() % 6]);
        opts.accumulate = opts.accumulate != in.chance(4);
        opts.relu = opts.relu != in.chance(4);
    }
    succeeds([&] { return infer_shape(c.kind, *c.first.shape, *c.second.shape, l.attrs); });
    if (in.chance(4)) {
        const dims data = in.chance(2) ? l.src : in.numbers(l.axes + 2),
                   kernel = in.numbers(l.axes);
        succeeds([&] { return resolve_pads(c.kind, data, l.dst, kernel, l.attrs); });
    }
    compile_call(in, c, l, opts);
    // The length of diff_src does not always follow from diff_dst: that may be refused.
    const bool must_succeed =
        !spoilt && !l.transposed && c.kind != op_kind::convolution_backward_data;
    run_call(c, l, opts, spoilt, must_succeed);
}

}  // namespace
}  // namespace convgrad::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    convgrad::fuzz::input in(data, size);
    convgrad::fuzz::run(in);
    return 0;
}

#include <cstdlib>
#include <stdexcept>

#include "trial.hpp"

namespace hunt {
namespace {

using convgrad::logical_tensor;

/// Those of the problem; where auto_pad makes them count for nothing, also none or any.
dims pads(const problem &p, dim axis::*member, draw &random) {
    if (p.auto_pad == "none" || random.percent(40)) return p.list(member);
    return random.one_of<dims>({{}, {7}, {-1, 3, 100, 4}});
}

/// Attributes of the eager calls; the strings live as long as this.
struct eager_attributes {
    std::string data_format, weights_format;
    convgrad::attributes value;

    eager_attributes(const problem &p, draw &random)
        : data_format(p.data_format()), weights_format(p.weights_format()) {
        value.strides = p.list(&axis::stride);
        value.dilations = p.list(&axis::dilation);
        value.auto_pad = p.auto_pad;
        value.pads_begin = pads(p, &axis::pad_begin, random);
        value.pads_end = pads(p, &axis::pad_end, random);
        value.groups = p.groups;
        value.data_format = data_format;
        value.weights_format = weights_format;
        if (p.transposed) value.output_padding = p.list(&axis::output_padding);
    }
};

void call_eager(trial &t, const convgrad::engine &on, draw &random) {
    using namespace convgrad;
    const problem &p = t.p;
    const eager_attributes attrs(p, random);
    options opts;
    const stream queue(on);
    opts.on = &on;
    if (random.percent(30)) opts.queue = &queue;
    opts.accumulate = p.accumulate;
    opts.relu = p.relu;
    tensor added, bias_gradient;
    if (p.add) added = t.addend().tensor();
    if (p.add) opts.add = &added;
    if (p.diff_bias) bias_gradient = t.outputs.back().where.tensor();
    if (p.diff_bias) opts.diff_bias = &bias_gradient;
    const auto out = [&](std::size_t i) { return t.outputs[i].where.tensor(); };
    switch (p.what) {
    case gradient::none:
        (p.transposed ? conv_transpose : convolution)(t.src.tensor(), t.weights.tensor(),
            p.bias ? t.bias.tensor() : tensor(), out(0), attrs.value, opts);
        break;
    case gradient::data:
        (p.transposed ? conv_transpose_backward_data : convolution_backward_data)(
            t.diff_dst.tensor(), t.weights.tensor(), out(0), attrs.value, opts);
        break;
    case gradient::weights:
        (p.transposed ? conv_transpose_backward_weights : convolution_backward_weights)(
            t.src.tensor(), t.diff_dst.tensor(), out(0), attrs.value, opts);
        break;
    case gradient::both:
        (p.transposed ? conv_transpose_backward : convolution_backward)(t.src.tensor(),
            t.diff_dst.tensor(), t.weights.tensor(), out(0), out(1), attrs.value, opts);
    }
    queue.wait();
}

/// With the library's own workspace, or ours: exactly as large as announced, full of garbage.
void execute(const convgrad::compiled_partition &ready, const convgrad::engine &on,
    const std::vector<convgrad::tensor> &inputs, const std::vector<convgrad::tensor> &outputs,
    draw &random) {
    const std::size_t size = ready.workspace_size();
    if (size > on.workspace_limit())
        throw std::runtime_error("the workspace is larger than its limit");
    const convgrad::stream queue(on);
    if (random.percent(50)) {
        ready.execute(queue, inputs, outputs);
        queue.wait();
        return;
    }
    constexpr std::size_t guard = 64;
    const std::size_t rounded_up = (size + 2 * guard - 1) / 64 * 64 + 64;
    const std::unique_ptr<std::uint8_t, void (*)(void *)> own(
        static_cast<std::uint8_t *>(std::aligned_alloc(64, rounded_up)), std::free);
    std::fill(own.get(), own.get() + rounded_up, std::uint8_t{0xff});
    ready.execute(queue, inputs, outputs, own.get());
    queue.wait();
    for (std::size_t i = size; i < rounded_up; ++i)
        if (own.get()[i] != 0xff) throw std::runtime_error("written behind the workspace");
}

void call_compiled(trial &t, const convgrad::engine &on, draw &random) {
    using namespace convgrad;
    const problem &p = t.p;
    const eager_attributes attrs(p, random);
    const compile_options opts{.accumulate = p.accumulate,
        .diff_bias = p.diff_bias && p.what == gradient::weights,
        .relu = p.relu,
        .add = p.add,
        .on = &on};
    std::vector<logical_tensor> inputs, outputs;
    std::vector<tensor> in, out;
    for (memory *m : t.inputs()) {
        inputs.push_back(m->described(inputs.size()));
        in.push_back(m->tensor());
    }
    for (output &o : t.outputs) {
        outputs.push_back(o.where.described(10 + outputs.size()));
        out.push_back(o.where.tensor());
    }
    const compiled_partition ready =
        p.what == gradient::both
            ? compile_backward(p.transposed ? op_kind::conv_transpose : op_kind::convolution,
                inputs, outputs, attrs.value, opts)
            : compile(p.kind(), inputs, outputs, attrs.value, opts);
    execute(ready, on, in, out, random);
}

/// Where the shape of a gradient comes from, in a graph.
enum class shape_source { output, attribute, constant, tensor };

class graph_call {
public:
    graph_call(trial &t, const convgrad::engine &on, draw &random)
        : t_(t), p_(t.p), on_(on), random_(random) {}

    void run() {
        using namespace convgrad;
        graph g;
        std::size_t next = 0;
        const bool vague = random_.percent(25);  // shapes are told when compiling only
        if (p_.what == gradient::both) {
            problem one = p_;
            one.what = gradient::data;
            g.add(make_op(one, 1, {&t_.diff_dst, &t_.weights}, {&t_.outputs[next++].where}, vague));
            one.what = gradient::weights;
            std::vector<memory *> out = {&t_.outputs[next++].where};
            if (p_.diff_bias) out.push_back(&t_.outputs[next].where);
            g.add(make_op(one, 2, {&t_.src, &t_.diff_dst}, out, vague));
        } else {
            std::vector<memory *> out;
            for (output &o : t_.outputs) out.push_back(&o.where);
            g.add(make_op(p_, 1, t_.inputs(), out, vague));
        }
        g.finalize();
        const auto partitions = g.partitions();
        if (partitions.size() != 1) throw std::runtime_error("not one partition");
        execute(partitions[0].compile(inputs_, outputs_, on_), on_, in_, out_, random_);
    }

private:
    std::size_t id_of(const memory *m) {
        for (std::size_t i = 0; i < seen_.size(); ++i)
            if (seen_[i] == m) return i + 1;
        seen_.push_back(m);
        return seen_.size();
    }

    /// As the graph knows the tensor: in full, or with some dimensions left open.
    logical_tensor vaguely(const memory &m, bool vague) {
        logical_tensor lt = m.described(id_of(&m));
        if (!vague) return lt;
        lt.strides.clear();
        if (random_.percent(30)) {
            lt.shape.reset();
            return lt;
        }
        for (dim &d : *lt.shape)
            if (random_.percent(40)) d = convgrad::unknown_dim;
        return lt;
    }

    void take_input(memory &m) {
        const std::size_t id = id_of(&m);
        for (const logical_tensor &lt : inputs_)
            if (lt.id == id) return;
        inputs_.push_back(m.described(id));
        in_.push_back(m.tensor());
    }

    convgrad::op make_op(const problem &p, std::size_t id, const std::vector<memory *> &in,
        const std::vector<memory *> &out, bool vague) {
        convgrad::op node(id, p.kind(), "hunted");
        node.set("strides", p.list(&axis::stride)).set("dilations", p.list(&axis::dilation));
        const dims begin = pads(p, &axis::pad_begin, random_),
                   end = pads(p, &axis::pad_end, random_);
        if (!begin.empty()) node.set("pads_begin", begin);
        if (!end.empty()) node.set("pads_end", end);
        node.set("auto_pad", p.auto_pad).set("groups", p.groups);
        node.set("data_format", p.data_format()).set("weights_format", p.weights_format());
        if (p.has_output_padding()) node.set("output_padding", p.list(&axis::output_padding));
        if (p.accumulate) node.set("accumulate", 1);
        for (memory *m : in) {
            node.add_input(vaguely(*m, vague));
            take_input(*m);
        }
        const shape_source source = shape_of(p, out[0]->shape());
        if (source != shape_source::output) give_shape(node, source, out[0]->shape(), p);
        for (std::size_t i = 0; i < out.size(); ++i) {
            const std::size_t output_id = id_of(out[i]);
            const bool open =
                (i == 0 && source != shape_source::output) || p.what == gradient::none;
            node.add_output(open && random_.percent(50) ? logical_tensor(output_id, out[i]->type())
                                                        : out[i]->described(output_id));
            outputs_.push_back(out[i]->described(output_id));
            out_.push_back(out[i]->tensor());
        }
        return node;
    }

    shape_source shape_of(const problem &p, const dims &shape) {
        const bool takes =
            p.what == gradient::weights || (p.what == gradient::data && !p.transposed);
        for (dim d : shape)
            if (d == 0) return shape_source::output;  // the attribute must be positive
        return takes ? static_cast<shape_source>(random_.between(0, 3)) : shape_source::output;
    }

    void give_shape(convgrad::op &node, shape_source source, const dims &shape, const problem &p) {
        if (source == shape_source::attribute) {
            node.set(p.what == gradient::data ? "dst_shape" : "weights_shape", shape);
            return;
        }
        const std::size_t id = 100 + node.id();
        logical_tensor lt(id, data_type::s32, {static_cast<dim>(shape.size())});
        if (source == shape_source::constant) lt = logical_tensor::constant(id, shape);
        node.add_input(lt);
        inputs_.push_back(lt);
        shapes_.push_back(std::make_unique<std::vector<std::int32_t>>(shape.begin(), shape.end()));
        in_.emplace_back(
            shapes_.back()->data(), convgrad::data_type::s32, dims{static_cast<dim>(shape.size())});
    }

    trial &t_;
    const problem &p_;
    const convgrad::engine &on_;
    draw &random_;
    std::vector<const memory *> seen_;
    std::vector<logical_tensor> inputs_, outputs_;
    std::vector<convgrad::tensor> in_, out_;
    std::vector<std::unique_ptr<std::vector<std::int32_t>>> shapes_;
};

}  // namespace

std::string complaint_of_inference(const problem &p, draw &random) {
    const bool told = p.what == gradient::data && !p.transposed;  // the shape is not inferred
    if (p.what == gradient::weights || p.what == gradient::both || told) return {};
    // Without output channels, (IC/G, 0) may also be read as (IC, 0/G).
    if (p.second_form && p.large_c == 0 && p.small_per_group() % p.groups == 0) return {};
    const bool to_small = p.transposed == (p.what == gradient::data);
    const dims from = to_small ? p.large_shape() : p.small_shape(),
               to = to_small ? p.small_shape() : p.large_shape();
    try {
        const eager_attributes attrs(p, random);
        const dims found = convgrad::infer_shape(p.kind(), from, p.weights_shape(), attrs.value);
        return found == to ? "" : "another shape";
    } catch (const std::exception &e) {
        return std::string("refused: ") + e.what();
    }
}

bool can_take(path way, const problem &p) {
    if (way == path::graph) return !p.relu && !p.add;
    if (way == path::drop_in) return !p.accumulate && !p.f32_bias;
    return true;
}

void call(path way, trial &t, const convgrad::engine &on, draw &random) {
    switch (way) {
    case path::eager:
        return call_eager(t, on, random);
    case path::compiled:
        return call_compiled(t, on, random);
    case path::graph:
        return graph_call(t, on, random).run();
    case path::drop_in:
        return call_drop_in(t, random);
    }
}

}  // namespace hunt

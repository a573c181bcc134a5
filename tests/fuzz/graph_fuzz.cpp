// Graphs: a layer's ops with garbage strewn in, added, finalized, partitioned, compiled and run.
// Whatever is asked, the answer is a result or a convgrad::error.
#include <algorithm>

#include <convgrad/graph.hpp>

#include "fuzz/layer.hpp"

namespace convgrad::fuzz {
namespace {

enum tensor_id : std::size_t { src_id, weights_id, dst_id, diff_src_id, diff_weights_id, extra_id };

logical_tensor describe(input &in, std::size_t id, const layer &l, const dims &shape) {
    logical_tensor t(id, l.type, shape);
    if (!in.chance(4)) return t;
    switch (in.byte() % 8) {
    case 0:
        t.shape.reset();
        break;
    case 1:
        spoil(in, *t.shape);
        break;
    case 2:
        t.strides = in.numbers(shape.size());
        break;
    case 3:  // gaps after every axis
        t.strides = dims(shape.size());
        for (std::size_t i = shape.size(), step = 1; i-- > 0;) {
            t.strides[i] = static_cast<dim>(step);
            step = step * static_cast<std::size_t>(std::clamp<dim>(shape[i], 1, 4096)) + 1;
        }
        break;
    case 4:
        if (!t.shape->empty()) (*t.shape)[in.byte() % t.shape->size()] = unknown_dim;
        break;
    case 5:
        t.type = static_cast<data_type>(in.byte() % 7);
        break;
    case 6:
        t.id = in.byte() % 8;
        break;
    default:
        t.value = in.numbers(in.byte() % 6);
    }
    return t;
}

attribute_value draw_value(input &in) {
    switch (in.byte() % 5) {
    case 0:
        return in.number();
    case 1:
        return in.numbers(in.byte() % 6);
    case 2:
        return in.text(12);
    case 3:
        return 1.5F;
    default:
        return in.chance(2);
    }
}

void set_attributes(input &in, op &node, const layer &l, int which) {
    const attributes &a = l.attrs;
    node.set("strides", a.strides).set("dilations", a.dilations);
    node.set("pads_begin", a.pads_begin).set("pads_end", a.pads_end);
    node.set("auto_pad", l.auto_pad.c_str()).set("groups", a.groups);
    node.set("data_format", l.data_format.c_str());
    node.set("weights_format", l.weights_format.c_str());
    if (!a.output_padding.empty() && !in.chance(4)) node.set("output_padding", a.output_padding);
    if (which > 0 && in.chance(4)) node.set("accumulate", 1);
    if (which == 2 && in.chance(2)) node.set("weights_shape", l.weights);
    if (which == 1 && in.chance(4)) node.set("dst_shape", l.src);
    if (in.chance(8)) {
        static constexpr const char *names[] = {"strides", "dilations", "pads_begin", "pads_end",
            "auto_pad", "groups", "data_format", "weights_format", "output_padding", "dst_shape",
            "weights_shape", "accumulate"};
        const std::string name = in.chance(4) ? in.text(20) : in.pick(names);
        node.set(name, draw_value(in));
    }
}

op draw_op(input &in, const layer &l, std::size_t id) {
    const int which = in.byte() % 3;
    op node(id, l.kind(which), in.text(4));
    set_attributes(in, node, l, which);
    const auto add_input = [&](std::size_t tensor, const dims &shape) {
        node.add_input(describe(in, tensor, l, shape));
    };
    if (which == 1)
        add_input(dst_id, l.dst);
    else
        add_input(src_id, l.src);
    if (which == 2)
        add_input(dst_id, l.dst);
    else
        add_input(weights_id, l.weights);
    const dims &made = which == 0 ? l.dst : which == 1 ? l.src : l.weights;
    if (in.chance(3)) {
        if (which == 0)
            add_input(extra_id, {l.channels_out});
        else if (in.chance(2))
            node.add_input(logical_tensor::constant(extra_id, made));
        else
            node.add_input(
                logical_tensor(extra_id, data_type::s32, {static_cast<dim>(made.size())}));
    }
    // Chains: the output of one op is the input of another.
    const std::size_t output =
        in.chance(6) ? in.byte() % 8
                     : (which == 0 ? std::size_t{dst_id} : diff_src_id + std::size_t(which) - 1);
    node.add_output(describe(in, output, l, made));
    if (which == 2 && in.chance(3)) node.add_output(describe(in, 7, l, {l.channels_out}));
    return node;
}

void execute(input &in, const compiled_partition &compiled, const engine &on) {
    tensor_memory memory;
    std::vector<tensor> inputs, outputs;
    for (const logical_tensor &t : compiled.inputs()) inputs.push_back(memory.make(t));
    for (const logical_tensor &t : compiled.outputs()) outputs.push_back(memory.make(t));
    if (memory.has_refused() || memory.work() > most_work) return;
    if (in.chance(8) && !inputs.empty()) inputs[in.byte() % inputs.size()].data = nullptr;
    if (in.chance(8) && !inputs.empty()) inputs.pop_back();
    if (in.chance(8) && !outputs.empty()) outputs.push_back(outputs.back());
    succeeds([&] { compiled.execute(stream(on), inputs, outputs); });
}

void compile(input &in, const partition &part) {
    const engine &on = draw_engine(in);
    std::vector<logical_tensor> inputs = part.inputs(), outputs = part.outputs();
    if (in.chance(4) && !inputs.empty()) {
        logical_tensor &t = inputs[in.byte() % inputs.size()];
        if (t.shape) spoil(in, *t.shape);
    }
    if (in.chance(4)) inputs.resize(inputs.size() / 2);
    if (in.chance(4) && !outputs.empty()) outputs[0].strides = in.numbers(in.byte() % 6);
    succeeds([&] {
        const compiled_partition compiled =
            in.chance(4) ? part.compile(on) : part.compile(inputs, outputs, on);
        require(!compiled.describe().empty(), "no description");
        succeeds([&] { static_cast<void>(compiled.query(in.byte() % 10)); });
        execute(in, compiled, on);
    });
}

void run(input &in) {
    layer l;
    draw_layer(in, l);
    while (in.chance(4)) spoil(in, l);
    graph g;
    const auto count = static_cast<std::size_t>(in.between(1, 4));
    for (std::size_t i = 0; i < count; ++i)
        succeeds([&] { g.add(draw_op(in, l, in.chance(8) ? 0 : i)); });
    // A graph that is refused may drop an op.
    if (in.chance(2) && !succeeds([&] { g.finalize(); }))
        succeeds([&] { g.remove(in.byte() % count); });
    succeeds([&] {
        if (!in.chance(16)) g.finalize();
        for (const partition &part : g.partitions()) {
            require(!part.ops().empty(), "a partition without ops");
            compile(in, part);
        }
    });
    if (in.chance(2)) succeeds([&] { static_cast<void>(op_kind_from_name(in.text(40))); });
}

}  // namespace
}  // namespace convgrad::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    convgrad::fuzz::input in(data, size);
    convgrad::fuzz::run(in);
    return 0;
}

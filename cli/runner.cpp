#include "runner.hpp"

#include <convgrad/eager.hpp>

#include "cpu/backend.hpp"
#include "engine/engine.hpp"

namespace convgrad::cli {
namespace {

/// The attributes of an op as a struct, for calls that have more than a graph's ops.
attributes attributes_of(const op &node) {
    const auto &all = node.attributes();
    const auto list = [&](std::string_view name) {
        const auto found = all.find(std::string(name));
        return found == all.end() ? dims{} : std::get<dims>(found->second);
    };
    attributes a;
    a.strides = list("strides");
    a.dilations = list("dilations");
    a.pads_begin = list("pads_begin");
    a.pads_end = list("pads_end");
    a.output_padding = list("output_padding");
    a.groups = std::get<std::int64_t>(all.at("groups"));
    a.data_format = std::get<std::string>(all.at("data_format"));
    a.weights_format = std::get<std::string>(all.at("weights_format"));
    return a;
}

compiled_partition compile(const op_call &call, const engine &on) {
    if (call.problem.add) {  // after the op's own inputs
        std::vector<logical_tensor> inputs = call.node.inputs();
        inputs.push_back(call.node.outputs()[0]);
        inputs.back().id = inputs.size() + 10;
        return convgrad::compile(call.node.kind(), inputs, call.node.outputs(),
            attributes_of(call.node), {.add = true, .on = &on});
    }
    graph g;
    g.add(call.node);
    g.finalize();
    return g.partitions().at(0).compile(on);
}

}  // namespace

conv::buffers fill_tensors(const op_call &call, tensor_store &store, const filling &with) {
    conv::buffers data;
    const data_type type = call.problem.type;
    void **slots[] = {&data.src, &data.weights, &data.dst, &data.bias};
    for (role which : call.inputs)
        *slots[static_cast<std::size_t>(which)] =
            store.input(which, type, call.elements_of(which), with);
    if (call.problem.bias) data.bias = store.bias(type, call.bias_elements, with);
    *slots[static_cast<std::size_t>(call.output)] =
        store.output(call.problem.out_type, call.elements_of(call.output));
    return data;
}

runner::runner(const op_call &call, const conv::buffers &data, const engine &on)
    : compiled_(compile(call, on)), on_(on) {
    void *const slots[] = {data.src, data.weights, data.dst, data.bias};
    for (std::size_t i = 0; i < compiled_.inputs().size(); ++i) {
        const logical_tensor &t = compiled_.inputs()[i];
        void *memory =
            i < call.inputs.size() ? slots[static_cast<std::size_t>(call.inputs[i])] : data.bias;
        if (call.problem.add && i + 1 == compiled_.inputs().size())
            memory = const_cast<void *>(data.add);
        inputs_.emplace_back(memory, t.type, *t.shape, t.strides);
    }
    for (std::size_t i = 0; i < compiled_.outputs().size(); ++i) {
        const logical_tensor &t = compiled_.outputs()[i];
        void *memory = i == 0 ? slots[static_cast<std::size_t>(call.output)] : data.bias;
        outputs_.emplace_back(memory, t.type, *t.shape, t.strides);
    }
}

void runner::execute() const {
    compiled_.execute(on_, inputs_, outputs_);
}

std::unique_ptr<const cpu::plan> plan_of(
    const op_call &call, const engine &on, std::vector<engines::verdict> *refusals) {
    return cpu::make_plan(call.problem, cpu::backend_of(on).limits(on.get().limits()), refusals);
}

}  // namespace convgrad::cli

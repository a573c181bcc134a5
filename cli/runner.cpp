#include "runner.hpp"

#include <chrono>

#include <convgrad/eager.hpp>

#include "cpu/backend.hpp"
#include "cuda/load.hpp"
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

/// From a tensor's first element to behind its last, what lies between them included.
std::size_t bytes_spanned(const logical_tensor &t) {
    dim packed = 1, last = 0;
    for (std::size_t i = t.shape->size(); i-- > 0;) {
        const dim length = (*t.shape)[i];
        if (length == 0) return 0;
        last += (length - 1) * (t.strides.empty() ? packed : t.strides[i]);
        packed *= length;
    }
    return static_cast<std::size_t>(last + 1) * size_of(t.type);
}

/// Of work that is put on a stream: by the device's clock, or on a CPU by the host's.
template <typename Work>
double seconds_of(const stream &on, bool by_device, const Work &work) {
    if (!by_device) {
        const auto start = std::chrono::steady_clock::now();
        work();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    const auto call = [](void *context) { (*static_cast<const Work *>(context))(); };
    return cuda::tools().seconds(on.get(), call, const_cast<Work *>(&work));
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
    if (on.kind() == engine_kind::cuda)
        there_ = std::make_unique<device_memory>(on.get().backend->facts().device);
    const auto place = [&](void *memory, const logical_tensor &t) {
        return there_ != nullptr ? there_->copy_of(memory, bytes_spanned(t)) : memory;
    };
    void *const slots[] = {data.src, data.weights, data.dst, data.bias};
    for (std::size_t i = 0; i < compiled_.inputs().size(); ++i) {
        const logical_tensor &t = compiled_.inputs()[i];
        void *memory =
            i < call.inputs.size() ? slots[static_cast<std::size_t>(call.inputs[i])] : data.bias;
        if (call.problem.add && i + 1 == compiled_.inputs().size())
            memory = const_cast<void *>(data.add);
        inputs_.emplace_back(place(memory, t), t.type, *t.shape, t.strides);
    }
    for (std::size_t i = 0; i < compiled_.outputs().size(); ++i) {
        const logical_tensor &t = compiled_.outputs()[i];
        void *memory = i == 0 ? slots[static_cast<std::size_t>(call.output)] : data.bias;
        results_.push_back(memory);
        outputs_.emplace_back(place(memory, t), t.type, *t.shape, t.strides);
    }
}

void runner::execute() const {
    compiled_.execute(on_, inputs_, outputs_);
    on_.wait();
}

void runner::fetch() const {
    if (there_ == nullptr) return;
    for (void *result : results_) there_->fetch(result);
}

double runner::seconds() const {
    return seconds_of(on_, there_ != nullptr, [&] { compiled_.execute(on_, inputs_, outputs_); });
}

plan_timer::plan_timer(const op_call &call, const conv::buffers &data, const engine &on)
    : on_(on), data_(data) {
    if (on.kind() != engine_kind::cuda) return;
    there_ = std::make_unique<device_memory>(on.get().backend->facts().device);
    void **const slots[] = {&data_.src, &data_.weights, &data_.dst, &data_.bias};
    for (std::size_t i = 0; i < std::size(slots); ++i) {
        const bool result = static_cast<std::size_t>(call.output) == i;
        *slots[i] = there_->copy_of(
            *slots[i], static_cast<std::size_t>(call.elements[i])
                           * size_of(result ? call.problem.out_type : call.problem.type));
    }
}

double plan_timer::seconds(const engines::plan &plan) const {
    const engines::scratch_lease room(on_.get(), plan.workspace());
    return seconds_of(on_, there_ != nullptr, [&] {
        plan.execute({&data_, 1}, room.data(), on_.get());
    });
}

std::unique_ptr<const engines::plan> any_plan_of(
    const op_call &call, const engine &on, std::vector<engines::verdict> *refusals) {
    return on.get().backend->make_plan(call.problem, on.get().limits(), refusals);
}

std::unique_ptr<const cpu::plan> plan_of(
    const op_call &call, const engine &on, std::vector<engines::verdict> *refusals) {
    return cpu::make_plan(call.problem, cpu::backend_of(on).limits(on.get().limits()), refusals);
}

}  // namespace convgrad::cli

#include "cuda/cudnn_graph.hpp"

#include <algorithm>
#include <array>

#include "cuda/general.hpp"

namespace convgrad::cuda {
namespace {

using conv::pass;
using conv::problem;

constexpr std::int64_t alignment = 16;  // bytes, that tensors start at

struct lengths_and_strides {
    std::vector<std::int64_t> lengths, strides;
};

cudnn_element element_for(data_type type) {
    return type == data_type::f32    ? cudnn_element::f32
           : type == data_type::bf16 ? cudnn_element::bf16
                                     : cudnn_element::f16;
}

/// Axes that cuDNN is told of: it has kernels for two and three.
std::size_t first_axis(const problem &p) {
    return p.x[0] == conv::axis{} ? 1 : 0;
}

/// Dense, channels after images (or output channels after input channels) or last.
lengths_and_strides dense(std::vector<std::int64_t> lengths, bool channels_last) {
    std::vector<std::int64_t> strides(lengths.size());
    std::int64_t next = 1;
    if (channels_last) {
        strides[1] = next;
        next *= lengths[1];
    }
    for (std::size_t d = lengths.size(); d-- > 2;) {
        strides[d] = next;
        next *= lengths[d];
    }
    if (!channels_last) {
        strides[1] = next;
        next *= lengths[1];
    }
    strides[0] = next;
    return {std::move(lengths), std::move(strides)};
}

lengths_and_strides data_form(const problem &p, bool is_src, bool channels_last) {
    std::vector<std::int64_t> lengths = {p.mb, p.groups * (is_src ? p.ic : p.oc)};
    for (std::size_t d = first_axis(p); d < 3; ++d)
        lengths.push_back(is_src ? p.x[d].src : p.x[d].dst);
    return dense(std::move(lengths), channels_last);
}

lengths_and_strides weights_form(const problem &p, bool channels_last) {
    std::vector<std::int64_t> lengths = {p.groups * p.oc, p.ic};
    for (std::size_t d = first_axis(p); d < 3; ++d) lengths.push_back(p.x[d].kernel);
    return dense(std::move(lengths), channels_last);
}

bool describe(
    cudnn_object &made, cudnn_tensor_id id, data_type type, const lengths_and_strides &s) {
    const cudnn_element element = element_for(type);
    const auto rank = static_cast<std::int64_t>(s.lengths.size());
    made = cudnn_object(cudnn_kind::tensor);
    return made.set(cudnn_attribute::tensor_type, cudnn_type::data_type, 1, &element)
           && made.set(cudnn_attribute::tensor_lengths, cudnn_type::int64, rank, s.lengths.data())
           && made.set(cudnn_attribute::tensor_strides, cudnn_type::int64, rank, s.strides.data())
           && made.set(cudnn_attribute::tensor_id, cudnn_type::int64, 1, &id)
           && made.set(cudnn_attribute::tensor_alignment, cudnn_type::int64, 1, &alignment)
           && made.finalize();
}

/// Sums in f32.
bool describe_convolution(cudnn_object &made, const problem &p) {
    std::vector<std::int64_t> strides, dilations, begin, end;
    for (std::size_t d = first_axis(p); d < 3; ++d) {
        const conv::axis &a = p.x[d];
        strides.push_back(a.stride);
        dilations.push_back(a.dilation);
        begin.push_back(a.pad);
        end.push_back(std::max<dim>(0, end_pad(a)));
    }
    const auto axes = static_cast<std::int64_t>(strides.size());
    const cudnn_element sums = cudnn_element::f32;
    made = cudnn_object(cudnn_kind::convolution);
    const auto list = [&](cudnn_attribute of, const std::vector<std::int64_t> &values) {
        return made.set(of, cudnn_type::int64, axes, values.data());
    };
    return made.set(cudnn_attribute::convolution_axes, cudnn_type::int64, 1, &axes)
           && made.set(cudnn_attribute::convolution_sums, cudnn_type::data_type, 1, &sums)
           && made.set(cudnn_attribute::convolution_mode, cudnn_type::convolution_mode, 1,
               &cudnn_cross_correlation)
           && list(cudnn_attribute::convolution_strides, strides)
           && list(cudnn_attribute::convolution_dilations, dilations)
           && list(cudnn_attribute::convolution_pads_begin, begin)
           && list(cudnn_attribute::convolution_pads_end, end) && made.finalize();
}

/// The operation of a pass. Attributes of all three follow each other in the same order, its
/// tensors as weights, src, dst.
struct operation_form {
    cudnn_kind kind;
    int first;  // of its attributes, beyond those of the forward pass
};
operation_form form_of(pass what) {
    return what == pass::forward ? operation_form{cudnn_kind::operation_forward, 0}
           : what == pass::backward_data
               ? operation_form{cudnn_kind::operation_backward_data, 6}
               : operation_form{cudnn_kind::operation_backward_weights, 12};
}

}  // namespace

cudnn_object::cudnn_object(cudnn_kind kind) {
    if (the_cudnn().cudnnBackendCreateDescriptor(kind, &made_) != cudnn_status::success)
        made_ = nullptr;
}

cudnn_object::~cudnn_object() {
    if (made_ != nullptr) the_cudnn().cudnnBackendDestroyDescriptor(made_);
}

bool cudnn_object::set(
    cudnn_attribute of, cudnn_type type, std::int64_t count, const void *values) {
    return made_ != nullptr
           && the_cudnn().cudnnBackendSetAttribute(made_, of, type, count, values)
                  == cudnn_status::success;
}

bool cudnn_object::set(cudnn_attribute of, const cudnn_object &value) {
    return set(of, cudnn_type::descriptor, 1, &value.made_);
}

bool cudnn_object::finalize() {
    return made_ != nullptr && the_cudnn().cudnnBackendFinalize(made_) == cudnn_status::success;
}

std::int64_t cudnn_object::read(
    cudnn_attribute of, cudnn_type type, std::int64_t room, void *values) const {
    std::int64_t count = 0;
    if (made_ == nullptr
        || the_cudnn().cudnnBackendGetAttribute(made_, of, type, room, &count, values)
               != cudnn_status::success)
        return 0;
    return count;
}

bool cudnn_engine::has(cudnn_note note) const {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
}

cudnn_operation::cudnn_operation(
    const problem &p, bool channels_last, data_type weights_type, cudnn_handle handle) {
    using enum cudnn_tensor_id;
    if (!describe(src_, src, p.type, data_form(p, true, channels_last))
        || !describe(dst_, dst, p.type, data_form(p, false, channels_last))
        || !describe(weights_, weights, weights_type, weights_form(p, channels_last))
        || !describe_convolution(convolution_, p))
        return;
    const operation_form form = form_of(p.what);
    operation_ = cudnn_object(form.kind);
    const auto attribute = [&](cudnn_attribute of) {
        return static_cast<cudnn_attribute>(static_cast<int>(of) + form.first);
    };
    const float alpha = 1, beta = 0;
    const bool taken =
        operation_.set(attribute(cudnn_attribute::operation_alpha), cudnn_type::f32, 1, &alpha)
        && operation_.set(attribute(cudnn_attribute::operation_beta), cudnn_type::f32, 1, &beta)
        && operation_.set(attribute(cudnn_attribute::operation_convolution), convolution_)
        && operation_.set(attribute(cudnn_attribute::operation_weights), weights_)
        && operation_.set(attribute(cudnn_attribute::operation_src), src_)
        && operation_.set(attribute(cudnn_attribute::operation_dst), dst_);
    graph_ = cudnn_object(cudnn_kind::operation_graph);
    known_ = taken && operation_.finalize()
             && graph_.set(cudnn_attribute::graph_operations, operation_)
             && graph_.set(cudnn_attribute::graph_handle, cudnn_type::handle, 1, &handle)
             && graph_.finalize();
}

std::vector<cudnn_engine> cudnn_operation::engines() const {
    cudnn_object asked(cudnn_kind::heuristics);
    if (!known_ || !asked.set(cudnn_attribute::heuristics_graph, graph_)
        || !asked.set(
            cudnn_attribute::heuristics_mode, cudnn_type::heuristics_mode, 1, &cudnn_heuristics_a)
        || !asked.finalize())
        return {};
    std::vector<cudnn_engine> found(static_cast<std::size_t>(
        asked.read(cudnn_attribute::heuristics_results, cudnn_type::descriptor, 0, nullptr)));
    std::vector<cudnn_descriptor> rooms;
    for (cudnn_engine &e : found) {
        e.configuration = cudnn_object(cudnn_kind::engine_configuration);
        rooms.push_back(e.configuration.get());
    }
    const std::int64_t count = asked.read(cudnn_attribute::heuristics_results,
        cudnn_type::descriptor, static_cast<std::int64_t>(rooms.size()), rooms.data());
    found.resize(
        std::min(found.size(), static_cast<std::size_t>(std::max<std::int64_t>(0, count))));
    for (cudnn_engine &e : found) {
        const cudnn_object engine(cudnn_kind::engine);
        cudnn_descriptor room = engine.get();
        e.configuration.read(
            cudnn_attribute::configuration_engine, cudnn_type::descriptor, 1, &room);
        engine.read(cudnn_attribute::engine_number, cudnn_type::int64, 1, &e.number);
        e.notes.resize(static_cast<std::size_t>(cudnn_note::count));
        e.notes.resize(static_cast<std::size_t>(
            engine.read(cudnn_attribute::engine_numerical_notes, cudnn_type::numerical_note,
                static_cast<std::int64_t>(cudnn_note::count), e.notes.data())));
    }
    return found;
}

cudnn_execution::cudnn_execution(const cudnn_engine &by, cudnn_handle handle)
    : plan_(cudnn_kind::execution_plan) {
    std::int64_t bytes = 0;
    ready_ = plan_.set(cudnn_attribute::plan_handle, cudnn_type::handle, 1, &handle)
             && plan_.set(cudnn_attribute::plan_configuration, by.configuration) && plan_.finalize()
             && plan_.read(cudnn_attribute::plan_workspace, cudnn_type::int64, 1, &bytes) == 1
             && bytes >= 0;
    workspace_ = ready_ ? static_cast<std::size_t>(bytes) : 0;
}

cudnn_status cudnn_execution::run(
    const conv::buffers &data, void *workspace, cudnn_handle handle) const {
    using enum cudnn_tensor_id;
    const cudnn_tensor_id ids[] = {src, weights, dst};
    const void *const pointers[] = {data.src, data.weights, data.dst};
    cudnn_object pack(cudnn_kind::variant_pack);
    if (!pack.set(cudnn_attribute::pack_pointers, cudnn_type::pointer, 3, pointers)
        || !pack.set(cudnn_attribute::pack_ids, cudnn_type::int64, 3, ids)
        || !pack.set(cudnn_attribute::pack_workspace, cudnn_type::pointer, 1, &workspace)
        || !pack.finalize())
        return cudnn_status::bad_parameter;
    return the_cudnn().cudnnBackendExecute(handle, plan_.get(), pack.get());
}

}  // namespace convgrad::cuda

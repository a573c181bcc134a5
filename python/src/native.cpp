// The library for PyTorch's operators in C++: the table of convgrad/torch/_native/api.hpp.
#include "../convgrad/torch/_native/api.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>

#include <convgrad/eager.hpp>
#include <convgrad/error.hpp>

#include "bindings.hpp"
#include "cpu/batch_norm.hpp"

namespace convgrad::python {
namespace {

tensor tensor_of(const native::view &v) {
    return {v.data, static_cast<data_type>(v.type), dims(v.shape, v.shape + v.rank),
        dims(v.strides, v.strides + v.rank)};
}

tensor optional_tensor(const native::view *v) {
    return v == nullptr ? tensor{} : tensor_of(*v);
}

attributes attributes_of(const native::geometry &g) {
    const auto list = [&](const std::int64_t *values) { return dims(values, values + g.axes); };
    attributes made;
    made.strides = list(g.stride);
    made.pads_begin = list(g.pads_begin);
    made.pads_end = list(g.pads_end);
    made.dilations = list(g.dilation);
    made.groups = g.groups;
    made.data_format = data_format::ncx;
    made.weights_format = g.transposed ? weights_format::iox : weights_format::oix;
    if (g.transposed) made.output_padding = list(g.output_padding);
    return made;
}

/// Runs `work`; what it throws becomes a complaint.
template <typename Work>
bool reported(const native::complaint &report, Work &&work) noexcept {
    try {
        work();
        return true;
    } catch (const error &e) {
        report.tell(report.context, class_name_of(e.code()), e.what());
    } catch (const std::bad_alloc &) {
        report.tell(report.context, "OutOfMemory", "out of memory");
    }
    return false;
}

/// The engine of a device, made once; throws what making it throws.
const engine &engine_of(int device) {
    static std::mutex guard;
    static std::map<int, engine> made;
    const std::lock_guard lock(guard);
    const auto found = made.find(device);
    if (found != made.end()) return found->second;
    return made.emplace(device, engine({.kind = engine_kind::cuda, .device = device}))
        .first->second;
}

bool has_device(int device) {
    try {
        engine_of(device);
        return true;
    } catch (const error &e) {
        // PyTorch computes then; whoever asked for more than there is wants to know.
        if (std::getenv("CONVGRAD_CUDNN") != nullptr)
            std::fprintf(stderr, "convgrad: %s\n", e.what());
        return false;
    }
}

/// Tensors as they are compiled for.
std::vector<logical_tensor> logical(const std::vector<tensor> &tensors) {
    std::vector<logical_tensor> made;
    for (const tensor &t : tensors) made.emplace_back(made.size(), t.type, t.shape, t.strides);
    return made;
}

/// All that a plan depends on, as numbers.
class call_key {
public:
    call_key(op_kind kind, bool both, const native::queue &on, const std::vector<tensor> &inputs,
        const std::vector<tensor> &outputs, const native::geometry &where) {
        constexpr std::size_t usual = 96;
        numbers_.reserve(usual);
        numbers_ = {static_cast<std::int64_t>(kind), both ? 1 : 0, on.device, where.axes,
            where.groups, where.transposed ? 1 : 0, static_cast<std::int64_t>(inputs.size())};
        for (const auto *list :
            {where.stride, where.pads_begin, where.pads_end, where.dilation, where.output_padding})
            numbers_.insert(numbers_.end(), list, list + where.axes);
        for (const auto *tensors : {&inputs, &outputs})
            for (const tensor &t : *tensors) {
                numbers_.push_back(static_cast<std::int64_t>(t.type));
                numbers_.push_back(static_cast<std::int64_t>(t.shape.size()));
                numbers_.insert(numbers_.end(), t.shape.begin(), t.shape.end());
                numbers_.insert(numbers_.end(), t.strides.begin(), t.strides.end());
            }
    }
    bool operator==(const call_key &) const = default;

    struct hash {
        std::size_t operator()(const call_key &key) const noexcept {
            std::uint64_t mixed = 0;
            for (const std::int64_t n : key.numbers_) {
                mixed = (mixed ^ static_cast<std::uint64_t>(n)) * 0x9e3779b97f4a7c15U;
                mixed ^= mixed >> 32;
            }
            return static_cast<std::size_t>(mixed);
        }
    };

private:
    std::vector<std::int64_t> numbers_;
};

/// Plans of calls that were made before: a network makes the same ones in every step.
class plan_cache {
public:
    template <typename Make>
    compiled_partition get(const call_key &key, Make &&make) {
        {
            const std::lock_guard lock(guard_);
            const auto found = plans_.find(key);
            if (found != plans_.end()) return found->second;
        }
        const compiled_partition made = make();
        const std::lock_guard lock(guard_);
        if (plans_.size() >= most) plans_.clear();  // shapes that never come again
        plans_.emplace(key, made);
        return made;
    }

    /// Never destroyed: objects with static lifetime may still compute while the program ends.
    static plan_cache &shared() {
        static auto *const made = new plan_cache;
        return *made;
    }

private:
    static constexpr std::size_t most = 4096;
    std::mutex guard_;
    std::unordered_map<call_key, compiled_partition, call_key::hash> plans_;
};

/// Queues one op, or both gradients, with scratch from whoever owns the queue.
void run_queued(const native::queue &on, const compiled_partition &ready,
    const std::vector<tensor> &inputs, const std::vector<tensor> &outputs) {
    void *scratch = nullptr;
    if (const std::size_t bytes = ready.workspace_size(); bytes > 0) {
        scratch = on.take(on.context, bytes);
        if (scratch == nullptr)
            throw error(error_code::out_of_memory,
                "convolution: " + std::to_string(bytes) + " bytes of scratch cannot be had");
    }
    // The default stream, by the name that the driver has for it.
    constexpr std::uintptr_t legacy = 1;
    void *const native = on.stream != nullptr ? on.stream : reinterpret_cast<void *>(legacy);
    ready.execute(stream(engine_of(on.device), native), inputs, outputs, scratch);
}

/// `both`: kind is that of the layer, whose gradients are computed.
void queue_op(const native::queue &on, op_kind kind, bool both, const std::vector<tensor> &inputs,
    const std::vector<tensor> &outputs, const native::geometry &where, bool diff_bias) {
    const auto make = [&] {
        const compile_options opts{.diff_bias = diff_bias, .on = &engine_of(on.device)};
        const attributes attrs = attributes_of(where);
        return both ? compile_backward(kind, logical(inputs), logical(outputs), attrs, opts)
                    : compile(kind, logical(inputs), logical(outputs), attrs, opts);
    };
    const call_key key(kind, both, on, inputs, outputs, where);
    run_queued(on, plan_cache::shared().get(key, make), inputs, outputs);
}

void queue_forward(const native::queue &on, const native::view &input, const native::view &weight,
    const native::view *bias, const native::view &output, const native::geometry &where) {
    std::vector<tensor> inputs = {tensor_of(input), tensor_of(weight)};
    if (bias != nullptr) inputs.push_back(tensor_of(*bias));
    queue_op(on, where.transposed ? op_kind::conv_transpose : op_kind::convolution, false, inputs,
        {tensor_of(output)}, where, false);
}

void queue_backward(const native::queue &on, const native::view &grad, const native::view &input,
    const native::view &weight, const native::view *grad_input, const native::view *grad_weight,
    const native::view *grad_bias, const native::geometry &where) {
    std::vector<tensor> outputs;
    for (const native::view *made : {grad_input, grad_weight, grad_bias})
        if (made != nullptr) outputs.push_back(tensor_of(*made));
    if (grad_input != nullptr && grad_weight != nullptr) {
        const op_kind layer = where.transposed ? op_kind::conv_transpose : op_kind::convolution;
        queue_op(on, layer, true, {tensor_of(input), tensor_of(grad), tensor_of(weight)}, outputs,
            where, grad_bias != nullptr);
    } else if (grad_input != nullptr) {
        queue_op(on,
            where.transposed ? op_kind::conv_transpose_backward_data
                             : op_kind::convolution_backward_data,
            false, {tensor_of(grad), tensor_of(weight)}, outputs, where, false);
    } else if (grad_weight != nullptr) {
        queue_op(on,
            where.transposed ? op_kind::conv_transpose_backward_weights
                             : op_kind::convolution_backward_weights,
            false, {tensor_of(input), tensor_of(grad)}, outputs, where, grad_bias != nullptr);
    }
}

bool forward(const native::view &input, const native::view &weight, const native::view *bias,
    const native::view &output, const native::geometry &where, const native::queue *on,
    const native::complaint &report) {
    return reported(report, [&] {
        if (on != nullptr) return queue_forward(*on, input, weight, bias, output, where);
        const auto run = where.transposed ? conv_transpose : convolution;
        run(tensor_of(input), tensor_of(weight), optional_tensor(bias), tensor_of(output),
            attributes_of(where), {});
    });
}

bool backward(const native::view &grad, const native::view &input, const native::view &weight,
    const native::view *grad_input, const native::view *grad_weight, const native::view *grad_bias,
    const native::geometry &where, const native::queue *on, const native::complaint &report) {
    return reported(report, [&] {
        if (on != nullptr)
            return queue_backward(
                *on, grad, input, weight, grad_input, grad_weight, grad_bias, where);
        const attributes attrs = attributes_of(where);
        const tensor diff_dst = tensor_of(grad), diff_bias = optional_tensor(grad_bias);
        const options opts{.diff_bias = grad_bias != nullptr ? &diff_bias : nullptr};
        if (grad_input != nullptr && grad_weight != nullptr) {
            const auto both = where.transposed ? conv_transpose_backward : convolution_backward;
            both(tensor_of(input), diff_dst, tensor_of(weight), tensor_of(*grad_input),
                tensor_of(*grad_weight), attrs, opts);
        } else if (grad_input != nullptr) {
            const auto data =
                where.transposed ? conv_transpose_backward_data : convolution_backward_data;
            data(diff_dst, tensor_of(weight), tensor_of(*grad_input), attrs, {});
        } else if (grad_weight != nullptr) {
            const auto weights =
                where.transposed ? conv_transpose_backward_weights : convolution_backward_weights;
            weights(tensor_of(input), diff_dst, tensor_of(*grad_weight), attrs, opts);
        }
    });
}

bool check(const native::view &input, const native::view &weight, const native::geometry &where,
    const native::complaint &report) {
    return reported(report, [&] {
        (void)infer_shape(where.transposed ? op_kind::conv_transpose : op_kind::convolution,
            tensor_of(input).shape, tensor_of(weight).shape, attributes_of(where));
    });
}

cpu::batch_norm norm_of(const native::norm &what) {
    cpu::batch_norm made{static_cast<data_type>(what.type), what.channels_last, what.batch,
        what.channels, what.positions};
    if (what.bounds != nullptr) {
        made.clamped = true;
        made.low = what.bounds[0];
        made.high = what.bounds[1];
    }
    return made;
}

bool norm_forward(const native::norm &what, const void *input, double epsilon, void *output,
    float *mean, float *factor, float *variance, const native::complaint &report) {
    return reported(report, [&] {
        cpu::run(norm_of(what),
            cpu::norm_forward{
                input, {what.weight, what.bias}, epsilon, output, mean, factor, variance},
            default_engine());
    });
}

bool norm_backward(const native::norm &what, const void *grad, const void *input, const float *mean,
    const float *factor, void *grad_input, float *grad_weight, float *grad_bias,
    const native::complaint &report) {
    return reported(report, [&] {
        cpu::run(norm_of(what),
            cpu::norm_backward{input, grad, {what.weight, what.bias}, mean, factor, grad_input,
                grad_weight, grad_bias},
            default_engine());
    });
}

constexpr native::functions table{
    native::api_version, forward, backward, check, norm_forward, norm_backward, has_device};

}  // namespace

void bind_native(nb::module_ &m) {
    m.def("has_cuda_device", &has_device);
    m.attr("_native") = nb::capsule(&table, native::capsule_name);
}

}  // namespace convgrad::python

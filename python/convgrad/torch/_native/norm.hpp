// Batch normalisation of training steps on the CPU, for the modules around convolutions; optionally
// with bounds of its values (ReLU, ReLU6). Everything else is left to PyTorch.
#pragma once
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>

#include "call.hpp"
#include "node.hpp"

namespace convgrad::operators::norm {

namespace autograd = torch::autograd;

struct bounds {
    bool there = false;
    float values[2] = {};
};

inline at::MemoryFormat format_of_input(const Tensor &input) {
    return input.dim() > 3 ? input.suggest_memory_format() : at::MemoryFormat::Contiguous;
}

/// What the library is told of tensors that are dense in that format.
inline native::norm describe(const Tensor &input, at::MemoryFormat format, const Tensor &weight,
    const Tensor &bias, const bounds &limits) {
    const std::int64_t batch = input.size(0), channels = input.size(1);
    const std::int64_t all = batch * channels;
    return {type_of(input), format != at::MemoryFormat::Contiguous || input.dim() == 2, batch,
        channels, all == 0 ? 0 : input.numel() / all,
        weight.defined() ? weight.const_data_ptr<float>() : nullptr,
        bias.defined() ? bias.const_data_ptr<float>() : nullptr,
        limits.there ? limits.values : nullptr};
}

class node : public autograd::Node {
public:
    autograd::variable_list apply(autograd::variable_list &&grads) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!grads[0].defined()) return autograd::variable_list(3);
        const std::array<bool, 3> wanted = {task_should_compute_output(0),
            task_should_compute_output(1), task_should_compute_output(2)};
        const Tensor x = input.unpack(), w = weight.unpack(), b = bias.unpack();
        return c10::GradMode::is_enabled() ? differentiable(grads[0], x, w, b, wanted)
                                           : plain(grads[0], x, w, b, wanted);
    }
    void release_variables() override {
        const std::lock_guard<std::mutex> lock(mutex_);
        input.reset_data();
        weight.reset_data();
        bias.reset_data();
        mean.reset();
        factor.reset();
    }
    [[nodiscard]] std::string name() const override { return "ConvgradBatchNormBackward"; }

    autograd::SavedVariable input, weight, bias;
    Tensor mean, factor;
    bounds limits;  // set by bound()
    double epsilon = 0;

private:
    [[nodiscard]] autograd::variable_list plain(const Tensor &grad, const Tensor &in,
        const Tensor &w, const Tensor &b, const std::array<bool, 3> &wanted) const {
        const at::MemoryFormat format = format_of_input(in);
        const Tensor x = in.contiguous(format), dy = grad.contiguous(format);
        const auto made = [&](bool is, IntArrayRef shape, const Tensor &like) {
            return is ? empty(shape, like, at::MemoryFormat::Contiguous) : Tensor();
        };
        const Tensor for_input = wanted[0] ? empty(x.sizes(), x, format) : Tensor(),
                     for_weight = made(wanted[1], mean.sizes(), mean),
                     for_bias = made(wanted[2], mean.sizes(), mean);
        const auto data = [](const Tensor &t) { return t.defined() ? t.data_ptr() : nullptr; };
        const auto floats = [](const Tensor &t) {
            return t.defined() ? t.data_ptr<float>() : nullptr;
        };
        call(library->norm_backward, describe(x, format, w, b, limits), dy.const_data_ptr(),
            x.const_data_ptr(), mean.const_data_ptr<float>(), factor.const_data_ptr<float>(),
            data(for_input), floats(for_weight), floats(for_bias));
        return {for_input, for_weight, for_bias};
    }

    /// By PyTorch's own operators, whose gradients are known in turn.
    [[nodiscard]] autograd::variable_list differentiable(const Tensor &grad, const Tensor &x,
        const Tensor &w, const Tensor &b, const std::array<bool, 3> &wanted) const {
        Tensor dy = grad;
        if (limits.there) {
            const c10::NoGradGuard constant;
            const Tensor v =
                std::get<0>(at::native_batch_norm(x, w, b, {}, {}, true, 0.0, epsilon));
            const Tensor inside = at::logical_and(v > limits.values[0], v < limits.values[1]);
            const c10::AutoGradMode on(true);
            dy = grad * inside;
        }
        auto [for_input, for_weight, for_bias] =
            at::native_batch_norm_backward(dy, x, w, {}, {}, mean, factor, true, epsilon, wanted);
        return {for_input, for_weight, for_bias};
    }
};

/// running ← (1 − share) · running + share · now.
inline void move_towards(const Tensor &running, const Tensor &now, double scale, double share) {
    if (!running.defined()) return;
    auto *to = running.data_ptr<float>();
    const auto *from = now.const_data_ptr<float>();
    for (std::int64_t c = 0; c < now.numel(); ++c)
        to[c] = static_cast<float>((1 - share) * double{to[c]} + share * (double{from[c]} * scale));
    running.unsafeGetTensorImpl()->bump_version();
}

struct arguments {
    Tensor input, weight, bias, running_mean, running_var;
    double share = 0, epsilon = 0;
};

inline bool is_vector(const Tensor &t, std::int64_t length) {
    return !t.defined()
           || (t.is_cpu() && t.scalar_type() == at::kFloat && t.dim() == 1 && t.size(0) == length
               && t.is_contiguous());
}

/// Whether it is computed here.
inline bool is_ours(const arguments &a) {
    const Tensor &x = a.input;
    if (!x.is_cpu() || type_of(x) == 0 || x.layout() != at::kStrided || x.dim() < 2 || x.is_neg()
        || at::isTensorSubclassLike(x) || x.size(1) == 0 || x.numel() / x.size(1) < 2
        || autograd::isFwGradDefined(x))
        return false;
    const std::int64_t channels = x.size(1);
    for (const Tensor *t : {&a.weight, &a.bias, &a.running_mean, &a.running_var})
        if (!is_vector(*t, channels) || (t->defined() && at::isTensorSubclassLike(*t))
            || autograd::isFwGradDefined(*t))
            return false;
    return a.weight.defined() == a.bias.defined();
}

inline Tensor compute(const arguments &a) {
    const bool recorded = autograd::compute_requires_grad(a.input, a.weight, a.bias);
    const at::MemoryFormat format = format_of_input(a.input);
    const Tensor x = a.input.detach().contiguous(format);
    const Tensor mean = at::detail::empty_cpu({x.size(1)}, at::kFloat, false, {}),
                 factor = at::empty_like(mean), variance = at::empty_like(mean);
    Tensor output = empty(x.sizes(), x, format);
    call(library->norm_forward, describe(x, format, a.weight, a.bias, {}), x.const_data_ptr(),
        a.epsilon, output.data_ptr(), mean.data_ptr<float>(), factor.data_ptr<float>(),
        variance.data_ptr<float>());
    const auto count = static_cast<double>(x.numel() / x.size(1));
    move_towards(a.running_mean, mean, 1, a.share);
    move_towards(a.running_var, variance, count / (count - 1), a.share);
    if (!recorded) return output;
    auto made = make_node<node>();
    made->set_next_edges(autograd::collect_next_edges(a.input, a.weight, a.bias));
    made->input = autograd::SavedVariable(a.input, false);
    made->weight = autograd::SavedVariable(a.weight, false);
    made->bias = autograd::SavedVariable(a.bias, false);
    made->mean = mean;
    made->factor = factor;
    made->epsilon = a.epsilon;
    autograd::set_history(output, made);
    return output;
}

/// (input, weight, bias, running_mean, running_var, share, epsilon); tensors but the first may be
/// None. NotImplemented for what is not computed.
inline PyObject *normalize(PyObject *, PyObject *const *given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK(count == 7, "normalize takes 7 arguments");
    arguments a;
    Tensor *const tensors[] = {&a.input, &a.weight, &a.bias, &a.running_mean, &a.running_var};
    for (int i = 0; i < 5; ++i) {
        if (given[i] == Py_None) continue;
        if (!THPVariable_CheckExact(given[i])) Py_RETURN_NOTIMPLEMENTED;
        *tensors[i] = THPVariable_Unpack(given[i]);
    }
    if (!a.input.defined() || at::impl::torch_function_mode_enabled()
        || c10::impl::dispatch_mode_enabled() || !is_ours(a))
        Py_RETURN_NOTIMPLEMENTED;
    a.share = PyFloat_AsDouble(given[5]);
    a.epsilon = PyFloat_AsDouble(given[6]);
    if (PyErr_Occurred() != nullptr) return nullptr;
    Tensor output;
    {
        const pybind11::gil_scoped_release released;
        output = compute(a);
    }
    return THPVariable_Wrap(std::move(output));
    END_HANDLE_TH_ERRORS
}

/// Whether nobody but the tensor itself has a hold of the node that made it, so that bounding the
/// tensor in place may as well become part of that node.
inline bool is_alone(const node_pointer &made) {
    return made.use_count() == 1 && made->pre_hooks().empty() && made->post_hooks().empty()
           && made->tensor_pre_hooks().empty() && made->retains_grad_hooks().empty();
}

/// (tensor, low, high): bounds a tensor in place, as part of the normalisation that made it.
/// NotImplemented if it was made otherwise, or somebody has looked at it since.
inline PyObject *bound(PyObject *, PyObject *const *given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK(count == 3, "bound takes 3 arguments");
    if (!THPVariable_CheckExact(given[0]) || at::impl::torch_function_mode_enabled()
        || c10::impl::dispatch_mode_enabled() || !c10::GradMode::is_enabled())
        Py_RETURN_NOTIMPLEMENTED;
    const Tensor &tensor = THPVariable_Unpack(given[0]);
    const auto *meta = autograd::impl::get_autograd_meta(tensor);
    if (meta == nullptr || tensor.is_view()) Py_RETURN_NOTIMPLEMENTED;
    auto *const made = dynamic_cast<node *>(meta->grad_fn_.get());
    if (made == nullptr || made->limits.there || !is_alone(meta->grad_fn_))
        Py_RETURN_NOTIMPLEMENTED;
    const double low = PyFloat_AsDouble(given[1]), high = PyFloat_AsDouble(given[2]);
    if (PyErr_Occurred() != nullptr) return nullptr;
    {
        const pybind11::gil_scoped_release released;
        const c10::NoGradGuard data_only;
        Tensor values = tensor.detach();
        if (std::isinf(high))
            at::clamp_min_(values, low);
        else
            at::hardtanh_(values, low, high);
    }
    made->limits = {true, {static_cast<float>(low), static_cast<float>(high)}};
    return Py_NewRef(given[0]);
    END_HANDLE_TH_ERRORS
}

}  // namespace convgrad::operators::norm

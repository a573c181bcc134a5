// The kernels of torch.ops.convgrad.forward and backward in C++: on the CPU and on CUDA devices,
// under autograd (any number of times) and under autocast. Their schemas and their fake tensors are
// in ../_ops.py, which also has the same kernels in Python, for machines without a compiler; tests
// hold the two against each other.
//
// Compiled on first use against the PyTorch that is installed, whose interface for autograd differs
// from version to version; the library itself is reached through call.hpp.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include "call.hpp"
#include "node.hpp"
#include "norm.hpp"

namespace {

namespace native = convgrad::native;
namespace autograd = torch::autograd;
using namespace convgrad::operators;
using c10::SymInt;
using c10::SymIntArrayRef;
using optional_tensor = std::optional<Tensor>;
using gradients = std::tuple<Tensor, Tensor, Tensor>;
using wanted_list = std::array<bool, 3>;

// The CPU, and CUDA devices.

Tensor forward_here(const Tensor &input, const Tensor &weight, const optional_tensor &bias,
    IntArrayRef stride, IntArrayRef pads_begin, IntArrayRef pads_end, IntArrayRef dilation,
    bool transposed, IntArrayRef output_padding, std::int64_t groups) {
    const Tensor given_bias = bias.value_or(Tensor());
    check_types({&input, &weight, &given_bias});
    const integers g{stride, pads_begin, pads_end, dilation, transposed, output_padding, groups};
    const native::geometry where = g.for_axes(std::max<std::int64_t>(input.dim() - 2, 0));
    const Tensor in = readable(input), w = readable(weight);
    shape_list shape;
    if (w.dim() == in.dim() && in.dim() > 2) shape = output_shape(in, w, g);
    bool possible = !shape.empty();
    for (const std::int64_t length : shape) possible &= length >= 0;
    if (!possible) {
        call(library->check, view_of(in), view_of(w), where);  // refuses, and says why
        raise({"InvalidShape", "invalid shape: the convolution has no output"});
    }
    Tensor output = empty(shape, input, format_of({&input, &weight}));
    queue on({&in, &w, &given_bias});
    if (!given_bias.defined()) {
        on.run(library->forward, view_of(in), view_of(w),
            static_cast<const native::view *>(nullptr), view_of(output), where);
        return output;
    }
    const Tensor b = readable(given_bias);
    const native::view bias_view = view_of(b);
    on.run(library->forward, view_of(in), view_of(w), static_cast<const native::view *>(&bias_view),
        view_of(output), where);
    return output;
}

/// The gradients as asked for; an empty tensor stands for "not wanted".
gradients backward_here(const Tensor &grad, const Tensor &input, const Tensor &weight,
    IntArrayRef stride, IntArrayRef pads_begin, IntArrayRef pads_end, IntArrayRef dilation,
    bool transposed, IntArrayRef output_padding, std::int64_t groups, wanted_list wanted) {
    check_types({&grad, &input, &weight});
    const integers g{stride, pads_begin, pads_end, dilation, transposed, output_padding, groups};
    const native::geometry where = g.for_axes(std::max<std::int64_t>(input.dim() - 2, 0));
    constexpr std::int64_t zero = 0;
    const IntArrayRef nothing(&zero, 1);
    const auto packed = at::MemoryFormat::Contiguous;
    const Tensor grad_input = wanted[0] ? empty(input.sizes(), input, format_of({&input, &weight}))
                                        : empty(nothing, input, packed);
    const Tensor grad_weight = wanted[1] ? empty(weight.sizes(), weight, format_of({&weight}))
                                         : empty(nothing, weight, packed);
    const Tensor grad_bias = empty({wanted[2] ? grad.size(1) : 0}, weight, packed);
    const Tensor dy = readable(grad), x = readable(input), w = readable(weight);
    const native::view input_view = view_of(grad_input), weight_view = view_of(grad_weight),
                       bias_view = view_of(grad_bias);
    const auto if_wanted = [](bool is, const native::view &v) { return is ? &v : nullptr; };
    queue on({&dy, &x, &w});
    if (wanted[0] || wanted[1])
        on.run(library->backward, view_of(dy), view_of(x), view_of(w),
            if_wanted(wanted[0], input_view), if_wanted(wanted[1], weight_view),
            if_wanted(wanted[1] && wanted[2], bias_view), where);
    if (wanted[2] && !wanted[1]) {
        std::vector<std::int64_t> all{0};
        for (std::int64_t i = 2; i < dy.dim(); ++i) all.push_back(i);
        Tensor out = grad_bias;
        at::sum_out(out, dy, all);
    }
    return {grad_input, grad_weight, grad_bias};
}

// The operators as the dispatcher knows them.

Tensor forward_signature(const Tensor &, const Tensor &, const optional_tensor &, SymIntArrayRef,
    SymIntArrayRef, SymIntArrayRef, SymIntArrayRef, bool, SymIntArrayRef, SymInt);
gradients backward_signature(const Tensor &, const Tensor &, const Tensor &, SymIntArrayRef,
    SymIntArrayRef, SymIntArrayRef, SymIntArrayRef, bool, SymIntArrayRef, SymInt, wanted_list);

const auto &forward_op() {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("convgrad::forward", "")
                               .typed<decltype(forward_signature)>();
    return op;
}
const auto &backward_op() {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("convgrad::backward", "")
                               .typed<decltype(backward_signature)>();
    return op;
}

// Autograd.

/// Shapes may be symbols while a graph is traced.
struct saved_geometry {
    using list = c10::SmallVector<SymInt, 3>;
    list stride, pads_begin, pads_end, dilation, output_padding;
    bool transposed = false;
    SymInt groups = 1;

    [[nodiscard]] Tensor forward(
        const Tensor &input, const Tensor &weight, const optional_tensor &bias) const {
        return forward_op().call(input, weight, bias, stride, pads_begin, pads_end, dilation,
            transposed, output_padding, groups);
    }
    [[nodiscard]] gradients backward(const Tensor &grad, const Tensor &input, const Tensor &weight,
        const wanted_list &wanted) const {
        return backward_op().call(grad, input, weight, stride, pads_begin, pads_end, dilation,
            transposed, output_padding, groups, wanted);
    }
};

saved_geometry keep(SymIntArrayRef stride, SymIntArrayRef pads_begin, SymIntArrayRef pads_end,
    SymIntArrayRef dilation, bool transposed, SymIntArrayRef output_padding, SymInt groups) {
    const auto list = [](SymIntArrayRef a) { return saved_geometry::list(a.begin(), a.end()); };
    return {list(stride), list(pads_begin), list(pads_end), list(dilation), list(output_padding),
        transposed, std::move(groups)};
}

class forward_node : public autograd::Node {
public:
    autograd::variable_list apply(autograd::variable_list &&grads) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!grads[0].defined()) return autograd::variable_list(3);
        const wanted_list wanted = {task_should_compute_output(0), task_should_compute_output(1),
            has_bias && task_should_compute_output(2)};
        auto [for_input, for_weight, for_bias] =
            where.backward(grads[0], input.unpack(), weight.unpack(), wanted);
        return {wanted[0] ? std::move(for_input) : Tensor(),
            wanted[1] ? std::move(for_weight) : Tensor(),
            wanted[2] ? std::move(for_bias) : Tensor()};
    }
    void release_variables() override {
        const std::lock_guard<std::mutex> lock(mutex_);
        input.reset_data();
        weight.reset_data();
    }
    [[nodiscard]] std::string name() const override { return "ConvgradForwardBackward"; }

    autograd::SavedVariable input, weight;
    bool has_bias = false;
    saved_geometry where;
};

Tensor sum(const Tensor &a, const Tensor &b) {
    return a.defined() ? a + b : b;
}

/// The gradient is linear in each of grad, input and weight: so are its own, by the same two ops.
class backward_node : public autograd::Node {
public:
    autograd::variable_list apply(autograd::variable_list &&grads) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        const Tensor grad = saved_grad.unpack(), x = input.unpack(), w = weight.unpack();
        const bool needs[] = {task_should_compute_output(0), task_should_compute_output(1),
            task_should_compute_output(2)};
        Tensor for_grad, for_input, for_weight;
        if (wanted[0] && grads[0].defined()) {
            if (needs[0]) for_grad = where.forward(grads[0], w, {});
            if (needs[2])
                for_weight = std::get<1>(where.backward(grad, grads[0], w, {false, true, false}));
        }
        if (wanted[1] && grads[1].defined()) {
            if (needs[0]) for_grad = sum(for_grad, where.forward(x, grads[1], {}));
            if (needs[1])
                for_input = std::get<0>(where.backward(grad, x, grads[1], {true, false, false}));
        }
        if (wanted[2] && grads[2].defined() && needs[0]) {
            std::vector<std::int64_t> shape(static_cast<std::size_t>(grad.dim()), 1);
            shape[1] = -1;
            for_grad = sum(for_grad, grads[2].reshape(shape).expand_as(grad));
        }
        return {for_grad, for_input, for_weight};
    }
    void release_variables() override {
        const std::lock_guard<std::mutex> lock(mutex_);
        saved_grad.reset_data();
        input.reset_data();
        weight.reset_data();
    }
    [[nodiscard]] std::string name() const override { return "ConvgradBackwardBackward"; }

    autograd::SavedVariable saved_grad, input, weight;
    wanted_list wanted{};
    saved_geometry where;
};

void refuse_forward_mode(std::initializer_list<const Tensor *> tensors) {
    for (const Tensor *t : tensors)
        TORCH_CHECK_NOT_IMPLEMENTED(!autograd::isFwGradDefined(*t),
            "convgrad: forward-mode automatic differentiation is not implemented");
}

Tensor forward_autograd(const Tensor &input, const Tensor &weight, const optional_tensor &bias,
    SymIntArrayRef stride, SymIntArrayRef pads_begin, SymIntArrayRef pads_end,
    SymIntArrayRef dilation, bool transposed, SymIntArrayRef output_padding, SymInt groups) {
    const bool differentiable = autograd::compute_requires_grad(input, weight, bias);
    const auto compute = [&] {
        const at::AutoDispatchBelowADInplaceOrView below;
        return forward_op().call(input, weight, bias, stride, pads_begin, pads_end, dilation,
            transposed, output_padding, groups);
    };
    refuse_forward_mode({&input, &weight});
    if (!differentiable) return compute();
    auto node = make_node<forward_node>();
    node->set_next_edges(autograd::collect_next_edges(input, weight, bias));
    node->input = autograd::SavedVariable(input, false);
    node->weight = autograd::SavedVariable(weight, false);
    node->has_bias = bias.has_value() && bias->defined();
    node->where = keep(stride, pads_begin, pads_end, dilation, transposed, output_padding, groups);
    Tensor output = compute();
    autograd::set_history(output, node);
    return output;
}

gradients backward_autograd(const Tensor &grad, const Tensor &input, const Tensor &weight,
    SymIntArrayRef stride, SymIntArrayRef pads_begin, SymIntArrayRef pads_end,
    SymIntArrayRef dilation, bool transposed, SymIntArrayRef output_padding, SymInt groups,
    wanted_list wanted) {
    const bool differentiable = autograd::compute_requires_grad(grad, input, weight);
    const auto compute = [&] {
        const at::AutoDispatchBelowADInplaceOrView below;
        return backward_op().call(grad, input, weight, stride, pads_begin, pads_end, dilation,
            transposed, output_padding, groups, wanted);
    };
    refuse_forward_mode({&grad, &input, &weight});
    if (!differentiable) return compute();
    auto node = make_node<backward_node>();
    node->set_next_edges(autograd::collect_next_edges(grad, input, weight));
    node->saved_grad = autograd::SavedVariable(grad, false);
    node->input = autograd::SavedVariable(input, false);
    node->weight = autograd::SavedVariable(weight, false);
    node->wanted = wanted;
    node->where = keep(stride, pads_begin, pads_end, dilation, transposed, output_padding, groups);
    gradients made = compute();
    autograd::set_history(std::get<0>(made), node);
    autograd::set_history(std::get<1>(made), node);
    autograd::set_history(std::get<2>(made), node);
    return made;
}

// Autocast.

template <at::DeviceType Device, c10::DispatchKey Key>
Tensor forward_autocast(const Tensor &input, const Tensor &weight, const optional_tensor &bias,
    SymIntArrayRef stride, SymIntArrayRef pads_begin, SymIntArrayRef pads_end,
    SymIntArrayRef dilation, bool transposed, SymIntArrayRef output_padding, SymInt groups) {
    const c10::impl::ExcludeDispatchKeyGuard once(Key);
    const at::ScalarType type = at::autocast::get_autocast_dtype(Device);
    const auto cast = [&](const Tensor &t) { return at::autocast::cached_cast(type, t, Device); };
    return forward_op().call(cast(input), cast(weight),
        bias.has_value() ? optional_tensor(cast(*bias)) : bias, stride, pads_begin, pads_end,
        dilation, transposed, output_padding, groups);
}

// The functions of convgrad.torch, for what is common; everything else gets NotImplemented and goes
// through Python.

/// One integer for all axes, or one for each.
bool read_list(PyObject *object, std::size_t axes, std::int64_t *to) {
    const auto read = [](PyObject *item, std::int64_t &value) {
        if (!PyLong_CheckExact(item)) return false;
        int overflow = 0;
        value = PyLong_AsLongLongAndOverflow(item, &overflow);
        return overflow == 0;
    };
    if (PyLong_CheckExact(object)) {
        if (!read(object, to[0])) return false;
        for (std::size_t i = 1; i < axes; ++i) to[i] = to[0];
        return true;
    }
    const bool is_tuple = PyTuple_CheckExact(object);
    if (!is_tuple && !PyList_CheckExact(object)) return false;
    const auto count = static_cast<std::size_t>(Py_SIZE(object));
    if (count != axes && count != 1) return false;
    for (std::size_t i = 0; i < axes; ++i) {
        const auto at = static_cast<Py_ssize_t>(count == 1 ? 0 : i);
        PyObject *item = is_tuple ? PyTuple_GET_ITEM(object, at) : PyList_GET_ITEM(object, at);
        if (!read(item, to[i])) return false;
    }
    return true;
}

/// A tensor or a parameter; subclasses may have other ideas of what a function does.
bool is_plain(PyObject *object) {
    return THPVariable_CheckExact(object);
}

/// Whether this library has an engine for a CUDA device; asked once for each.
bool has_device(int device) {
    constexpr int most = 64;
    static std::array<std::atomic<int>, most> known{};  // 0: not asked yet, 1: no, 2: yes
    if (device < 0 || device >= most) return false;
    std::atomic<int> &mine = known[static_cast<std::size_t>(device)];
    if (mine == 0) mine = library->has_device(device) ? 2 : 1;
    return mine == 2;
}

bool is_ours(const Tensor &input, const Tensor &weight) {
    if (input.device() != weight.device()) return false;
    if (!input.is_cpu() && !(input.is_cuda() && has_device(input.device().index()))) return false;
    if (input.layout() != at::kStrided || weight.layout() != at::kStrided) return false;
    if (type_of(input) == 0 || type_of(weight) == 0) return false;
    return input.scalar_type() == weight.scalar_type()
           || at::autocast::is_autocast_enabled(input.device().type());
}

/// (transposed, axes, input, weight, bias, stride, padding, output_padding, dilation, groups)
PyObject *convolve(PyObject *, PyObject *const *given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK(count == 10, "convolve takes 10 arguments");
    const bool transposed = given[0] == Py_True;
    const auto axes = static_cast<std::size_t>(PyLong_AsLong(given[1]));
    const bool has_bias = given[4] != Py_None;
    std::int64_t stride[3], padding[3], output_padding[3], dilation[3], groups[1];
    if (at::impl::torch_function_mode_enabled() || !is_plain(given[2]) || !is_plain(given[3])
        || (has_bias && !is_plain(given[4])) || !read_list(given[5], axes, stride)
        || !read_list(given[6], axes, padding) || !read_list(given[7], axes, output_padding)
        || !read_list(given[8], axes, dilation) || !read_list(given[9], 1, groups))
        Py_RETURN_NOTIMPLEMENTED;
    const Tensor &input = THPVariable_Unpack(given[2]), &weight = THPVariable_Unpack(given[3]);
    if (input.dim() != static_cast<std::int64_t>(axes) + 2 || !is_ours(input, weight))
        Py_RETURN_NOTIMPLEMENTED;
    const optional_tensor bias =
        has_bias ? optional_tensor(THPVariable_Unpack(given[4])) : std::nullopt;
    const auto list = [&](const std::int64_t *values) {
        return c10::fromIntArrayRefSlow(IntArrayRef(values, axes));
    };
    Tensor output;
    {
        const pybind11::gil_scoped_release released;
        output = forward_op().call(input, weight, bias, list(stride), list(padding), list(padding),
            list(dilation), transposed, list(output_padding), groups[0]);
    }
    return THPVariable_Wrap(std::move(output));
    END_HANDLE_TH_ERRORS
}

/// (input, weight, bias): all that the time of a layer depends on, its own settings aside, as
/// bytes. NotImplemented for what is no plain tensor.
PyObject *signature(PyObject *, PyObject *const *given, Py_ssize_t count) {
    HANDLE_TH_ERRORS
    TORCH_CHECK(count == 3, "signature takes 3 arguments");
    if (!is_plain(given[0]) || !is_plain(given[1])) Py_RETURN_NOTIMPLEMENTED;
    const Tensor &input = THPVariable_Unpack(given[0]);
    const c10::Device device = input.device();
    const bool grad = c10::GradMode::is_enabled(),
               autocast = at::autocast::is_autocast_enabled(device.type());
    const auto differentiable = [&](PyObject *object) {
        return grad && is_plain(object) && THPVariable_Unpack(object).requires_grad();
    };
    c10::SmallVector<std::int64_t, 20> facts{static_cast<std::int64_t>(device.type()),
        device.index(), static_cast<std::int64_t>(input.scalar_type()),
        autocast ? static_cast<std::int64_t>(at::autocast::get_autocast_dtype(device.type())) : -1,
        input.is_cpu() ? at::get_num_threads() : at::globalContext().benchmarkCuDNN(),
        differentiable(given[0]) * 4 + differentiable(given[1]) * 2 + differentiable(given[2])};
    facts.append(input.sizes().begin(), input.sizes().end());
    facts.append(input.strides().begin(), input.strides().end());
    return PyBytes_FromStringAndSize(reinterpret_cast<const char *>(facts.data()),
        static_cast<Py_ssize_t>(facts.size() * sizeof(std::int64_t)));
    END_HANDLE_TH_ERRORS
}

PyMethodDef methods[] = {
    {"convolve", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(convolve)), METH_FASTCALL,
        nullptr},
    {"signature", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(signature)), METH_FASTCALL,
        nullptr},
    {"normalize", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(norm::normalize)),
        METH_FASTCALL, nullptr},
    {"bound", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(norm::bound)), METH_FASTCALL,
        nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "convgrad_torch_ops", nullptr, -1, methods, nullptr,
    nullptr, nullptr, nullptr};

bool find_library() {
    core = PyImport_ImportModule("convgrad._core");
    if (core == nullptr) return false;
    library = static_cast<const native::functions *>(PyCapsule_Import(native::capsule_name, 0));
    if (library == nullptr) return false;
    if (library->version != native::api_version) {
        PyErr_SetString(PyExc_ImportError, "built for another version of convgrad");
        return false;
    }
    PyObject *const torch = PyImport_ImportModule("torch._C");
    if (torch == nullptr) return false;
    queue::stream_of = PyObject_GetAttrString(torch, "_cuda_getCurrentRawStream");
    if (queue::stream_of == nullptr) PyErr_Clear();  // a PyTorch without CUDA
    Py_DECREF(torch);
    return true;
}

}  // namespace

TORCH_LIBRARY_IMPL(convgrad, CPU, m) {
    m.impl("forward", TORCH_FN(forward_here));
    m.impl("backward", TORCH_FN(backward_here));
}
TORCH_LIBRARY_IMPL(convgrad, CUDA, m) {
    m.impl("forward", TORCH_FN(forward_here));
    m.impl("backward", TORCH_FN(backward_here));
}
TORCH_LIBRARY_IMPL(convgrad, Autograd, m) {
    m.impl("forward", TORCH_FN(forward_autograd));
    m.impl("backward", TORCH_FN(backward_autograd));
}
TORCH_LIBRARY_IMPL(convgrad, AutocastCPU, m) {
    m.impl("forward", TORCH_FN((forward_autocast<at::kCPU, c10::DispatchKey::AutocastCPU>)));
}
TORCH_LIBRARY_IMPL(convgrad, AutocastCUDA, m) {
    m.impl("forward", TORCH_FN((forward_autocast<at::kCUDA, c10::DispatchKey::AutocastCUDA>)));
}

PyMODINIT_FUNC PyInit_convgrad_torch_ops() {
    return find_library() ? PyModule_Create(&module) : nullptr;
}

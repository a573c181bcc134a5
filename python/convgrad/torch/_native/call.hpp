// What an operator needs for a call of the library: its table of functions, errors as exceptions of
// convgrad, tensors as views, PyTorch's stream and memory.
#pragma once
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Exceptions.h>

#include "api.hpp"

namespace convgrad::operators {

using at::IntArrayRef;
using at::Tensor;

inline const native::functions *library = nullptr;
inline PyObject *core = nullptr;  // the module convgrad._core

// Errors: the exception classes of convgrad, through PyTorch's dispatcher.

struct refusal {
    std::string class_name, message;
};

[[noreturn]] inline void raise(const refusal &why) {
    const pybind11::gil_scoped_acquire gil;
    PyObject *type = PyObject_GetAttrString(core, why.class_name.c_str());
    PyErr_SetString(type != nullptr ? type : PyExc_RuntimeError, why.message.c_str());
    Py_XDECREF(type);
    python_error thrown;
    thrown.persist();
    throw thrown;
}

/// Calls a function of the library, and raises what it complains about.
template <typename Function, typename... Arguments>
void call(Function *function, const Arguments &...arguments) {
    refusal why;
    const native::complaint report{
        &why, [](void *context, const char *class_name, const char *message) {
            *static_cast<refusal *>(context) = {class_name, message};
        }};
    if (!function(arguments..., report)) raise(why);
}

// Tensors.

inline int type_of(const Tensor &t) {
    switch (t.scalar_type()) {
    case at::kFloat:
        return 1;
    case at::kBFloat16:
        return 2;
    case at::kHalf:
        return 3;
    default:
        return 0;
    }
}

inline void check_types(std::initializer_list<const Tensor *> tensors) {
    const Tensor &first = **tensors.begin();
    bool equal = true;
    for (const Tensor *t : tensors) equal &= !t->defined() || t->dtype() == first.dtype();
    if (equal) return;
    std::set<std::string> names;
    for (const Tensor *t : tensors)
        if (t->defined()) {
            static const std::map<at::ScalarType, std::string> known = {{at::kFloat, "float32"},
                {at::kBFloat16, "bfloat16"}, {at::kHalf, "float16"}, {at::kDouble, "float64"}};
            const auto found = known.find(t->scalar_type());
            names.insert("torch."
                         + (found != known.end() ? found->second
                                                 : std::string(c10::toString(t->scalar_type()))));
        }
    std::string list;
    for (const std::string &name : names) list += (list.empty() ? "" : ", ") + name;
    raise({"InvalidOp",
        "invalid op: tensors of one convolution have the types " + list + "; they must be equal"});
}

inline native::view view_of(const Tensor &t) {
    return {
        t.data_ptr(), type_of(t), static_cast<int>(t.dim()), t.sizes().data(), t.strides().data()};
}

/// The tensor itself, unless elements share memory (an expanded gradient) or are to be negated.
inline Tensor readable(const Tensor &t) {
    bool shares = t.is_neg();
    for (const std::int64_t stride : t.strides()) shares |= stride == 0;
    return shares ? t.contiguous().resolve_neg() : t;
}

/// channels_last if one of the tensors is, as PyTorch's own convolutions decide.
inline at::MemoryFormat format_of(std::initializer_list<const Tensor *> tensors) {
    const std::int64_t rank = (*tensors.begin())->dim();
    if (rank != 4 && rank != 5) return at::MemoryFormat::Contiguous;
    const auto last = rank == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
    for (const Tensor *t : tensors)
        if (!t->is_contiguous() && t->is_contiguous(last)) return last;
    return at::MemoryFormat::Contiguous;
}

/// A tensor without values beside another, from whoever gave the other its memory: the dispatcher
/// would take longer to find the same allocator.
inline Tensor empty(
    IntArrayRef shape, const Tensor &like, at::ScalarType type, at::MemoryFormat format) {
    if (like.is_cpu()) return at::detail::empty_cpu(shape, type, false, format);
    c10::Allocator *const allocator = like.has_storage() ? like.storage().allocator() : nullptr;
    if (!like.is_cuda() || allocator == nullptr)
        return at::empty(shape, like.options().dtype(type).memory_format(format));
    const c10::DeviceGuard there(like.device());
    return at::detail::empty_generic(
        shape, allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA), type, format);
}
inline Tensor empty(IntArrayRef shape, const Tensor &like, at::MemoryFormat format) {
    return empty(shape, like, like.scalar_type(), format);
}

/// The integers of a call, as the library takes them.
struct integers {
    IntArrayRef stride, pads_begin, pads_end, dilation;
    bool transposed;
    IntArrayRef output_padding;
    std::int64_t groups;

    /// Of tensors with so many spatial axes, which all lists must have.
    [[nodiscard]] native::geometry for_axes(std::int64_t axes) const {
        for (const IntArrayRef &list : {stride, pads_begin, pads_end, dilation, output_padding})
            if (static_cast<std::int64_t>(list.size()) != axes)
                raise({"InvalidShape", "invalid shape: a list of the convolution has "
                                           + std::to_string(list.size()) + " values; it must have "
                                           + std::to_string(axes)});
        return {stride.data(), pads_begin.data(), pads_end.data(), dilation.data(),
            output_padding.data(), static_cast<int>(axes), groups, transposed};
    }
};

using shape_list = c10::SmallVector<std::int64_t, 5>;

/// Lengths may be negative where the library would refuse.
inline shape_list output_shape(const Tensor &input, const Tensor &weight, const integers &g) {
    shape_list shape{input.size(0), g.transposed ? weight.size(1) * g.groups : weight.size(0)};
    for (std::int64_t i = 0; i + 2 < input.dim(); ++i) {
        const auto a = static_cast<std::size_t>(i);
        const std::int64_t extent = g.dilation[a] * (weight.size(i + 2) - 1) + 1;
        const std::int64_t pads = g.pads_begin[a] + g.pads_end[a], length = input.size(i + 2);
        if (g.transposed) {
            shape.push_back(g.stride[a] * (length - 1) + extent + g.output_padding[a] - pads);
        } else {
            const std::int64_t room = length + pads - extent, step = g.stride[a];
            shape.push_back(room < 0 || step < 1 ? -1 : room / step + 1);
        }
    }
    return shape;
}

// Streams.

/// PyTorch's stream of a device, for the thread that asks, and scratch from PyTorch's allocator,
/// which reuses memory in the order of that stream: it may be given back as soon as the work is
/// queued.
class queue {
public:
    /// Of no use for tensors of the host.
    explicit queue(std::initializer_list<const Tensor *> tensors) : like_(**tensors.begin()) {
        if (like_.is_cpu()) return;
        for (const Tensor *t : tensors)
            if (t->defined() && t->device() != like_.device())
                raise(
                    {"InvalidArgument", "invalid argument: tensors of one convolution are on "
                                            + like_.device().str() + " and " + t->device().str()});
        native_ = {like_.device().index(), current_stream(like_.device()), this, &take};
        used_ = true;
    }
    queue(const queue &) = delete;
    queue &operator=(const queue &) = delete;

    /// Calls a function of the library on this queue.
    template <typename Function, typename... Arguments>
    void run(Function *function, const Arguments &...arguments) {
        const native::queue *const on = used_ ? &native_ : nullptr;
        try {
            call(function, arguments..., on);
        } catch (...) {
            if (failure_) std::rethrow_exception(failure_);
            throw;
        }
    }

    static inline PyObject *stream_of = nullptr;  // torch._C._cuda_getCurrentRawStream

private:
    /// Null is the default stream, which needs no asking and no interpreter.
    static void *current_stream(c10::Device device) {
        if (c10::impl::VirtualGuardImpl(device.type()).getStream(device).id() == 0) return nullptr;
        const pybind11::gil_scoped_acquire gil;
        PyObject *const stream =
            PyObject_CallFunction(stream_of, "i", static_cast<int>(device.index()));
        if (stream == nullptr) {
            python_error thrown;
            thrown.persist();
            throw thrown;
        }
        void *const native = PyLong_AsVoidPtr(stream);
        Py_DECREF(stream);
        return native;
    }
    static void *take(void *context, std::size_t bytes) {
        queue &self = *static_cast<queue *>(context);
        try {
            self.scratch_ = empty({static_cast<std::int64_t>(bytes)}, self.like_, at::kByte,
                at::MemoryFormat::Contiguous);
            return self.scratch_.data_ptr();
        } catch (...) {
            self.failure_ = std::current_exception();  // PyTorch's own, to be seen as such
            return nullptr;
        }
    }

    const Tensor &like_;
    native::queue native_{};
    bool used_ = false;
    Tensor scratch_;
    std::exception_ptr failure_;
};

}  // namespace convgrad::operators

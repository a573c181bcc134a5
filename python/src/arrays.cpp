#include "arrays.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>

#include <nanobind/stl/string.h>

#include <convgrad/error.hpp>

#include "arguments.hpp"
#include "bindings.hpp"

namespace convgrad::python {
namespace {

/// NumPy's names, looked up when its first array comes and kept for the life of the process:
/// importing NumPy takes longer than all the rest.
struct numpy_names {
    nb::object array_type, empty, from_dlpack, uint16, float32, float16;
};
const numpy_names *numpy = nullptr;

/// PyTorch's, looked up when its first tensor comes.
struct torch_names {
    nb::object tensor_type, is_grad_enabled, empty, float32, bfloat16, float16, int32;
};
const torch_names *torch = nullptr;

[[noreturn]] void refuse(std::string_view name, const std::string &text) {
    throw error(
        error_code::invalid_argument, "invalid argument: " + std::string(name) + " " + text);
}

std::string name_of_type(nb::handle object) {
    return nb::cast<std::string>(nb::inst_name(object));
}

data_type type_from_format(const char *format) {
    if (format == nullptr) return data_type::undef;
    if (*format == '<' || *format == '=' || *format == '@') ++format;
    if (format[0] == '\0' || format[1] != '\0') return data_type::undef;
    switch (*format) {
    case 'f':
        return data_type::f32;
    case 'e':
        return data_type::f16;
    case 'i':
        return data_type::s32;
    case 'l':
        return sizeof(long) == 4 ? data_type::s32 : data_type::undef;
    default:
        return data_type::undef;
    }
}

data_type type_from_dlpack(nb::dlpack::dtype type) {
    const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
    if (type.lanes != 1) return data_type::undef;
    if (code == nb::dlpack::dtype_code::Float && type.bits == 32) return data_type::f32;
    if (code == nb::dlpack::dtype_code::Float && type.bits == 16) return data_type::f16;
    if (code == nb::dlpack::dtype_code::Bfloat && type.bits == 16) return data_type::bf16;
    if (code == nb::dlpack::dtype_code::Int && type.bits == 32) return data_type::s32;
    return data_type::undef;
}

nb::dlpack::dtype dlpack_type(data_type type) {
    using code = nb::dlpack::dtype_code;
    const auto made = [](code c, std::uint8_t bits) {
        return nb::dlpack::dtype{static_cast<std::uint8_t>(c), bits, 1};
    };
    switch (type) {
    case data_type::bf16:
        return made(code::Bfloat, 16);
    case data_type::f16:
        return made(code::Float, 16);
    case data_type::s32:
        return made(code::Int, 32);
    default:
        return made(code::Float, 32);
    }
}

/// First part of the name of the module that an object's type comes from: "torch", "jaxlib".
std::string root_module(nb::handle object) {
    nb::object name = nb::getattr(object.type(), "__module__", nb::none());
    if (!nb::isinstance<nb::str>(name)) return {};
    const std::string whole = nb::cast<std::string>(name);
    return whole.substr(0, whole.find('.'));
}

bool is_jax(nb::handle object) {
    const std::string root = root_module(object);
    return root == "jaxlib" || root == "jax";
}

const numpy_names &load_numpy() {
    if (numpy == nullptr) {
        const nb::module_ module = nb::module_::import_("numpy");
        numpy = new numpy_names{module.attr("ndarray"), module.attr("empty"),
            module.attr("from_dlpack"), module.attr("uint16"), module.attr("float32"),
            module.attr("float16")};
    }
    return *numpy;
}

bool is_numpy(nb::handle object) {
    if (numpy == nullptr) {
        // There are arrays only where somebody has imported it.
        const nb::str name("numpy");
        const nb::object module = nb::steal(PyImport_GetModule(name.ptr()));
        if (!module.is_valid() || !nb::hasattr(module, "ndarray")) return false;
        load_numpy();
    }
    return PyObject_TypeCheck(
        object.ptr(), reinterpret_cast<PyTypeObject *>(numpy->array_type.ptr()));
}

bool is_torch(nb::handle object) {
    if (torch == nullptr) {
        if (root_module(object) != "torch") return false;
        const nb::module_ module = nb::module_::import_("torch");
        torch = new torch_names{module.attr("Tensor"), module.attr("is_grad_enabled"),
            module.attr("empty"), module.attr("float32"), module.attr("bfloat16"),
            module.attr("float16"), module.attr("int32")};
    }
    return PyObject_TypeCheck(
        object.ptr(), reinterpret_cast<PyTypeObject *>(torch->tensor_type.ptr()));
}

std::string dtype_name(nb::handle array) {
    const nb::object dtype = array.attr("dtype");
    return nb::str(nb::handle(dtype)).c_str();
}

[[noreturn]] void refuse_type(std::string_view name, const std::string &dtype) {
    throw error(error_code::invalid_op, "invalid op: " + std::string(name) + " has data type "
                                            + dtype + "; it must be float32, bfloat16 or float16");
}

data_type type_from_torch(nb::handle dtype) {
    if (dtype.is(torch->float32)) return data_type::f32;
    if (dtype.is(torch->bfloat16)) return data_type::bf16;
    if (dtype.is(torch->float16)) return data_type::f16;
    if (dtype.is(torch->int32)) return data_type::s32;
    return data_type::undef;
}

const nb::object &torch_type(data_type type) {
    if (type == data_type::bf16) return torch->bfloat16;
    return type == data_type::f16 ? torch->float16 : torch->float32;
}

bool is_bfloat16(nb::handle array) {
    return nb::cast<std::string>(array.attr("dtype").attr("name")) == "bfloat16";
}

/// Memory that kinds other than NumPy take over; aligned as XLA wants it to take it without a copy.
nb::capsule allocate(std::size_t bytes) {
    constexpr std::align_val_t alignment{64};
    void *memory = ::operator new(std::max<std::size_t>(bytes, 1), alignment, std::nothrow);
    if (memory == nullptr)
        throw error(error_code::out_of_memory,
            "out of memory: a result needs " + std::to_string(bytes) + " bytes");
    return {memory, [](void *p) noexcept { ::operator delete (p, std::align_val_t{64}); }};
}

std::size_t bytes_of(const dims &shape, data_type type) {
    std::size_t bytes = size_of(type);
    for (dim d : shape)
        if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(d), &bytes))
            throw error(
                error_code::invalid_shape, "invalid shape: a result has more than 2^64 bytes");
    return bytes;
}

nb::object shape_tuple(const dims &shape) {
    nb::object made = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
    for (std::size_t i = 0; i < shape.size(); ++i)
        PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
    return made;
}

/// NumPy's dtype of a result; bf16 is found at the array that the result is made for.
nb::object numpy_type(nb::handle like, data_type type) {
    if (type == data_type::f32) return numpy->float32;
    if (type == data_type::f16) return numpy->float16;
    if (is_numpy(like) && is_bfloat16(like)) return like.attr("dtype");
    return nb::module_::import_("ml_dtypes").attr("bfloat16");
}

}  // namespace

data_type type_from_python(nb::handle dtype) {
    if (dtype.is_none()) return data_type::undef;
    nb::object name = nb::getattr(dtype, "__name__", nb::none());
    if (name.is_none()) name = nb::getattr(dtype, "name", nb::none());
    const nb::str whole = name.is_none() ? nb::str(dtype) : nb::str(name);
    std::string text(string_from_python(whole, "dtype"));
    text = text.substr(text.rfind('.') + 1);
    if (text == "f32" || text == "float32") return data_type::f32;
    if (text == "f16" || text == "float16" || text == "half") return data_type::f16;
    if (text == "bf16" || text == "bfloat16") return data_type::bf16;
    if (text == "s32" || text == "int32") return data_type::s32;
    throw error(error_code::invalid_op,
        "invalid op: data type \"" + text + "\" is not known; it must be f32, bf16, f16 or s32");
}

array::array(nb::handle object, std::string_view name, access how) : object_(object), name_(name) {
    if (const raw_view *raw = nullptr; nb::try_cast(object, raw) && raw != nullptr) {
        tensor_ = tensor(raw->data, raw->type, raw->shape, raw->strides);
        return;
    }
    description found;
    if (!read_numpy(found, how) && !read_torch(found)) read_dlpack(found, how);
    take(std::move(found), how);
}

array::~array() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

bool array::read_numpy(description &found, access how) {
    if (!is_numpy(object_)) return false;
    const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (how == access::write ? PyBUF_WRITABLE : 0);
    bool bf16 = false;
    if (PyObject_GetBuffer(object_.ptr(), &buffer_, flags) != 0) {
        // NumPy exports no buffers of types that it does not know itself: bf16 goes as its bits.
        PyErr_Clear();
        bf16 = is_bfloat16(object_);
        const nb::object bits = bf16 ? object_.attr("view")(numpy->uint16) : nb::borrow(object_);
        if (PyObject_GetBuffer(bits.ptr(), &buffer_, flags) != 0) {
            PyErr_Clear();
            if (!nb::cast<bool>(object_.attr("flags").attr("writeable")))
                refuse(name_, "is a read-only array; an output must be writable");
            refuse_type(name_, dtype_name(object_));
        }
    }
    found.data = buffer_.buf;
    found.type = bf16 ? data_type::bf16 : type_from_format(buffer_.format);
    if (found.type == data_type::undef) refuse_type(name_, dtype_name(object_));
    found.shape.assign(buffer_.shape, buffer_.shape + buffer_.ndim);
    found.byte_strides.assign(buffer_.strides, buffer_.strides + buffer_.ndim);
    return true;
}

bool array::read_torch(description &found) {
    if (!is_torch(object_)) return false;
    const nb::object tensor = nb::borrow(object_);
    if (tensor.attr("requires_grad").is(nb::handle(Py_True))
        && torch->is_grad_enabled().is(nb::handle(Py_True)))
        refuse(name_,
            "requires a gradient, which this function does not record; use convgrad.torch, "
            "or pass tensor.detach()");
    if (!nb::cast<bool>(tensor.attr("device").attr("type").equal(nb::str("cpu"))))
        refuse(name_, "is not in the memory of the CPU");
    kept_ = tensor.attr("is_neg")().is(nb::handle(Py_True))
                ? nb::object(tensor.attr("resolve_neg")())
                : tensor;
    found.type = type_from_torch(kept_.attr("dtype"));
    if (found.type == data_type::undef) refuse_type(name_, dtype_name(kept_));
    found.shape = dims_from_python(kept_.attr("shape"), "shape");
    found.byte_strides = dims_from_python(kept_.attr("stride")(), "stride");
    for (dim &stride : found.byte_strides) stride *= static_cast<dim>(size_of(found.type));
    found.data = reinterpret_cast<void *>(nb::cast<std::uintptr_t>(kept_.attr("data_ptr")()));
    return true;
}

void array::read_dlpack(description &found, access how) {
    if (!nb::hasattr(object_, "__dlpack__"))
        throw nb::type_error((std::string(name_) + " is a " + name_of_type(object_)
                              + "; it must be a NumPy array or have __dlpack__ (PyTorch, JAX, ...)")
                                 .c_str());
    if (how == access::write && is_jax(object_))
        refuse(name_, "is a JAX array; these never change, so it cannot be an output");
    bool taken = false;
    if (how == access::read) {
        taken = nb::try_cast(object_, exported_, false);
    } else if (nb::ndarray<> writable; nb::try_cast(object_, writable, false)) {
        exported_ = nb::ndarray<nb::ro>(writable);
        taken = true;
    }
    if (!taken) {
        object_.attr("__dlpack__")();  // its own error, if it has one, says best what is wrong
        refuse(name_, how == access::write ? "cannot be written through DLPack; an output must be "
                                             "writable memory of the CPU"
                                           : "cannot be read through DLPack");
    }
    if (exported_.device_type() != nb::device::cpu::value)
        refuse(name_, "is not in the memory of the CPU (DLPack device type "
                          + std::to_string(exported_.device_type()) + ")");
    found.data = const_cast<void *>(static_cast<const void *>(exported_.data()));
    found.type = type_from_dlpack(exported_.dtype());
    if (found.type == data_type::undef)
        refuse_type(name_, nb::hasattr(object_, "dtype")
                               ? dtype_name(object_)
                               : "number " + std::to_string(exported_.dtype().code) + " of DLPack");
    const auto size = static_cast<dim>(size_of(found.type));
    for (std::size_t i = 0; i < exported_.ndim(); ++i) {
        found.shape.push_back(static_cast<dim>(exported_.shape(i)));
        found.byte_strides.push_back(exported_.stride(i) * size);
    }
}

void array::take(description found, access how) {
    const auto size = static_cast<dim>(size_of(found.type));
    const bool empty = std::find(found.shape.begin(), found.shape.end(), 0) != found.shape.end();
    bool readable = empty || reinterpret_cast<std::uintptr_t>(found.data) % size == 0;
    for (std::size_t i = 0; i < found.shape.size() && !empty; ++i)
        if (found.shape[i] > 1)
            readable &= found.byte_strides[i] > 0 && found.byte_strides[i] % size == 0;
    if (!readable) {
        if (how == access::write)
            refuse(name_,
                "has strides of " + text_of(found.byte_strides)
                    + " bytes; an output needs an aligned address and positive strides of whole "
                      "elements");
        return copy_packed(found);
    }
    dims strides;
    if (!empty)
        for (dim s : found.byte_strides) strides.push_back(s / size);
    tensor_ = tensor(found.data, found.type, std::move(found.shape), std::move(strides));
}

void array::copy_packed(const description &from) {
    const std::size_t size = size_of(from.type);
    const std::size_t bytes = bytes_of(from.shape, from.type);
    copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    dims at(from.shape.size(), 0);
    const auto *in = static_cast<const std::byte *>(from.data);
    for (std::size_t done = 0; done < bytes; done += size) {
        std::memcpy(copy_.get() + done, in, size);
        for (std::size_t i = at.size(); i-- > 0;) {
            in += from.byte_strides[i];
            if (++at[i] < from.shape[i]) break;
            in -= from.byte_strides[i] * from.shape[i];
            at[i] = 0;
        }
    }
    tensor_ = tensor(static_cast<void *>(copy_.get()), from.type, from.shape);
}

logical_tensor describe_array(nb::handle object, std::string_view name) {
    const array a(object, name, access::read);
    return {0, a.get().type, a.get().shape, a.get().strides};
}

result::result(nb::handle like, dims shape, data_type type) {
    for (dim d : shape)
        if (d < 0)
            throw error(error_code::invalid_shape, "invalid shape: the result would be "
                                                       + text_of(shape)
                                                       + "; dimensions must not be negative");
    if (is_numpy(like) || is_torch(like)) {
        made_ = is_torch(like)
                    ? torch->empty(shape_tuple(shape), nb::arg("dtype") = torch_type(type))
                    : numpy->empty(shape_tuple(shape), numpy_type(like, type));
        const array memory(made_, "out", access::write);
        tensor_ = memory.get();
        return;
    }
    like_ = nb::borrow(like);
    nb::capsule owner = allocate(bytes_of(shape, type));
    tensor_ = tensor(owner.data(), type, std::move(shape));
    owner_ = std::move(owner);
}

nb::object result::finish() {
    if (made_.is_valid()) return made_;
    std::array<std::size_t, 8> shape{};
    std::copy(tensor_.shape.begin(), tensor_.shape.end(), shape.begin());
    const nb::ndarray<nb::array_api> exported(tensor_.data, tensor_.shape.size(), shape.data(),
        owner_, nullptr, dlpack_type(tensor_.type));
    const nb::object capsule = nb::cast(exported);
    if (is_jax(like_)) return nb::module_::import_("jax.numpy").attr("from_dlpack")(capsule);
    if (nb::hasattr(like_, "__array_namespace__"))
        return like_.attr("__array_namespace__")().attr("from_dlpack")(capsule);
    return load_numpy().from_dlpack(capsule);
}

void bind_arrays(nb::module_ &m) {
    nb::class_<raw_view>(m, "View").def("__init__",
        [](raw_view *self, std::uintptr_t data, int type, nb::handle shape, nb::handle strides) {
            new (self) raw_view{reinterpret_cast<void *>(data), static_cast<data_type>(type),
                dims_from_python(shape, "shape"), dims_from_python(strides, "strides")};
        });
}

}  // namespace convgrad::python

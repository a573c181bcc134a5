// Arrays of Python for the length of one call: NumPy through its buffers, PyTorch through its own
// accessors, everything else through DLPack; nothing copied that the library can read as it is.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <convgrad/tensor.hpp>

namespace convgrad::python {

namespace nb = nanobind;

/// Memory described by hand: what a framework's own glue passes to skip DLPack. The caller keeps
/// the memory alive.
struct raw_view {
    void *data = nullptr;
    data_type type = data_type::undef;
    dims shape, strides;
};

enum class access : std::uint8_t { read, write };

/// "f32", "float32", numpy.float32, torch.bfloat16, a dtype object, …; None: undef.
data_type type_from_python(nb::handle dtype);

/// One array argument. Keeps what it refers to alive; the GIL must be held when it goes.
class array {
public:
    /// `name` is the argument's, for messages. An input with strides that the library does not take
    /// (zero, negative, not whole elements) or an odd address is copied; an output is refused.
    array(nb::handle object, std::string_view name, access how);
    ~array();
    array(const array &) = delete;
    array &operator=(const array &) = delete;

    [[nodiscard]] const tensor &get() const noexcept { return tensor_; }
    [[nodiscard]] nb::handle object() const noexcept { return object_; }

private:
    /// What the producer says, strides in bytes.
    struct description {
        void *data = nullptr;
        data_type type = data_type::undef;
        dims shape, byte_strides;
    };
    bool read_numpy(description &found, access how);
    bool read_torch(description &found);
    void read_dlpack(description &found, access how);
    void take(description found, access how);
    void copy_packed(const description &from);

    nb::handle object_;
    std::string_view name_;
    tensor tensor_;
    Py_buffer buffer_{};
    nb::ndarray<nb::ro> exported_;
    nb::object kept_;
    std::unique_ptr<std::byte[]> copy_;
};

/// The description of an array, for compiling; the memory is not kept.
logical_tensor describe_array(nb::handle object, std::string_view name);

/// A new packed array of the same kind as another one.
class result {
public:
    result(nb::handle like, dims shape, data_type type);
    [[nodiscard]] const tensor &get() const noexcept { return tensor_; }
    /// The Python object, once its elements are there: some kinds copy when they take memory over.
    nb::object finish();

private:
    nb::object like_, made_, owner_;
    tensor tensor_;
};

}  // namespace convgrad::python

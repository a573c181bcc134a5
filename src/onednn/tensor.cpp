#include "onednn/tensor.hpp"

#include <cstring>
#include <memory>

#include "onednn/behind.hpp"
#include "onednn/guard.hpp"

using namespace convgrad::onednn;

namespace {

/// The one handle that is no address.
bool asks_for_memory(const void *handle) {
    return reinterpret_cast<std::uintptr_t>(handle) == UINTPTR_MAX;
}

bool is_host_scalar(const tensor_description &lt) {
    return lt.property == property_type::host_scalar;
}

}  // namespace

namespace convgrad::onednn {

std::optional<tensor_description> description_of(const library &next, const client_tensor *tensor) {
    tensor_description lt{};
    if (next.tensor_get_logical_tensor != nullptr) {
        if (next.tensor_get_logical_tensor(tensor, &lt) != status::success) return std::nullopt;
        return lt;
    }
    const auto known = notes<tensor_description>::get().find(tensor);
    if (known == nullptr) return std::nullopt;
    return *known;
}

}  // namespace convgrad::onednn

CONVGRAD_ONEDNN_API status dnnl_graph_tensor_create(
    client_tensor **made, const tensor_description *lt, client_engine *engine, void *handle) {
    if (any_null(made, lt, engine) || is_host_scalar(*lt)) return status::invalid_arguments;
    if (const library *next = behind()) {
        // Later versions tell what a tensor was made with.
        if (next->tensor_get_logical_tensor != nullptr)
            return next->tensor_create(made, lt, engine, handle);
        return create_and_note(
            "tensor_create", made,
            [&](client_tensor **theirs) { return next->tensor_create(theirs, lt, engine, handle); },
            next->tensor_destroy, [&] { return std::make_shared<tensor_description>(*lt); });
    }
    const bool wants_memory = asks_for_memory(handle);
    const std::size_t bytes = wants_memory ? memory_size(*lt) : 0;
    if (bytes == SIZE_MAX) return status::invalid_arguments;

    std::unique_ptr<client_tensor> tensor;
    allocator from;
    const status prepared = guarded("tensor_create", [&] {
        tensor = std::make_unique<client_tensor>();
        tensor->lt = *lt;
        tensor->engine = engine;
        tensor->data = wants_memory ? nullptr : handle;
        if (wants_memory) from = allocator_of(engine);
        return status::success;
    });
    if (prepared != status::success) return prepared;
    if (wants_memory) {
        tensor->owned.allocate(from, bytes);
        tensor->data = tensor->owned.data();
        if (tensor->data == nullptr) return status::out_of_memory;
    }
    *made = tensor.release();
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_tensor_create_scalar(
    client_tensor **made, const tensor_description *lt, void *handle) {
    if (any_null(made, lt, handle) || asks_for_memory(handle) || !is_host_scalar(*lt))
        return status::invalid_arguments;
    if (const library *next = behind())
        return call_later(next->tensor_create_scalar, made, lt, handle);
    const std::size_t bytes = lt->type == element_type::s64 ? 8 : 4;
    if (bytes == 4 && lt->type != element_type::s32 && lt->type != element_type::f32)
        return status::invalid_arguments;
    return guarded("tensor_create_scalar", [&] {
        auto tensor = std::make_unique<client_tensor>();
        tensor->lt = *lt;
        std::memcpy(&tensor->scalar_bits, handle, bytes);
        tensor->data = &tensor->scalar_bits;
        *made = tensor.release();
        return status::success;
    });
}

CONVGRAD_ONEDNN_API status dnnl_graph_tensor_destroy(client_tensor *given) {
    if (const library *next = behind()) {
        if (next->tensor_get_logical_tensor == nullptr)
            notes<tensor_description>::get().drop(given);
        return next->tensor_destroy(given);
    }
    const std::unique_ptr<client_tensor> tensor(given);
    if (tensor != nullptr) tensor->owned.release();
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_tensor_get_data_handle(
    const client_tensor *tensor, void **handle) {
    if (any_null(tensor, handle)) return status::invalid_arguments;
    if (const library *next = behind()) return next->tensor_get_data_handle(tensor, handle);
    *handle = is_host_scalar(tensor->lt) ? nullptr : tensor->data;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_tensor_set_data_handle(client_tensor *tensor, void *handle) {
    if (tensor == nullptr) return status::invalid_arguments;
    if (const library *next = behind()) return next->tensor_set_data_handle(tensor, handle);
    if (is_host_scalar(tensor->lt)) return status::invalid_arguments;
    tensor->data = handle;
    tensor->owned.release();
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_tensor_get_engine(
    const client_tensor *tensor, client_engine **engine) {
    if (any_null(tensor, engine)) return status::invalid_arguments;
    if (const library *next = behind()) return next->tensor_get_engine(tensor, engine);
    *engine = tensor->engine;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_tensor_get_logical_tensor(
    const client_tensor *tensor, tensor_description *lt) {
    if (any_null(tensor, lt)) return status::invalid_arguments;
    if (const library *next = behind()) {
        const auto known = description_of(*next, tensor);
        if (!known) return status::unimplemented;
        *lt = *known;
        return status::success;
    }
    *lt = tensor->lt;
    return status::success;
}

// Process-wide settings. In front of oneDNN they are its own. The caches that they speak of do not
// exist here, because compiling costs microseconds and weights are used as they lie: alone, the
// values are kept, so that clients read back what they set.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "onednn/behind.hpp"
#include "onednn/compiled.hpp"

using namespace convgrad::onednn;

namespace {

std::atomic<int> compiled_partition_cache_capacity = 1024;
/// Bytes, by engine kind.
std::array<std::atomic<std::size_t>, 3> constant_tensor_cache_capacity;
constexpr std::size_t megabyte = std::size_t{1} << 20;

std::atomic<std::size_t> *constant_cache_of(engine_kind_value kind) {
    const auto index = static_cast<std::size_t>(kind);
    return index < constant_tensor_cache_capacity.size() ? &constant_tensor_cache_capacity[index]
                                                         : nullptr;
}

}  // namespace

CONVGRAD_ONEDNN_API status dnnl_graph_get_compiled_partition_cache_capacity(int *capacity) {
    if (capacity == nullptr) return status::invalid_arguments;
    if (const library *next = behind())
        return next->get_compiled_partition_cache_capacity(capacity);
    *capacity = compiled_partition_cache_capacity;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_set_compiled_partition_cache_capacity(int capacity) {
    if (const library *next = behind())
        return next->set_compiled_partition_cache_capacity(capacity);
    if (capacity < 0) return status::invalid_arguments;
    compiled_partition_cache_capacity = capacity;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_set_constant_tensor_cache_capacity(
    engine_kind_value kind, std::size_t megabytes) {
    if (const library *next = behind())
        return call_later(next->set_constant_tensor_cache_capacity, kind, megabytes);
    auto *cache = constant_cache_of(kind);
    if (cache == nullptr) return status::invalid_arguments;
    *cache = megabytes < SIZE_MAX / megabyte ? megabytes * megabyte : SIZE_MAX;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_get_constant_tensor_cache_capacity(
    engine_kind_value kind, std::size_t *megabytes) {
    if (megabytes == nullptr) return status::invalid_arguments;
    if (const library *next = behind())
        return call_later(next->get_constant_tensor_cache_capacity, kind, megabytes);
    auto *cache = constant_cache_of(kind);
    if (cache == nullptr) return status::invalid_arguments;
    *megabytes = *cache / megabyte;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_set_constant_tensor_cache(int flag) {
    if (const library *next = behind()) return next->set_constant_tensor_cache(flag);
    if (flag < 0) return status::invalid_arguments;
    for (const auto kind : {engine_kind_value::cpu, engine_kind_value::gpu})
        *constant_cache_of(kind) = flag == 0 ? 0 : SIZE_MAX;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_get_constant_tensor_cache(int *flag) {
    if (flag == nullptr) return status::invalid_arguments;
    if (const library *next = behind()) return next->get_constant_tensor_cache(flag);
    *flag = 0;
    for (const auto kind : {engine_kind_value::cpu, engine_kind_value::gpu})
        if (*constant_cache_of(kind) >= megabyte) *flag = 1;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_set_dump_mode(unsigned modes) {
    if (const library *next = behind()) return call_later(next->set_dump_mode, modes);
    constexpr unsigned known = dump_mode_subgraph | dump_mode_graph;
    return (modes & ~known) == 0 ? status::success : status::invalid_arguments;
}

// SYCL's side of the interface, which oneDNN exports in CPU builds too: alone, this library has
// none.
CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_allocator_create(
    allocator **made, void *allocate, void *deallocate) {
    const library *next = behind();
    if (next == nullptr) return status::unimplemented;
    return call_later(next->sycl_interop_allocator_create, made, allocate, deallocate);
}

CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_make_engine_with_allocator(
    client_engine **engine, const void *device, const void *context, const allocator *given) {
    const library *next = behind();
    if (next == nullptr) return status::unimplemented;
    return call_later(
        next->sycl_interop_make_engine_with_allocator, engine, device, context, given);
}

CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_compiled_partition_execute(
    const client_compiled_partition *compiled, client_stream *stream, std::size_t input_count,
    const client_tensor **inputs, std::size_t output_count, const client_tensor **outputs,
    const void *dependencies, void *event) {
    const library *next = behind();
    if (next == nullptr || is_ours(compiled)) return status::unimplemented;
    return call_later(next->sycl_interop_compiled_partition_execute, compiled, stream, input_count,
        inputs, output_count, outputs, dependencies, event);
}

CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_compiled_partition_execute_v2(
    const client_compiled_partition *compiled, client_stream *stream, std::size_t input_count,
    const client_tensor **inputs, std::size_t output_count, const client_tensor **outputs,
    const client_tensor *scratchpad, const void *dependencies, void *event) {
    const library *next = behind();
    if (next == nullptr || is_ours(compiled)) return status::unimplemented;
    return call_later(next->sycl_interop_compiled_partition_execute_v2, compiled, stream,
        input_count, inputs, output_count, outputs, scratchpad, dependencies, event);
}

// Process-wide settings. The caches that they speak of do not exist here, because compiling costs
// microseconds and weights are used as they lie: the values are kept, so that clients read back
// what they set.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "onednn/abi.hpp"

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
    *capacity = compiled_partition_cache_capacity;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_set_compiled_partition_cache_capacity(int capacity) {
    if (capacity < 0) return status::invalid_arguments;
    compiled_partition_cache_capacity = capacity;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_set_constant_tensor_cache_capacity(
    engine_kind_value kind, std::size_t megabytes) {
    auto *cache = constant_cache_of(kind);
    if (cache == nullptr) return status::invalid_arguments;
    *cache = megabytes < SIZE_MAX / megabyte ? megabytes * megabyte : SIZE_MAX;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_get_constant_tensor_cache_capacity(
    engine_kind_value kind, std::size_t *megabytes) {
    auto *cache = constant_cache_of(kind);
    if (cache == nullptr || megabytes == nullptr) return status::invalid_arguments;
    *megabytes = *cache / megabyte;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_set_constant_tensor_cache(int flag) {
    if (flag < 0) return status::invalid_arguments;
    for (const auto kind : {engine_kind_value::cpu, engine_kind_value::gpu})
        *constant_cache_of(kind) = flag == 0 ? 0 : SIZE_MAX;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_get_constant_tensor_cache(int *flag) {
    if (flag == nullptr) return status::invalid_arguments;
    *flag = 0;
    for (const auto kind : {engine_kind_value::cpu, engine_kind_value::gpu})
        if (*constant_cache_of(kind) >= megabyte) *flag = 1;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_set_dump_mode(unsigned modes) {
    constexpr unsigned known = dump_mode_subgraph | dump_mode_graph;
    return (modes & ~known) == 0 ? status::success : status::invalid_arguments;
}

// SYCL's side of the interface, which oneDNN exports in CPU builds too: also taken over, so that no
// handle of ours ever reaches oneDNN.
CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_allocator_create(void *, void *, void *) {
    return status::unimplemented;
}

CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_make_engine_with_allocator(
    void *, const void *, const void *, const void *) {
    return status::unimplemented;
}

CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_compiled_partition_execute(const void *, void *,
    std::size_t, const void *, std::size_t, const void *, const void *, void *) {
    return status::unimplemented;
}

CONVGRAD_ONEDNN_API status dnnl_graph_sycl_interop_compiled_partition_execute_v2(const void *,
    void *, std::size_t, const void *, std::size_t, const void *, const void *, const void *,
    void *) {
    return status::unimplemented;
}

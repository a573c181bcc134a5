// A small oneDNN with graphs, for the drop-in to stand in front of. It keeps the rules that the
// drop-in must not disturb (partitions with ids and an order, statuses, opaque layouts), computes
// Abs and Square, and fills the results of convolutions with a number that no convolution of the
// tests has, so that a test sees who ran.
//
// Environment: FAKE_DNNL_MAJOR is the version that it says; FAKE_DNNL_ABI=other fills descriptions
// in another way. The functions fake_dnnl_* are for the tests.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl_graph.h>

#define FAKE_API extern "C" __attribute__((visibility("default")))

using description = dnnl_graph_logical_tensor_t;

namespace {

/// Handles that exist, of all kinds.
std::atomic<int> live = 0;
/// What compiling a convolution does: 0 succeeds, 1 fails, 2 throws.
std::atomic<int> convolution_compile = 0;
std::atomic<int> waits = 0, executions = 0;
std::atomic<int> cache_capacity = 77, constant_cache = 0;
std::atomic<std::size_t> next_partition = 1000;

struct counted {
    counted() { ++live; }
    counted(const counted &) { ++live; }
    ~counted() { --live; }
    counted &operator=(const counted &) = delete;
};

constexpr std::size_t own_layout = 7;

}  // namespace

struct dnnl_engine : counted {
    unsigned long mark = 0x5ca1ab1e0ff1ce00UL;
    dnnl_engine_kind_t kind = dnnl_cpu;
    dnnl_graph_host_allocate_f allocate = nullptr;
    dnnl_graph_host_deallocate_f deallocate = nullptr;
};
struct dnnl_stream : counted {
    unsigned long mark = 0xdecafbad0ff1ce00UL;
    dnnl_engine *engine = nullptr;
};
struct dnnl_graph_allocator : counted {
    dnnl_graph_host_allocate_f allocate = nullptr;
    dnnl_graph_host_deallocate_f deallocate = nullptr;
};
struct dnnl_graph_op : counted {
    std::size_t id = 0;
    int kind = 0;
    std::string name;
    std::vector<int> attributes;
    std::vector<description> inputs, outputs;

    [[nodiscard]] bool has(dnnl_graph_op_attr_t name_) const {
        return std::count(attributes.begin(), attributes.end(), static_cast<int>(name_)) > 0;
    }
};

namespace {

struct partition_body {
    std::size_t id = next_partition++;
    std::vector<std::shared_ptr<dnnl_graph_op>> ops;
    bool supported = false;

    [[nodiscard]] bool writes(std::size_t tensor) const {
        for (const auto &op : ops)
            for (const description &lt : op->outputs)
                if (lt.id == tensor) return true;
        return false;
    }
    [[nodiscard]] bool reads(std::size_t tensor) const {
        for (const auto &op : ops)
            for (const description &lt : op->inputs)
                if (lt.id == tensor) return true;
        return false;
    }
    [[nodiscard]] std::vector<description> ports(bool inputs) const {
        std::vector<description> found;
        for (const auto &op : ops)
            for (const description &lt : inputs ? op->inputs : op->outputs)
                if (inputs ? !writes(lt.id) : !reads(lt.id)) found.push_back(lt);
        return found;
    }
};

}  // namespace

struct dnnl_graph_graph : counted {
    dnnl_engine_kind_t engine = dnnl_cpu;
    dnnl_fpmath_mode_t mode = dnnl_fpmath_mode_strict;
    int apply_to_int = 0;
    bool finalized = false;
    std::vector<std::shared_ptr<dnnl_graph_op>> ops;
    std::vector<std::shared_ptr<partition_body>> partitions;
};
struct dnnl_graph_partition : counted {
    std::shared_ptr<partition_body> body;
};
struct dnnl_graph_compiled_partition : counted {
    std::shared_ptr<partition_body> body;
    std::vector<description> inputs, outputs;
};
struct dnnl_graph_tensor : counted {
    description lt{};
    dnnl_engine *engine = nullptr;
    void *data = nullptr;
    void *owned = nullptr;
};

namespace {

bool is_convolution(const dnnl_graph_op &op) {
    return op.kind >= dnnl_graph_op_convolution
           && op.kind <= dnnl_graph_op_conv_transpose_backward_weights;
}
bool is_simple(const dnnl_graph_op &op) {
    return op.kind == dnnl_graph_op_abs || op.kind == dnnl_graph_op_square;
}
bool may_follow(const dnnl_graph_op &op) {
    return op.kind == dnnl_graph_op_bias_add || op.kind == dnnl_graph_op_relu
           || op.kind == dnnl_graph_op_gelu;
}
bool is_supported(const partition_body &body) {
    const dnnl_graph_op &first = *body.ops[0];
    if (!is_convolution(first) && !is_simple(first)) return false;
    return first.inputs.empty() || first.inputs[0].data_type != dnnl_f16;
}

std::size_t elements_of(const description &lt) {
    std::size_t count = 1;
    for (int i = 0; i < lt.ndims; ++i)
        count *= static_cast<std::size_t>(std::max<dnnl_dim_t>(lt.dims[i], 0));
    return count;
}
std::size_t size_of(dnnl_data_type_t type) {
    return type == dnnl_f16 || type == dnnl_bf16 ? 2 : type == dnnl_u8 ? 1 : 4;
}

bool same(const description &a, const description &b) {
    if (a.id != b.id || a.ndims != b.ndims || a.data_type != b.data_type
        || a.layout_type != b.layout_type)
        return false;
    return a.ndims <= 0 || std::equal(a.dims, a.dims + a.ndims, b.dims);
}

/// A chain of ops that is run as one starts with a convolution.
std::vector<std::shared_ptr<partition_body>> partition(const dnnl_graph_graph &graph, bool fuse) {
    std::vector<std::shared_ptr<partition_body>> made;
    std::map<std::size_t, std::shared_ptr<partition_body>> writer;
    for (const auto &op : graph.ops) {
        std::shared_ptr<partition_body> body;
        int readers = 0;
        for (const auto &other : graph.ops)
            for (const description &lt : other->inputs)
                readers += !op->inputs.empty() && lt.id == op->inputs[0].id ? 1 : 0;
        const auto before = op->inputs.empty() ? writer.end() : writer.find(op->inputs[0].id);
        if (fuse && may_follow(*op) && before != writer.end() && readers == 1
            && before->second->supported && is_convolution(*before->second->ops[0]))
            body = before->second;
        else
            made.push_back(body = std::make_shared<partition_body>());
        body->ops.push_back(op);
        body->supported = is_supported(*body);
        for (const description &lt : op->outputs) writer[lt.id] = body;
    }
    return made;
}

void set_packed(description &lt) {
    lt.layout_type = dnnl_graph_layout_type_strided;
    dnnl_dim_t packed = 1;
    for (int i = lt.ndims; i-- > 0; packed *= lt.dims[i]) lt.layout.strides[i] = packed;
}

/// Elements of an opaque tensor lie in reverse order.
std::size_t place(const description &lt, std::size_t i) {
    return lt.layout_type == dnnl_graph_layout_type_opaque ? elements_of(lt) - 1 - i : i;
}

void compute(const dnnl_graph_compiled_partition &c, const dnnl_graph_tensor &in,
    const dnnl_graph_tensor &out) {
    const auto *from = static_cast<const float *>(in.data);
    auto *to = static_cast<float *>(out.data);
    const description &source = c.inputs[0], &result = c.outputs[0];
    for (std::size_t i = 0; i < elements_of(result); ++i) {
        const float x = is_simple(*c.body->ops[0]) ? from[place(source, i)] : 0;
        const float y = c.body->ops[0]->kind == dnnl_graph_op_abs ? std::fabs(x) : x * x;
        to[place(result, i)] = is_simple(*c.body->ops[0]) ? y : 4242.0F;
    }
}

template <typename T>
void destroy(T *handle) {
    delete handle;
}

}  // namespace

FAKE_API int fake_dnnl_live() {
    return live;
}
FAKE_API void fake_dnnl_convolution_compile(int what) {
    convolution_compile = what;
}
FAKE_API int fake_dnnl_executions() {
    return executions;
}
FAKE_API int fake_dnnl_waits() {
    return waits;
}
/// A function that the drop-in has never heard of.
FAKE_API dnnl_status_t dnnl_graph_partition_fake_newer(
    const_dnnl_graph_partition_t partition, std::size_t *answer) {
    *answer = partition->body->id * 2 + partition->body->ops.size();
    return dnnl_success;
}

FAKE_API const dnnl_version_t *dnnl_version() {
    static const dnnl_version_t version = [] {
        const char *major = std::getenv("FAKE_DNNL_MAJOR");
        return dnnl_version_t{
            major != nullptr ? std::atoi(major) : 3, 99, 1, "fake", DNNL_RUNTIME_SEQ, 0};
    }();
    return &version;
}

// Engines and streams.
FAKE_API std::size_t dnnl_engine_get_count(dnnl_engine_kind_t kind) {
    return kind == dnnl_cpu ? 1 : 0;
}
FAKE_API dnnl_status_t dnnl_engine_create(
    dnnl_engine_t *engine, dnnl_engine_kind_t kind, std::size_t index) {
    if (engine == nullptr || kind != dnnl_cpu || index != 0) return dnnl_invalid_arguments;
    *engine = new dnnl_engine;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_engine_get_kind(dnnl_engine_t engine, dnnl_engine_kind_t *kind) {
    if (engine->mark != 0x5ca1ab1e0ff1ce00UL) std::abort();
    *kind = engine->kind;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_engine_destroy(dnnl_engine_t engine) {
    destroy(engine);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_stream_create(dnnl_stream_t *stream, dnnl_engine_t engine, unsigned) {
    *stream = new dnnl_stream;
    (*stream)->engine = engine;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_stream_get_engine(const_dnnl_stream_t stream, dnnl_engine_t *engine) {
    if (stream->mark != 0xdecafbad0ff1ce00UL) std::abort();
    *engine = stream->engine;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_stream_wait(dnnl_stream_t) {
    ++waits;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_stream_destroy(dnnl_stream_t stream) {
    destroy(stream);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_allocator_create(dnnl_graph_allocator_t *allocator,
    dnnl_graph_host_allocate_f allocate, dnnl_graph_host_deallocate_f deallocate) {
    *allocator = new dnnl_graph_allocator;
    (*allocator)->allocate = allocate;
    (*allocator)->deallocate = deallocate;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_allocator_destroy(dnnl_graph_allocator_t allocator) {
    destroy(allocator);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_make_engine_with_allocator(dnnl_engine_t *engine,
    dnnl_engine_kind_t kind, std::size_t index, const_dnnl_graph_allocator_t allocator) {
    const dnnl_status_t made = dnnl_engine_create(engine, kind, index);
    if (made != dnnl_success) return made;
    (*engine)->allocate = allocator->allocate;
    (*engine)->deallocate = allocator->deallocate;
    return dnnl_success;
}

// Logical tensors.
FAKE_API dnnl_status_t dnnl_graph_logical_tensor_init_with_strides(description *lt, std::size_t id,
    dnnl_data_type_t type, std::int32_t ndims, const dnnl_dims_t dims, const dnnl_dims_t strides,
    dnnl_graph_tensor_property_t property) {
    if (lt == nullptr || ndims < 0 || ndims > DNNL_MAX_NDIMS) return dnnl_invalid_arguments;
    *lt = description{};
    lt->id = id;
    lt->ndims = ndims;
    lt->data_type = type;
    lt->property = property;
    lt->layout_type = dnnl_graph_layout_type_strided;
    const char *abi = std::getenv("FAKE_DNNL_ABI");
    const int shift = abi != nullptr && std::strcmp(abi, "other") == 0 ? 1 : 0;
    for (int i = 0; i < ndims; ++i) {
        lt->dims[i + shift] = dims[i];
        lt->layout.strides[i] = strides[i];
    }
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_logical_tensor_init_with_dims(description *lt, std::size_t id,
    dnnl_data_type_t type, std::int32_t ndims, const dnnl_dims_t dims,
    dnnl_graph_layout_type_t layout, dnnl_graph_tensor_property_t property) {
    const dnnl_dims_t none = {};
    const dnnl_status_t made =
        dnnl_graph_logical_tensor_init_with_strides(lt, id, type, ndims, dims, none, property);
    if (made != dnnl_success) return made;
    set_packed(*lt);
    lt->layout_type = layout;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_logical_tensor_init(description *lt, std::size_t id,
    dnnl_data_type_t type, std::int32_t ndims, dnnl_graph_layout_type_t layout,
    dnnl_graph_tensor_property_t property) {
    *lt = description{};
    lt->id = id;
    lt->ndims = ndims;
    lt->data_type = type;
    lt->layout_type = layout;
    lt->property = property;
    std::fill(lt->dims, lt->dims + DNNL_MAX_NDIMS, DNNL_GRAPH_UNKNOWN_DIM);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_logical_tensor_get_mem_size(
    const description *lt, std::size_t *size) {
    *size = lt->layout_type == dnnl_graph_layout_type_any
                ? SIZE_MAX
                : elements_of(*lt) * size_of(lt->data_type);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_logical_tensor_is_equal(
    const description *a, const description *b, std::uint8_t *equal) {
    *equal = same(*a, *b) ? 1 : 0;
    return dnnl_success;
}

// Tensors.
FAKE_API dnnl_status_t dnnl_graph_tensor_create(
    dnnl_graph_tensor_t *tensor, const description *lt, dnnl_engine_t engine, void *handle) {
    auto made = std::make_unique<dnnl_graph_tensor>();
    made->lt = *lt;
    made->engine = engine;
    made->data = handle;
    if (reinterpret_cast<std::uintptr_t>(handle) == UINTPTR_MAX) {
        made->owned = made->data = engine->allocate == nullptr
                                       ? std::malloc(elements_of(*lt) * size_of(lt->data_type))
                                       : engine->allocate(elements_of(*lt) * 4, 64);
        if (made->owned == nullptr) return dnnl_out_of_memory;
    }
    *tensor = made.release();
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_tensor_destroy(dnnl_graph_tensor_t tensor) {
    if (tensor != nullptr && tensor->owned != nullptr) {
        if (tensor->engine->deallocate == nullptr)
            std::free(tensor->owned);
        else
            tensor->engine->deallocate(tensor->owned);
    }
    destroy(tensor);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_tensor_get_data_handle(
    const_dnnl_graph_tensor_t tensor, void **handle) {
    *handle = tensor->data;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_tensor_set_data_handle(dnnl_graph_tensor_t tensor, void *handle) {
    tensor->data = handle;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_tensor_get_engine(
    const_dnnl_graph_tensor_t tensor, dnnl_engine_t *engine) {
    *engine = tensor->engine;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_tensor_get_logical_tensor(
    const_dnnl_graph_tensor_t tensor, description *lt) {
    *lt = tensor->lt;
    return dnnl_success;
}

// Ops.
FAKE_API dnnl_status_t dnnl_graph_op_create(
    dnnl_graph_op_t *op, std::size_t id, dnnl_graph_op_kind_t kind, const char *name) {
    auto made = std::make_unique<dnnl_graph_op>();
    made->id = id;
    std::memcpy(&made->kind, &kind, sizeof(kind));  // also one that the header does not have
    made->name = name;
    *op = made.release();
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_op_destroy(dnnl_graph_op_t op) {
    destroy(op);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_op_add_input(dnnl_graph_op_t op, const description *lt) {
    op->inputs.push_back(*lt);
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_op_add_output(dnnl_graph_op_t op, const description *lt) {
    op->outputs.push_back(*lt);
    return dnnl_success;
}
#define FAKE_ATTRIBUTE(suffix, type)                                                               \
    FAKE_API dnnl_status_t dnnl_graph_op_set_attr_##suffix(                                        \
        dnnl_graph_op_t op, dnnl_graph_op_attr_t name, const type *, std::size_t) {                \
        op->attributes.push_back(static_cast<int>(name));                                          \
        return dnnl_success;                                                                       \
    }
FAKE_ATTRIBUTE(f32, float)
FAKE_ATTRIBUTE(bool, std::uint8_t)
FAKE_ATTRIBUTE(s64, std::int64_t)
FAKE_ATTRIBUTE(str, char)
FAKE_API dnnl_status_t dnnl_graph_op_get_id(const_dnnl_graph_op_t op, std::size_t *id) {
    *id = op->id;
    return dnnl_success;
}
FAKE_API dnnl_status_t dnnl_graph_op_get_kind(
    const_dnnl_graph_op_t op, dnnl_graph_op_kind_t *kind) {
    *kind = static_cast<dnnl_graph_op_kind_t>(op->kind);
    return dnnl_success;
}

#include "fake_dnnl_graph.inl"

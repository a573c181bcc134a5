#include "onednn/description.hpp"

#include <algorithm>

#include <convgrad/error.hpp>

#include "onednn/behind.hpp"
#include "onednn/guard.hpp"
#include "op/message.hpp"

namespace convgrad::onednn {
namespace {

/// Bits of one element.
std::size_t bits_of(element_type type) {
    switch (type) {
    case element_type::undef:
        return 0;
    case element_type::s4:
    case element_type::u4:
    case element_type::f4_e2m1:
        return 4;
    case element_type::s8:
    case element_type::u8:
    case element_type::boolean:
    case element_type::f8_e5m2:
    case element_type::f8_e4m3:
    case element_type::e8m0:
    case element_type::f4_e3m0:
        return 8;
    case element_type::f16:
    case element_type::bf16:
        return 16;
    case element_type::f32:
    case element_type::s32:
        return 32;
    case element_type::f64:
    case element_type::s64:
        return 64;
    }
    return 0;
}

std::size_t rank_of(const tensor_description &lt) {
    return static_cast<std::size_t>(std::max(lt.ndims, 0));
}

dims dims_of(const tensor_description &lt) {
    return {lt.dims, lt.dims + rank_of(lt)};
}

/// The client's strides, or none where it gave none (packed then).
dims strides_of(const tensor_description &lt) {
    if (lt.layout != layout_type::strided) return {};
    dims strides(lt.strides, lt.strides + rank_of(lt));
    const auto unknown = [](dim s) { return s == unknown_dimension; };
    if (std::any_of(strides.begin(), strides.end(), unknown)) return {};
    return strides;
}

[[noreturn]] void refuse(const tensor_description &lt, std::string_view text) {
    throw error(
        error_code::invalid_argument, ops::cat("invalid argument: tensor ", lt.id, " ", text));
}

void check_common(const tensor_description &lt) {
    if (!has_valid_rank(lt))
        refuse(lt, ops::cat("has rank ", lt.ndims, "; at most 12 is possible"));
    if (to_data_type(lt.type) == data_type::undef)
        refuse(lt, ops::cat("has data type ", static_cast<int>(lt.type),
                       "; f32, bf16 and f16 are computed with"));
    if (lt.layout == layout_type::opaque)
        refuse(lt, "has an opaque layout; this library never makes one");
}

}  // namespace

data_type to_data_type(element_type type) {
    switch (type) {
    case element_type::f32:
        return data_type::f32;
    case element_type::bf16:
        return data_type::bf16;
    case element_type::f16:
        return data_type::f16;
    case element_type::s32:
        return data_type::s32;
    default:
        return data_type::undef;
    }
}

std::string name_of(element_type type) {
    static constexpr const char *names[] = {"undef", "f16", "bf16", "f32", "s32", "s8", "u8", "f64",
        "boolean", "f8_e5m2", "f8_e4m3", "s4", "u4", "e8m0", "f4_e2m1", "f4_e3m0", "s64"};
    const auto at = static_cast<std::size_t>(type);
    return at < std::size(names) ? names[at] : ops::cat("type ", static_cast<int>(type));
}

bool has_valid_rank(const tensor_description &lt) {
    return lt.ndims >= unknown_ndims && lt.ndims <= max_ndims;
}

bool same_description(const tensor_description &a, const tensor_description &b) {
    if (a.ndims != b.ndims || a.type != b.type || a.property != b.property || a.layout != b.layout)
        return false;
    const std::size_t rank = std::min(rank_of(a), std::size_t{max_ndims});
    if (!std::equal(a.dims, a.dims + rank, b.dims)) return false;
    if (a.layout == layout_type::strided) return std::equal(a.strides, a.strides + rank, b.strides);
    return a.layout != layout_type::opaque || a.layout_id == b.layout_id;
}

std::size_t memory_size(const tensor_description &lt) {
    if (lt.layout != layout_type::strided) return SIZE_MAX;
    if (!has_valid_rank(lt) || lt.ndims == unknown_ndims) return 0;
    // Up to the end of the longest axis, as oneDNN counts; where axes interleave, up to the last
    // element, which may lie behind that.
    std::size_t elements = lt.ndims == 0 ? 1 : 0, last = 0;
    for (std::size_t i = 0; i < rank_of(lt); ++i) {
        const dim size = lt.dims[i], stride = size == 1 ? 1 : lt.strides[i];
        if (size <= 0 || stride < 0) return 0;
        std::size_t span = 0;
        if (__builtin_mul_overflow(
                static_cast<std::size_t>(size), static_cast<std::size_t>(stride), &span)
            || __builtin_add_overflow(last, span - static_cast<std::size_t>(stride), &last))
            return SIZE_MAX;
        elements = std::max({elements, span, last + 1});
    }
    std::size_t bits = 0;
    if (__builtin_mul_overflow(elements, bits_of(lt.type), &bits)) return SIZE_MAX;
    return bits / 8 + (bits % 8 != 0 ? 1 : 0);
}

logical_tensor port_of(const tensor_description &lt) {
    logical_tensor port(lt.id, to_data_type(lt.type));
    if (!has_valid_rank(lt) || lt.ndims == unknown_ndims) return port;
    port.shape = dims_of(lt);
    for (dim &d : *port.shape)
        if (d < 0) d = unknown_dim;
    return port;
}

logical_tensor input_of(const tensor_description &lt) {
    check_common(lt);
    if (lt.layout == layout_type::undef)
        refuse(lt, "is an input without a layout; compiling needs strided or any");
    logical_tensor known(lt.id, to_data_type(lt.type));
    if (lt.ndims != unknown_ndims) known.shape = dims_of(lt);
    if (!known.is_known()) refuse(lt, "is an input of unknown shape; compiling needs it");
    known.strides = strides_of(lt);
    return known;
}

logical_tensor output_of(const tensor_description &lt, bool lenient) {
    check_common(lt);
    logical_tensor open(lt.id, to_data_type(lt.type));
    if (lt.ndims == unknown_ndims) return open;
    open.shape = dims_of(lt);
    if (lenient)
        for (dim &d : *open.shape)
            if (d < 0) d = unknown_dim;
    if (open.is_known()) open.strides = strides_of(lt);
    return open;
}

tensor_description strided(tensor_description lt, const logical_tensor &compiled) {
    lt.layout = layout_type::strided;
    const std::size_t rank = compiled.shape ? compiled.shape->size() : 0;
    lt.ndims = compiled.shape ? static_cast<int>(rank) : unknown_ndims;
    std::fill(lt.strides, lt.strides + max_ndims, compiled.is_known() ? 0 : unknown_dimension);
    dim packed = 1;
    for (std::size_t i = rank; i-- > 0;) {
        const dim size = (*compiled.shape)[i];
        lt.dims[i] = size;
        if (!compiled.is_known()) continue;
        lt.strides[i] = compiled.strides.empty() ? packed : compiled.strides[i];
        packed *= std::max(size, dim{1});
    }
    return lt;
}

bool fits(const tensor_description &lt, const logical_tensor &compiled) {
    if (to_data_type(lt.type) != compiled.type || lt.layout == layout_type::opaque) return false;
    if (lt.ndims == unknown_ndims) return true;
    const dims &shape = *compiled.shape;
    if (lt.ndims != static_cast<int>(shape.size())) return false;
    bool has_strides = lt.layout == layout_type::strided;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (lt.dims[i] != unknown_dimension && lt.dims[i] != shape[i]) return false;
        if (lt.strides[i] == unknown_dimension) has_strides = false;
    }
    if (!has_strides || std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
    const bool packed = compiled.strides.empty();
    dim stride = 1;  // where packed
    for (std::size_t i = shape.size(); i-- > 0;) {
        if (shape[i] != 1 && lt.strides[i] != (packed ? stride : compiled.strides[i])) return false;
        if (packed) stride *= shape[i];
    }
    return true;
}

tensor tensor_at(void *data, const logical_tensor &compiled) {
    return {data, compiled.type, compiled.shape.value_or(dims{}), compiled.strides};
}

}  // namespace convgrad::onednn

using namespace convgrad::onednn;

namespace {

/// A scalar on the host: no dimensions, and a type that such a scalar may have.
bool is_valid(element_type type, int ndims, property_type property) {
    if (property != property_type::host_scalar) return true;
    return ndims == 0
           && (type == element_type::s32 || type == element_type::f32 || type == element_type::s64);
}

tensor_description empty_description(
    std::size_t id, element_type type, int ndims, layout_type layout, property_type property) {
    tensor_description lt{};
    lt.id = id;
    lt.type = type;
    lt.ndims = ndims;
    lt.layout = layout;
    lt.property = property;
    if (ndims != 0) std::fill(lt.strides, lt.strides + max_ndims, unknown_dimension);
    return lt;
}

}  // namespace

CONVGRAD_ONEDNN_API status dnnl_graph_logical_tensor_init(tensor_description *made, std::size_t id,
    element_type type, std::int32_t ndims, layout_type layout, property_type property) {
    if (made == nullptr) return status::invalid_arguments;
    if (const library *next = behind())
        return next->logical_tensor_init(made, id, type, ndims, layout, property);
    if (ndims > max_ndims || !is_valid(type, ndims, property)) return status::invalid_arguments;
    *made = empty_description(id, type, ndims, layout, property);
    if (ndims != 0) std::fill(made->dims, made->dims + max_ndims, unknown_dimension);
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_logical_tensor_init_with_dims(tensor_description *made,
    std::size_t id, element_type type, std::int32_t ndims, const std::int64_t *dims,
    layout_type layout, property_type property) {
    if (made == nullptr) return status::invalid_arguments;
    if (const library *next = behind())
        return next->logical_tensor_init_with_dims(made, id, type, ndims, dims, layout, property);
    if (ndims < 0 || ndims > max_ndims || !is_valid(type, ndims, property)
        || (ndims > 0 && dims == nullptr))
        return status::invalid_arguments;
    tensor_description lt = empty_description(id, type, ndims, layout, property);
    std::copy(dims, dims + ndims, lt.dims);
    const bool known = std::all_of(dims, dims + ndims, [](std::int64_t d) { return d >= 0; });
    if (known && layout == layout_type::strided) {
        std::fill(lt.strides, lt.strides + max_ndims, 0);
        std::int64_t packed = 1;
        for (int i = ndims; i-- > 0;) {
            lt.strides[i] = packed;
            // A size that nobody can allocate must not overflow here.
            if (__builtin_mul_overflow(packed, std::max(dims[i], std::int64_t{1}), &packed))
                packed = INT64_MAX;
        }
    }
    *made = lt;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_logical_tensor_init_with_strides(tensor_description *made,
    std::size_t id, element_type type, std::int32_t ndims, const std::int64_t *dims,
    const std::int64_t *strides, property_type property) {
    if (made == nullptr) return status::invalid_arguments;
    if (const library *next = behind())
        return next->logical_tensor_init_with_strides(
            made, id, type, ndims, dims, strides, property);
    if (ndims < 0 || ndims > max_ndims || !is_valid(type, ndims, property)
        || (ndims > 0 && any_null(dims, strides)))
        return status::invalid_arguments;
    tensor_description lt = empty_description(id, type, ndims, layout_type::strided, property);
    std::fill(lt.strides, lt.strides + max_ndims, 0);
    std::copy(dims, dims + ndims, lt.dims);
    std::copy(strides, strides + ndims, lt.strides);
    *made = lt;
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_logical_tensor_get_mem_size(
    const tensor_description *lt, std::size_t *size) {
    if (any_null(lt, size)) return status::invalid_arguments;
    if (const library *next = behind()) return next->logical_tensor_get_mem_size(lt, size);
    *size = memory_size(*lt);
    return status::success;
}

CONVGRAD_ONEDNN_API status dnnl_graph_logical_tensor_is_equal(
    const tensor_description *a, const tensor_description *b, std::uint8_t *equal) {
    if (any_null(a, b, equal)) return status::invalid_arguments;
    if (const library *next = behind()) return next->logical_tensor_is_equal(a, b, equal);
    *equal = a->id == b->id && same_description(*a, *b) ? 1 : 0;
    return status::success;
}

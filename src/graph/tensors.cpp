#include "graph/tensors.hpp"

#include <algorithm>
#include <cstring>

#include "op/message.hpp"

namespace convgrad {
namespace {

bool join_shape(std::optional<dims> &into, const std::optional<dims> &other) {
    if (!other) return true;
    if (!into) {
        into = other;
        return true;
    }
    if (into->size() != other->size()) return false;
    for (std::size_t i = 0; i < into->size(); ++i) {
        dim &mine = (*into)[i];
        const dim theirs = (*other)[i];
        if (mine == unknown_dim) mine = theirs;
        if (theirs != unknown_dim && theirs != mine) return false;
    }
    return true;
}

/// A description without a whole shape and without strides says nothing about the layout.
bool speaks_of_layout(const logical_tensor &lt) {
    return lt.is_known() || !lt.strides.empty();
}

bool agree_on_layout(
    const logical_tensor &a, const logical_tensor &b, const logical_tensor &joined) {
    if (!speaks_of_layout(a) || !speaks_of_layout(b)) return true;
    if (joined.is_known()) return same_layout(*joined.shape, a.strides, b.strides);
    return a.strides == b.strides;
}

}  // namespace

bool is_empty(const dims &shape) {
    return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

bool same_layout(const dims &shape, const dims &strides_a, const dims &strides_b) {
    if (strides_a == strides_b || is_empty(shape)) return true;
    const std::size_t rank = shape.size();
    const auto fits = [&](const dims &s) { return s.empty() || s.size() == rank; };
    if (!fits(strides_a) || !fits(strides_b)) return false;
    dim packed = 1;
    for (std::size_t i = rank; i-- > 0;) {
        const dim a = strides_a.empty() ? packed : strides_a[i];
        const dim b = strides_b.empty() ? packed : strides_b[i];
        if (shape[i] != 1 && a != b) return false;
        // A product beyond 64 bits equals no stride that anybody can give.
        if (__builtin_mul_overflow(packed, shape[i], &packed)) packed = unknown_dim;
    }
    return true;
}

std::string describe(const logical_tensor &lt) {
    std::string text(to_string(lt.type));
    text += lt.shape ? ops::cat(" ", *lt.shape) : " of unknown rank";
    if (!lt.strides.empty()) text += ops::cat(" with strides ", lt.strides);
    if (lt.value) text += ops::cat(" holding ", *lt.value);
    if (lt.is_constant) text += ", constant";
    return text;
}

bool join(logical_tensor &into, const logical_tensor &other) {
    logical_tensor joined = into;
    if (joined.type != other.type) return false;
    if (!join_shape(joined.shape, other.shape)) return false;
    if (!agree_on_layout(into, other, joined)) return false;
    if (joined.strides.empty()) joined.strides = other.strides;
    if (joined.value && other.value && joined.value != other.value) return false;
    if (!joined.value) joined.value = other.value;
    joined.is_constant = joined.is_constant || other.is_constant;
    into = std::move(joined);
    return true;
}

void fill_in(logical_tensor &into, const logical_tensor &known) {
    if (into.type == data_type::undef) into.type = known.type;
    if (!into.value) into.value = known.value;
    into.is_constant = into.is_constant || known.is_constant;
    const bool says_shape = into.shape.has_value();
    if (!says_shape) into.shape = known.shape;
    if (known.shape && into.shape->size() == known.shape->size())
        for (std::size_t i = 0; i < known.shape->size(); ++i)
            if ((*into.shape)[i] == unknown_dim) (*into.shape)[i] = (*known.shape)[i];
    if (!says_shape && into.strides.empty()) into.strides = known.strides;
}

bool shares_memory(const const_tensor &a, const const_tensor &b) {
    return a.data != nullptr && a.data == b.data && !is_empty(a.shape) && !is_empty(b.shape);
}

dims read_shape(const const_tensor &t) {
    dims values;
    if (t.shape.size() != 1) return values;
    const dim stride = t.strides.empty() ? 1 : t.strides[0];
    const auto *bytes = static_cast<const std::byte *>(t.data);
    for (dim i = 0; i < t.shape[0]; ++i) {
        std::int32_t value = 0;
        std::memcpy(&value, bytes + i * stride * dim{sizeof(value)}, sizeof(value));
        values.push_back(value);
    }
    return values;
}

}  // namespace convgrad

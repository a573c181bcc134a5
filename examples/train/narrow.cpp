#include "narrow.hpp"

#include <convgrad/convert.hpp>

namespace convgrad::train {
namespace {

std::size_t count_of(const dims &shape) {
    std::size_t count = 1;
    for (dim d : shape) count *= static_cast<std::size_t>(d);
    return count;
}

}  // namespace

const_tensor narrow_copy::rounded(const std::vector<float> &from, const dims &shape) {
    if (type_ == data_type::f32) return {from.data(), shape};
    if (type_ == data_type::bf16) {
        bf16_.resize(from.size());
        convert(from, bf16_);
        return {bf16_.data(), shape};
    }
    f16_.resize(from.size());
    convert(from, f16_);
    return {f16_.data(), shape};
}

tensor narrow_copy::room(std::vector<float> &to, const dims &shape) {
    to.resize(count_of(shape));
    if (type_ == data_type::f32) return {to.data(), shape};
    if (type_ == data_type::bf16) {
        bf16_.resize(to.size());
        return {bf16_.data(), shape};
    }
    f16_.resize(to.size());
    return {f16_.data(), shape};
}

void narrow_copy::widen(std::vector<float> &to) const {
    if (type_ == data_type::bf16) convert(bf16_, to);
    if (type_ == data_type::f16) convert(f16_, to);
}

}  // namespace convgrad::train

#include "narrow.hpp"

#include <bit>

namespace convgrad::train {
namespace {

std::size_t count_of(const dims &shape) {
    std::size_t count = 1;
    for (dim d : shape) count *= static_cast<std::size_t>(d);
    return count;
}

}  // namespace

std::uint16_t to_bf16(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
    const std::uint32_t quiet_nan = (bits >> 16U) | 0x40U;
    return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
}

float from_bf16(std::uint16_t x) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16U);
}

std::uint16_t to_f16(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = (bits >> 16U) & 0x8000U, magnitude = bits & 0x7fffffffU;
    // Normal numbers: shorten the significand by 13 bits, rounding, and move the exponent's bias
    // from 127 to 15. A carry out of the significand raises the exponent, as it should.
    const std::uint32_t normal =
        (magnitude - (112U << 23U) + 0xfffU + ((magnitude >> 13U) & 1U)) >> 13U;
    // Below 2^-14: adding 1/2 lets the f32 adder round to multiples of 2^-24.
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    std::uint32_t result = magnitude < 0x38800000U ? subnormal : normal;
    if (magnitude >= 0x477ff000U) result = 0x7c00U;  // rounds to 65536 or is infinite
    if (magnitude > 0x7f800000U) result = 0x7e00U;
    return static_cast<std::uint16_t>(sign | result);
}

float from_f16(std::uint16_t x) {
    const std::uint32_t sign = (x & 0x8000U) << 16U, magnitude = x & 0x7fffU;
    // The multiplication moves the exponent's bias and makes subnormal numbers normal.
    const float scaled = std::bit_cast<float>(magnitude << 13U) * 0x1p112F;
    const std::uint32_t special = 0x7f800000U | (magnitude << 13U);
    const std::uint32_t bits =
        magnitude >= 0x7c00U ? special : std::bit_cast<std::uint32_t>(scaled);
    return std::bit_cast<float>(sign | bits);
}

tensor narrow_copy::rounded(const std::vector<float> &from, const dims &shape) {
    if (type_ == data_type::f32) return {from.data(), shape};
    bits_.resize(from.size());
    if (type_ == data_type::bf16)
        for (std::size_t i = 0; i < from.size(); ++i) bits_[i] = to_bf16(from[i]);
    else
        for (std::size_t i = 0; i < from.size(); ++i) bits_[i] = to_f16(from[i]);
    return {bits_.data(), type_, shape};
}

tensor narrow_copy::room(std::vector<float> &to, const dims &shape) {
    to.resize(count_of(shape));
    if (type_ == data_type::f32) return {to.data(), shape};
    bits_.resize(to.size());
    return {bits_.data(), type_, shape};
}

void narrow_copy::widen(std::vector<float> &to) const {
    if (type_ == data_type::f32) return;
    if (type_ == data_type::bf16)
        for (std::size_t i = 0; i < to.size(); ++i) to[i] = from_bf16(bits_[i]);
    else
        for (std::size_t i = 0; i < to.size(); ++i) to[i] = from_f16(bits_[i]);
}

}  // namespace convgrad::train

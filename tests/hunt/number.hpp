// Values of the three types, made and read without the library's help.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <convgrad/types.hpp>

namespace hunt {

using convgrad::data_type;

/// Bits of the significand behind the point, and the smallest exponent of a normal value.
struct format {
    int fraction, least_exponent;
    double largest;
};

inline format format_of(data_type type) {
    if (type == data_type::bf16) return {7, -126, 0x1.fep127};
    if (type == data_type::f16) return {10, -14, 65504};
    return {23, -126, 0x1.fffffep127};
}

/// The nearest value of the type; ties to even.
inline double rounded(double v, data_type type) {
    if (v == 0 || !std::isfinite(v)) return v;
    if (type == data_type::f32) return static_cast<double>(static_cast<float>(v));
    const format f = format_of(type);
    const int exponent = std::max(std::ilogb(v), f.least_exponent);
    const double unit = std::ldexp(1.0, exponent - f.fraction);
    const double r = std::nearbyint(v / unit) * unit;
    return std::abs(r) > f.largest ? std::copysign(HUGE_VAL, v) : r;
}

/// Half the distance between neighbours at `v`.
inline double half_unit(double v, data_type type) {
    const format f = format_of(type);
    const int exponent = v == 0 ? f.least_exponent : std::max(std::ilogb(v), f.least_exponent);
    return std::ldexp(1.0, exponent - f.fraction - 1);
}

/// `v` is a value of the type.
inline void store(void *at, double v, data_type type) {
    const auto single = static_cast<float>(v);
    std::uint32_t word = 0;
    std::memcpy(&word, &single, 4);
    if (type == data_type::f32) {
        std::memcpy(at, &word, 4);
        return;
    }
    auto half = static_cast<std::uint16_t>(word >> 16U);
    if (type == data_type::f16) {
        const auto sign = static_cast<std::uint16_t>(half & 0x8000U);
        const double a = std::abs(v);
        if (std::isnan(v))
            half = 0x7e00;
        else if (std::isinf(v))
            half = 0x7c00;
        else if (a < 0x1p-14)
            half = static_cast<std::uint16_t>(a * 0x1p24);
        else {
            const int exponent = std::ilogb(a);
            const double fraction = std::ldexp(a, 10 - exponent) - 1024;
            half = static_cast<std::uint16_t>(((exponent + 15) << 10) + static_cast<int>(fraction));
        }
        half = static_cast<std::uint16_t>(half | sign);
    }
    std::memcpy(at, &half, 2);
}

inline double half_value(unsigned bits) {
    const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
    const int exponent = static_cast<int>(bits >> 10U & 31U),
              fraction = static_cast<int>(bits & 1023U);
    if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
    if (exponent == 0) return sign * fraction * 0x1p-24;
    return sign * std::ldexp(1024 + fraction, exponent - 25);
}

inline double load(const void *at, data_type type) {
    static const std::vector<double> halves = [] {
        std::vector<double> all;
        for (unsigned bits = 0; bits < 65536; ++bits) all.push_back(half_value(bits));
        return all;
    }();
    std::uint32_t word = 0;
    if (type == data_type::f32) {
        std::memcpy(&word, at, 4);
    } else {
        std::uint16_t half = 0;
        std::memcpy(&half, at, 2);
        if (type == data_type::f16) return halves[half];
        word = static_cast<std::uint32_t>(half) << 16U;
    }
    float single = 0;
    std::memcpy(&single, &word, 4);
    return static_cast<double>(single);
}

}  // namespace hunt

// The attributes that are words: one enumeration each, and the words in its order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace convgrad::ops {

enum class auto_pad : std::uint8_t { none, same_upper, same_lower, valid };
inline constexpr std::string_view auto_pad_names[] = {"none", "same_upper", "same_lower", "valid"};

enum class data_format : std::uint8_t { nxc, ncx };
inline constexpr std::string_view data_format_names[] = {"NXC", "NCX"};

/// The two of a convolution, then the two of a transposed one.
enum class weights_format : std::uint8_t { xio, oix, xoi, iox };
inline constexpr std::string_view weights_format_names[] = {"XIO", "OIX", "XOI", "IOX"};

enum class auto_broadcast : std::uint8_t { numpy, none };
inline constexpr std::string_view auto_broadcast_names[] = {"numpy", "none"};

constexpr std::string_view to_string(data_format format) {
    return data_format_names[static_cast<std::size_t>(format)];
}
constexpr std::string_view to_string(weights_format format) {
    return weights_format_names[static_cast<std::size_t>(format)];
}

}  // namespace convgrad::ops

// The attributes that are words: their enumerations, and the words in the order of each.
#pragma once

#include <cstdint>
#include <string_view>

#include <convgrad/formats.hpp>

namespace convgrad::ops {

using convgrad::auto_pad, convgrad::data_format, convgrad::weights_format;

inline constexpr std::string_view auto_pad_names[] = {"none", "same_upper", "same_lower", "valid"};
inline constexpr std::string_view data_format_names[] = {"NXC", "NCX"};
inline constexpr std::string_view weights_format_names[] = {"XIO", "OIX", "XOI", "IOX"};

enum class auto_broadcast : std::uint8_t { numpy, none };
inline constexpr std::string_view auto_broadcast_names[] = {"numpy", "none"};

}  // namespace convgrad::ops

// Attributes that are words: enumerations, which can be written as text too.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include <convgrad/export.hpp>

namespace convgrad {
inline namespace CONVGRAD_ABI {

/// How padding is found.
enum class auto_pad : std::uint8_t { none, same_upper, same_lower, valid };

/// Order of the dimensions of data tensors: batch (N), spatial axes (X), channels (C).
enum class data_format : std::uint8_t { nxc, ncx };

/// Order of the dimensions of weights: kernel (X), input (I) and output channels (O). The first two
/// are those of a convolution, the others those of a transposed one.
enum class weights_format : std::uint8_t { xio, oix, xoi, iox };

/// The specification's words: "same_upper", "NXC", "XIO"; "unknown" for any other value.
[[nodiscard]] CONVGRAD_API std::string_view to_string(auto_pad value) noexcept;
[[nodiscard]] CONVGRAD_API std::string_view to_string(data_format value) noexcept;
[[nodiscard]] CONVGRAD_API std::string_view to_string(weights_format value) noexcept;

/// The value of a word, in upper or lower case. Throws invalid_op, telling the words there are.
CONVGRAD_API void parse_word(std::string_view text, auto_pad &value);
CONVGRAD_API void parse_word(std::string_view text, data_format &value);
CONVGRAD_API void parse_word(std::string_view text, weights_format &value);

/// One of these enumerations, made from a value or from its word: `auto_pad::valid`, `"valid"`.
/// What is no word is refused when it is written, not when it is used.
template <typename Enumeration>
class word {
public:
    constexpr word(Enumeration value) noexcept : value_(value) {}
    template <std::convertible_to<std::string_view> Text>
    word(const Text &text) {
        parse_word(text, value_);
    }
    [[nodiscard]] constexpr operator Enumeration() const noexcept { return value_; }
    friend constexpr bool operator==(const word &, const word &) = default;
    friend constexpr bool operator==(const word &a, Enumeration b) noexcept {
        return a.value_ == b;
    }

private:
    Enumeration value_{};
};

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

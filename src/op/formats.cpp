#include "op/formats.hpp"

#include <algorithm>
#include <span>

#include "op/guard.hpp"
#include "op/message.hpp"
#include "op/schema.hpp"

namespace convgrad {
inline namespace CONVGRAD_ABI {
namespace {

using words = std::span<const std::string_view>;

std::string_view word_of(words list, std::size_t index) noexcept {
    return index < list.size() ? list[index] : "unknown";
}

std::size_t index_of(std::string_view attribute, words list, std::string_view text) {
    for (std::size_t i = 0; i < list.size(); ++i)
        if (ops::equal_ignoring_case(list[i], text)) return i;
    return guarded("attributes", [&]() -> std::size_t {
        std::string known;
        for (std::string_view one : list) known += ops::cat(known.empty() ? "" : ", ", one);
        throw error(error_code::invalid_op, ops::cat("invalid op: attribute ", attribute, " is ",
                                                ops::quoted{text}, "; it must be one of ", known));
    });
}

}  // namespace

std::string_view to_string(auto_pad value) noexcept {
    return word_of(ops::auto_pad_names, static_cast<std::size_t>(value));
}

std::string_view to_string(data_format value) noexcept {
    return word_of(ops::data_format_names, static_cast<std::size_t>(value));
}

std::string_view to_string(weights_format value) noexcept {
    return word_of(ops::weights_format_names, static_cast<std::size_t>(value));
}

void parse_word(std::string_view text, auto_pad &value) {
    value = static_cast<auto_pad>(index_of("auto_pad", ops::auto_pad_names, text));
}

void parse_word(std::string_view text, data_format &value) {
    value = static_cast<data_format>(index_of("data_format", ops::data_format_names, text));
}

void parse_word(std::string_view text, weights_format &value) {
    value =
        static_cast<weights_format>(index_of("weights_format", ops::weights_format_names, text));
}

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

// Settings that are words in the environment.
#pragma once

#include <span>
#include <string_view>

namespace convgrad::onednn {

/// Which of `words` the variable holds. Where it is not set, `otherwise`; where it holds another
/// word, too, and one line on standard error says so.
std::size_t word_from_environment(
    const char *variable, std::span<const std::string_view> words, std::size_t otherwise);

}  // namespace convgrad::onednn

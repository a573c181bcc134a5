#include "onednn/environment.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "op/message.hpp"

namespace convgrad::onednn {

std::size_t word_from_environment(
    const char *variable, std::span<const std::string_view> words, std::size_t otherwise) {
    const char *value = std::getenv(variable);
    if (value == nullptr || *value == '\0') return otherwise;
    const auto found = std::find(words.begin(), words.end(), value);
    if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
    std::string known;
    for (std::size_t i = 0; i < words.size(); ++i)
        known += ops::cat(i == 0 ? "" : i + 1 == words.size() ? " and " : ", ", words[i]);
    std::fprintf(stderr, "convgrad: %s is \"%s\"; %s are known. %s is taken.\n", variable, value,
        known.c_str(), std::string(words[otherwise]).c_str());
    return otherwise;
}

}  // namespace convgrad::onednn

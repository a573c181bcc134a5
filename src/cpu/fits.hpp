// How a row of the list of algorithms says why it cannot compute a problem.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace convgrad::cpu {

inline void append(std::string &text, std::string_view part) {
    text += part;
}
inline void append(std::string &text, std::integral auto part) {
    text += std::to_string(part);
}

/// False; the parts, one after the other, become the reason where somebody asks for it: a choice
/// that nobody asks about builds no strings.
template <typename... Parts>
bool refuse(std::string *why, const Parts &...parts) {
    if (why != nullptr) {
        why->clear();
        (append(*why, parts), ...);
    }
    return false;
}

}  // namespace convgrad::cpu

#include "op/message.hpp"

#include <algorithm>

namespace convgrad::ops {

void append(std::string &out, std::string_view text) {
    out += text;
}

void append(std::string &out, quoted text) {
    constexpr std::size_t longest = 80;
    out += '"';
    for (char c : text.text.substr(0, longest)) {
        const auto byte = static_cast<unsigned char>(c);
        out += byte < 0x20 || byte == 0x7f ? '?' : c;
    }
    out += text.text.size() > longest ? "...\"" : "\"";
}

void append(std::string &out, std::span<const dim> list) {
    constexpr std::size_t longest = 12;
    out += '[';
    for (std::size_t i = 0; i < std::min(list.size(), longest); ++i) {
        if (i > 0) out += ", ";
        append_number(out, list[i]);
    }
    out += list.size() > longest ? ", ...]" : "]";
}

void append(std::string &out, data_type type) {
    out += to_string(type);
}

void append_number(std::string &out, dim value) {
    if (value == unknown_dim)
        out += '?';
    else
        out += std::to_string(value);
}

void fail(error_code code, op_kind kind, std::string_view op_name, std::string_view text) {
    std::string message(to_string(kind));
    if (!op_name.empty()) {
        message += ' ';
        append(message, quoted{op_name});
    }
    std::string words(to_string(code));
    std::replace(words.begin(), words.end(), '_', ' ');
    throw error(code, cat(message, ": ", words, ": ", text));
}

}  // namespace convgrad::ops

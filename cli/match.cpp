#include "match.hpp"

#include <fmt/format.h>

#include "usage_error.hpp"

namespace convgrad::cli {
namespace {

pattern compile(std::string_view where, const std::string &expression) {
    if (expression.size() > text_filter::longest_expression)
        throw usage_error(
            fmt::format("{}: the regular expression has {} characters; at most {} are "
                        "possible",
                where, expression.size(), text_filter::longest_expression));
    try {
        return pattern(expression);
    } catch (const pattern_error &e) {
        throw usage_error(
            fmt::format("{} {}: not a regular expression ({})", where, expression, e.what()));
    }
}

}  // namespace

text_filter::text_filter(std::string_view where, const std::string &expression)
    : where_(where), expression_(compile(where, expression)) {}

bool text_filter::accepts(const std::string &text) const {
    if (text.size() > longest_text)
        throw usage_error(
            fmt::format("{}: a problem of {} characters cannot be searched; at most {} "
                        "are possible",
                where_, text.size(), longest_text));
    return expression_.is_found_in(text);
}

}  // namespace convgrad::cli

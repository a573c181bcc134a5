#include "match.hpp"

#include <fmt/format.h>

#include "usage_error.hpp"

namespace convgrad::cli {

text_filter::text_filter(std::string_view where, const std::string &expression) : where_(where) {
    if (expression.size() > longest_expression)
        throw usage_error(
            fmt::format("{}: the regular expression has {} characters; at most {} are "
                        "possible",
                where, expression.size(), longest_expression));
    try {
        expression_ = std::regex(expression);
    } catch (const std::regex_error &e) {
        throw usage_error(
            fmt::format("{} {}: not a regular expression ({})", where, expression, e.what()));
    }
}

bool text_filter::accepts(const std::string &text) const {
    if (text.size() > longest_text)
        throw usage_error(
            fmt::format("{}: a problem of {} characters cannot be searched; at most {} "
                        "are possible",
                where_, text.size(), longest_text));
    try {
        return std::regex_search(text, expression_);
    } catch (const std::regex_error &e) {
        throw usage_error(
            fmt::format("{}: too complex a regular expression ({})", where_, e.what()));
    }
}

}  // namespace convgrad::cli

// The regular expression of --match.
#pragma once

#include <string>
#include <string_view>

#include "pattern.hpp"

namespace convgrad::cli {

/// Searches problem texts. Both sides have a length that bounds the time of a search.
class text_filter {
public:
    static constexpr std::size_t longest_expression = 1000, longest_text = 2000;

    /// `where` ("--match") begins the message. Throws usage_error.
    text_filter(std::string_view where, const std::string &expression);
    /// Throws usage_error for a text that is longer than any problem.
    [[nodiscard]] bool accepts(const std::string &text) const;

private:
    std::string where_;
    pattern expression_;
};

}  // namespace convgrad::cli

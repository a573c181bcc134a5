// Regular expressions that are searched in linear time.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace convgrad::cli {

/// Not an expression, or one that is too large. The message says what is wrong with it.
struct pattern_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// An expression in ECMAScript's syntax (that of std::regex), without back-references and
/// lookahead. All ways through the expression are followed at once, so that a search takes at most
/// (size of the expression) x (length of the text) steps and no stack, whatever they say.
class pattern {
public:
    static constexpr std::size_t most_states = 10000;

    /// Throws pattern_error.
    explicit pattern(std::string_view expression);

    /// Whether some part of `text` matches.
    [[nodiscard]] bool is_found_in(std::string_view text) const;

    using char_set = std::bitset<256>;
    enum class action : std::uint8_t {
        take,   // one character of sets[first]
        split,  // go on at first and at second
        begin,  // only at the text's begin ...
        end,
        word_edge,
        no_word_edge,
        found
    };
    struct state {
        action what;
        std::size_t first = 0, second = 0;
    };

private:
    /// Marks `from` and everything that can be reached from it without a character.
    void follow(std::size_t from, std::string_view text, std::size_t at,
        std::vector<std::size_t> &reached, std::vector<bool> &is_reached) const;

    std::vector<char_set> sets_;
    std::vector<state> states_;
};

}  // namespace convgrad::cli

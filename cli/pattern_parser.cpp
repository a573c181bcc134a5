#include "pattern_parser.hpp"

#include <array>
#include <cctype>
#include <utility>

#include <fmt/format.h>

namespace convgrad::cli {
namespace {

using char_set = pattern::char_set;
using node = pattern_node;
using kind = pattern_node::kind;

constexpr std::size_t most_repetitions = 1000;

char_set set_where(int (*holds)(int)) {
    char_set set;
    for (int c = 0; c < 128; ++c) set[static_cast<std::size_t>(c)] = holds(c) != 0;
    return set;
}

char_set word_characters() {
    return set_where([](int c) { return std::isalnum(c) != 0 || c == '_' ? 1 : 0; });
}

/// The set of `\d`, `\W` and their like.
std::optional<char_set> class_of_escape(char letter) {
    char_set set;
    switch (std::tolower(static_cast<unsigned char>(letter))) {
    case 'd':
        set = set_where([](int c) { return std::isdigit(c); });
        break;
    case 's':
        set = set_where([](int c) { return std::isspace(c); });
        break;
    case 'w':
        set = word_characters();
        break;
    default:
        return std::nullopt;
    }
    return std::isupper(static_cast<unsigned char>(letter)) != 0 ? ~set : set;
}

/// The set of `[:name:]`.
std::optional<char_set> class_of_name(std::string_view name) {
    using entry = std::pair<std::string_view, int (*)(int)>;
    static constexpr std::array classes = {entry{"alnum", std::isalnum},
        entry{"alpha", std::isalpha}, entry{"blank", std::isblank}, entry{"cntrl", std::iscntrl},
        entry{"digit", std::isdigit}, entry{"graph", std::isgraph}, entry{"lower", std::islower},
        entry{"print", std::isprint}, entry{"punct", std::ispunct}, entry{"space", std::isspace},
        entry{"upper", std::isupper}, entry{"xdigit", std::isxdigit}};
    for (const auto &[known, holds] : classes)
        if (known == name) return set_where(holds);
    return std::nullopt;
}

/// Recursive descent. Groups nest at most as deep as the expression is long, which is bounded.
class parser {
public:
    explicit parser(std::string_view text) : text_(text) {}

    pattern_tree run() {
        either();
        if (!is_done()) refuse("')' without '('");
        return std::move(tree_);
    }

private:
    [[noreturn]] void refuse(std::string_view why) const {
        throw pattern_error(fmt::format("{}, at character {}", why, at_ + 1));
    }
    [[nodiscard]] bool is_done() const { return at_ == text_.size(); }
    [[nodiscard]] bool sees(std::string_view what) const {
        return text_.substr(at_).starts_with(what);
    }
    bool take(std::string_view what) {
        if (!sees(what)) return false;
        at_ += what.size();
        return true;
    }
    char next(std::string_view otherwise) {
        if (is_done()) refuse(otherwise);
        return text_[at_++];
    }

    std::size_t add(node made) {
        tree_.nodes.push_back(std::move(made));
        return tree_.nodes.size() - 1;
    }
    std::size_t add_set(const char_set &set) {
        tree_.sets.push_back(set);
        return add({.what = kind::take, .set = tree_.sets.size() - 1});
    }
    std::size_t add_char(char c) { return add_set(char_set{}.set(static_cast<unsigned char>(c))); }
    std::size_t add_assertion(pattern::action what) {
        return add({.what = kind::assertion, .assertion = what});
    }

    std::size_t either() {
        std::vector<std::size_t> ways = {sequence()};
        while (take("|")) ways.push_back(sequence());
        return add({.what = kind::either, .parts = std::move(ways)});
    }

    std::size_t sequence() {
        std::vector<std::size_t> parts;
        while (!is_done() && !sees("|") && !sees(")")) parts.push_back(repeated());
        return add({.what = kind::sequence, .parts = std::move(parts)});
    }

    std::size_t repeated() {
        std::size_t part = atom();
        const bool can_repeat = tree_.nodes[part].what != kind::assertion;
        while (sees("*") || sees("+") || sees("?") || sees("{")) {
            if (!can_repeat) refuse("nothing that can be repeated");
            node made = count();
            made.parts = {part};
            take("?");  // as few as possible: the same texts match
            part = add(std::move(made));
        }
        return part;
    }

    node count() {
        node made{.what = kind::repeat};
        if (take("*")) return made;
        if (take("+")) {
            made.least = 1;
            return made;
        }
        if (take("?")) {
            made.most = 1;
            return made;
        }
        take("{");
        made.least = number();
        if (!take(","))
            made.most = made.least;
        else if (!sees("}"))
            made.most = number();
        if (!take("}")) refuse("'{' without '}'");
        if (made.most && *made.most < made.least) refuse("a repetition from more to less");
        return made;
    }

    std::size_t number() {
        std::size_t value = 0;
        if (is_done() || std::isdigit(static_cast<unsigned char>(text_[at_])) == 0)
            refuse("a repetition without a number");
        while (!is_done() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
            value = value * 10 + static_cast<std::size_t>(text_[at_++] - '0');
            if (value > most_repetitions)
                refuse(fmt::format("more than {} repetitions", most_repetitions));
        }
        return value;
    }

    std::size_t atom() {
        switch (const char c = next("")) {
        case '(':
            return group();
        case '[':
            return add_set(brackets());
        case '.':
            return add_set(~char_set{}.set('\n').set('\r'));
        case '^':
            return add_assertion(pattern::action::begin);
        case '$':
            return add_assertion(pattern::action::end);
        case '\\':
            return escape();
        case '*':
        case '+':
        case '?':
        case '{':
            --at_;
            refuse("nothing to repeat");
        default:
            return add_char(c);
        }
    }

    std::size_t group() {
        if (sees("?=") || sees("?!")) refuse("lookahead is not supported");
        take("?:");
        const std::size_t inside = either();
        if (!take(")")) refuse("'(' without ')'");
        return inside;
    }

    std::size_t escape() {
        const char c = next("'\\' at the end");
        if (c == 'b') return add_assertion(pattern::action::word_edge);
        if (c == 'B') return add_assertion(pattern::action::no_word_edge);
        if (c >= '1' && c <= '9') refuse("back-references are not supported");
        if (const auto set = class_of_escape(c)) return add_set(*set);
        return add_char(escaped_char(c));
    }

    /// The character that stands behind a backslash for itself or another.
    char escaped_char(char c) {
        static constexpr std::string_view letters = "0fnrtv", values("\0\f\n\r\t\v", 6);
        if (const std::size_t known = letters.find(c); known != letters.npos) return values[known];
        if (c == 'x') return hexadecimal(2);
        if (c == 'u') return hexadecimal(4);
        if (c == 'c') return static_cast<char>(next("'\\c' at the end") % 32);
        if (std::isalnum(static_cast<unsigned char>(c)) != 0)
            refuse(fmt::format("'\\{}' has no meaning", c));
        return c;
    }

    char hexadecimal(int digits) {
        unsigned value = 0;
        for (int i = 0; i < digits; ++i) {
            const char c = next("too few hexadecimal digits");
            if (std::isxdigit(static_cast<unsigned char>(c)) == 0)
                refuse("too few hexadecimal digits");
            const int low = std::tolower(static_cast<unsigned char>(c));
            value = value * 16 + static_cast<unsigned>(low <= '9' ? low - '0' : low - 'a' + 10);
        }
        if (value > 255) refuse("a character beyond 255");
        return static_cast<char>(value);
    }

    char_set brackets() {
        const bool negated = take("^");
        char_set set;
        while (!take("]")) {
            if (is_done()) refuse("'[' without ']'");
            set |= bracket_item();
        }
        return negated ? ~set : set;
    }

    /// A class, a character, or a range of them.
    char_set bracket_item() {
        if (take("[:")) {
            const std::size_t end = text_.find(":]", at_);
            if (end == text_.npos) refuse("'[:' without ':]'");
            const auto set = class_of_name(text_.substr(at_, end - at_));
            if (!set) refuse("an unknown class of characters");
            at_ = end + 2;
            return *set;
        }
        if (sees("[=") || sees("[.")) refuse("collating elements are not supported");
        char first = next("");
        if (first == '\\') {
            const char c = next("'\\' at the end");
            if (const auto set = class_of_escape(c)) return *set;
            first = c == 'b' ? '\b' : escaped_char(c);
        }
        if (!sees("-") || sees("-]")) return char_set{}.set(static_cast<unsigned char>(first));
        take("-");
        char last = next("'[' without ']'");
        if (last == '\\') {
            const char c = next("'\\' at the end");
            if (class_of_escape(c)) refuse("a range that ends with a class");
            last = c == 'b' ? '\b' : escaped_char(c);
        }
        const auto from = static_cast<unsigned char>(first), to = static_cast<unsigned char>(last);
        if (from > to) refuse("a range from more to less");
        char_set set;
        for (unsigned c = from; c <= to; ++c) set.set(c);
        return set;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    pattern_tree tree_;
};

}  // namespace

pattern_tree parse_pattern(std::string_view expression) {
    return parser(expression).run();
}

}  // namespace convgrad::cli

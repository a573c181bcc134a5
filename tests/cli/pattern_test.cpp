#include <regex>

#include <gtest/gtest.h>

#include "match.hpp"
#include "pattern.hpp"
#include "support/random.hpp"
#include "usage_error.hpp"

namespace convgrad::cli {
namespace {

bool finds(std::string_view expression, std::string_view text) {
    return pattern(expression).is_found_in(text);
}

TEST(pattern, what_users_write) {
    EXPECT_TRUE(finds("", ""));
    EXPECT_TRUE(finds("res4", "mb1ic3nres4_3x3"));
    EXPECT_FALSE(finds("^res4", "mb1ic3nres4_3x3"));
    EXPECT_TRUE(finds(".*(alex|res).*3x3$", "mb1ic3nres4_3x3"));
    EXPECT_TRUE(finds("kh[13]kw[^5]", "ic3kh3kw3"));
    EXPECT_FALSE(finds("kh[13]kw[^5]", "ic3kh3kw5"));
    EXPECT_TRUE(finds("x\\*2", "ic3n\"x*2\""));
    EXPECT_TRUE(finds("g\\d{2,}mb", "g32mb1"));
    EXPECT_FALSE(finds("g\\d{2,}mb", "g4mb1"));
    EXPECT_TRUE(finds("\\bmb1\\b", "g4 mb1"));
    EXPECT_TRUE(finds("[[:digit:]_-]+$", "ic3_7-"));
    EXPECT_TRUE(finds("a.c", "xabcx"));
    EXPECT_FALSE(finds("a.c", "a\nc"));
}

TEST(pattern, what_is_wrong) {
    for (const char *wrong : {"(", ")", "a)", "[", "[a", "[z-a]", "*", "a|*", "a{", "a{2", "a{3,2}",
             "a{x}", "a{1001}", "\\", "[\\", "(?=a)", "(?!a)", "(a)\\1", "[[:what:]]", "[[:digit",
             "\\x1", "\\u1234", "\\y", "^*", "[[.a.]]", "[a-\\d]", "((a{100}){100}){100}"})
        EXPECT_THROW(pattern{wrong}, pattern_error) << wrong;
    EXPECT_THROW(text_filter("--match", "("), usage_error);
}

// Each of these takes a search that goes back longer than anyone waits.
TEST(pattern, no_expression_takes_long) {
    const std::string text(text_filter::longest_text, 'a');
    EXPECT_FALSE(finds("(a*)*b", text));
    EXPECT_FALSE(finds("(a|aa)+$b", text));
    EXPECT_FALSE(finds("(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)b", text));
    EXPECT_FALSE(finds("((((((a?){9}){9}){9})*)*)*b", text));
    EXPECT_FALSE(finds("(a?){900}(a{900})b", text));
    EXPECT_TRUE(finds("(((((((((){1000}){1000}){1000}){1000}){1000}){1000})))a", text));
    EXPECT_TRUE(finds("((()*)*)*((^)+)+a", text));
    std::string nested = "a";
    while (nested.size() + 3 < text_filter::longest_expression) nested = "(" + nested + ")*";
    EXPECT_FALSE(finds(nested + "b", text));
}

/// A random expression of everything that is supported.
std::string draw_expression(test::rng &random, int depth) {
    static constexpr const char *atoms[] = {"a", "b", "ab", ".", "[ab]", "[^a]", "[a-c]", "\\w",
        "\\D", "\\d", "[\\d_]", "[[:alpha:]]", "\\b", "\\B", "^", "$", "\\*", "\\x61", "", "1"};
    static constexpr const char *counts[] = {"*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?"};
    std::string text;
    for (auto parts = random.between(1, 3); parts > 0; --parts) {
        if (depth > 0 && random.between(0, 2) == 0) {
            text += random.between(0, 1) == 0 ? "(" : "(?:";
            text += draw_expression(random, depth - 1);
            if (random.between(0, 1) == 0) text += "|" + draw_expression(random, depth - 1);
            text += ")";
            if (random.between(0, 1) == 0) text += counts[random.between(0, 7)];
        } else {
            const std::string atom = atoms[random.between(0, 19)];
            const bool is_assertion = atom == "^" || atom == "$" || atom == "\\b" || atom == "\\B";
            text += atom;
            if (!atom.empty() && !is_assertion && random.between(0, 3) == 0)
                text += counts[random.between(0, 7)];
        }
    }
    return text;
}

TEST(pattern, finds_what_the_standard_library_finds) {
    static constexpr char letters[] = {'a', 'b', 'c', '1', '_', '*', ' ', '\n'};
    test::rng random(7);
    int found = 0, all = 0;
    for (int i = 0; i < 3000; ++i) {
        const std::string expression = draw_expression(random, 2);
        const pattern ours(expression);
        const std::regex theirs(expression);
        for (int j = 0; j < 4; ++j, ++all) {
            std::string text;
            for (auto length = random.between(0, 7); length > 0; --length)
                text += letters[random.between(0, 7)];
            const bool expected = std::regex_search(text, theirs);
            found += expected ? 1 : 0;
            ASSERT_EQ(ours.is_found_in(text), expected) << expression << " in '" << text << "'";
        }
    }
    EXPECT_GT(found, all / 4);
    EXPECT_LT(found, all * 3 / 4);
}

}  // namespace
}  // namespace convgrad::cli

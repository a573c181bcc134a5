// expect_error(code, {"part", …}, call): the call throws convgrad::error with this code, and the
// message contains every part.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

namespace convgrad::test {

// The built-ins, because not every compiler that we build with has std::source_location.
template <typename Call>
void expect_error(error_code code, std::initializer_list<std::string_view> parts, Call &&call,
    const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    const testing::ScopedTrace trace(file, line, "expect_error called here");
    try {
        call();
    } catch (const error &e) {
        const std::string message = e.what();
        EXPECT_EQ(to_string(e.code()), to_string(code)) << message;
        for (std::string_view part : parts)
            EXPECT_NE(message.find(part), std::string::npos)
                << "message: " << message << "\nlacks: " << part;
        return;
    } catch (const std::exception &e) {
        ADD_FAILURE() << "expected " << to_string(code) << ", got another exception: " << e.what();
        return;
    }
    ADD_FAILURE() << "expected " << to_string(code) << ", but nothing was thrown";
}

}  // namespace convgrad::test

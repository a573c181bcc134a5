// expect_error(code, {"part", …}, call): the call throws convgrad::error with this code, and the
// message contains every part.
#pragma once

#include <initializer_list>
#include <source_location>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <convgrad/error.hpp>

namespace convgrad::test {

template <typename Call>
void expect_error(error_code code, std::initializer_list<std::string_view> parts, Call &&call,
    const std::source_location at = std::source_location::current()) {
    const testing::ScopedTrace trace(
        at.file_name(), static_cast<int>(at.line()), "expect_error called here");
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

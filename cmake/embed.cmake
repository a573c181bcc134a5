# Turns a file into a C++ source with one function that returns its bytes.
#   cmake -DINPUT=… -DOUTPUT=… -DNAMESPACE=… -DFUNCTION=… -P cmake/embed.cmake
file(READ "${INPUT}" hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes
  "${bytes}")
file(WRITE "${OUTPUT}" "// Made by embed.cmake.
#include <cstdint>
#include <span>

namespace ${NAMESPACE} {
std::span<const std::uint8_t> ${FUNCTION}();
std::span<const std::uint8_t> ${FUNCTION}() {
    static constexpr std::uint8_t bytes[] = {
${bytes}
    };
    return bytes;
}
}  // namespace ${NAMESPACE}
")

// One description gives sizes and addresses.
#include <gtest/gtest.h>

#include "cpu/memory_walk.hpp"

namespace convgrad::test {
namespace {

struct pieces {
    char *odd;
    float *lines;
    dim *last;
};

pieces lay_out(cpu::memory_walk &memory) {
    pieces p{};
    p.odd = memory.take_lines<char>(3);
    p.lines = memory.take<float>(32);
    p.last = memory.take_lines<dim>(1);
    return p;
}

TEST(memory_walk, measures_without_memory) {
    cpu::memory_walk walk;
    const pieces none = lay_out(walk);
    EXPECT_EQ(none.odd, nullptr);
    EXPECT_EQ(none.last, nullptr);
    EXPECT_EQ(walk.bytes(), 64U + 128U + 64U);
    EXPECT_EQ(cpu::bytes_of_walk(lay_out), walk.bytes());
}

TEST(memory_walk, hands_out_what_it_measured) {
    alignas(64) char memory[512];
    cpu::memory_walk walk(memory);
    const pieces first = lay_out(walk), second = lay_out(walk);
    EXPECT_EQ(first.odd, memory);
    EXPECT_EQ(static_cast<void *>(first.lines), memory + 64);
    EXPECT_EQ(static_cast<void *>(first.last), memory + 192);
    EXPECT_EQ(second.odd, memory + cpu::bytes_of_walk(lay_out));
    EXPECT_EQ(walk.bytes(), 2 * cpu::bytes_of_walk(lay_out));
}

}  // namespace
}  // namespace convgrad::test

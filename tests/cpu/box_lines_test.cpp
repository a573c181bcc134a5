// Every line of a box is asked for, and little else.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cpu/box_lines.hpp"

namespace convgrad::test {
namespace {

using cpu::box_lines;

std::set<dim> lines_asked(const char *memory, box_lines box, dim at_once) {
    std::set<dim> lines;
    while (box.lines() > 0)
        box.next(at_once, [&](const char *p) { lines.insert((p - memory) / 64); });
    return lines;
}

std::set<dim> lines_touched(dim first, dim bytes, const std::array<box_lines::axis, 4> &axes) {
    std::set<dim> lines;
    for (dim a = 0; a < axes[0].count; ++a)
        for (dim b = 0; b < axes[1].count; ++b)
            for (dim c = 0; c < axes[2].count; ++c)
                for (dim d = 0; d < axes[3].count; ++d) {
                    const dim at = first + a * axes[0].stride + b * axes[1].stride
                                   + c * axes[2].stride + d * axes[3].stride;
                    for (dim byte = at; byte < at + bytes; ++byte) lines.insert(byte / 64);
                }
    return lines;
}

struct box {
    dim first, bytes;
    std::array<box_lines::axis, 4> axes;
};

TEST(box_lines, asks_for_each_line_of_a_box) {
    alignas(64) static char memory[1 << 16];
    const std::vector<box> boxes = {
        {48, 4, {{{1, 9999}, {5, 112}, {28, 4}, {6, 3136}}}},  // rows of planes
        {4, 4, {{{2, 8000}, {3, 896}, {7, 128}, {8, 4}}}},     // channels side by side
        {60, 2, {{{1, 0}, {1, 0}, {1, 0}, {1, 0}}}},           // one element
        {0, 2, {{{3, 20000}, {3, 300}, {33, 4}, {1, 2}}}},     // every second
        {100, 4, {{{4, 64}, {4, 4096}, {4, 256}, {16, 4}}}},   // in any order
    };
    for (const box &b : boxes)
        for (const dim at_once : {1, 3, 1000}) {
            const auto asked = lines_asked(memory, {memory + b.first, b.bytes, b.axes}, at_once);
            EXPECT_EQ(asked, lines_touched(b.first, b.bytes, b.axes)) << b.first;
        }
}

// Runs that do not start on a line may lack their last one: these do.
TEST(box_lines, lists_hold_each_line_of_a_box) {
    alignas(64) static char memory[1 << 17];
    const std::vector<box> boxes = {
        {64, 4, {{{1, 9999}, {5, 112}, {28, 4}, {6, 3136}}}},
        {0, 4, {{{2, 8192}, {3, 896}, {7, 128}, {8, 4}}}},
        {0, 2, {{{1, 0}, {1, 0}, {1, 0}, {1, 0}}}},
        {128, 4, {{{4, 640}, {3, 4096}, {4, 12800}, {16, 4}}}},
        {0, 2, {{{300, 2}, {1, 0}, {1, 0}, {40, 2048}}}},
    };
    for (const box &b : boxes)
        for (const dim at_once : {1, 7, 1000}) {
            cpu::fetch_lists lists = box_lines(memory + b.first, b.bytes, b.axes).lists();
            std::set<dim> asked;
            dim pairs = 0;
            for (const dim all = lists.pairs(); lists.pairs() > 0;) {
                const auto list = lists.next(at_once);
                ASSERT_GT(list.count, 0);
                ASSERT_LE(list.count, at_once);
                pairs += list.count;
                ASSERT_EQ(pairs + lists.pairs(), all);
                for (dim i = 0; i < list.count; ++i)
                    for (const dim line : {0, 64})
                        asked.insert((list.at + i * list.step + line - memory) / 64);
            }
            for (const dim line : lines_touched(b.first, b.bytes, b.axes))
                EXPECT_TRUE(asked.count(line) == 1) << line << " from " << b.first;
            EXPECT_EQ(lists.next(1).count, 0);
        }
}

TEST(box_lines, what_is_ahead_is_shared_out_over_blocks) {
    alignas(64) static char memory[1 << 16];
    for (const dim blocks : {1, 12, 15, 40, 500}) {
        const cpu::fetch_lists runs(memory, 1280, {{{12, 4096}}});  // 12 runs of 10 pairs
        cpu::fetch_ahead ahead(cpu::fetch_lists(), runs, blocks);
        dim pairs = 0;
        for (dim block = 0; block < std::max<dim>(blocks, 10); ++block) {
            cpu::product_args args{};
            ahead.fill(args);
            EXPECT_EQ(args.fetch[0].count, 0);
            EXPECT_LE(args.fetch[1].count, 12);
            pairs += args.fetch[1].count;
        }
        EXPECT_EQ(pairs, 120) << blocks;
    }
}

TEST(box_lines, an_empty_box_has_none) {
    const char byte = 0;
    EXPECT_EQ(box_lines().lines(), 0);
    EXPECT_EQ(box_lines().lists().pairs(), 0);
    EXPECT_EQ(box_lines(&byte, 4, {{{1, 4}, {0, 4}, {3, 64}, {2, 512}}}).lines(), 0);
}

}  // namespace
}  // namespace convgrad::test

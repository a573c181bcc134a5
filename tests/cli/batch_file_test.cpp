// Batch files: problems, comments, options that are honoured and options that are passed over.
#include "batch_file.hpp"

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <gtest/gtest.h>

#include "usage_error.hpp"

namespace convgrad::cli {
namespace {

namespace fs = std::filesystem;

/// A directory of its own for each test.
class batch_file : public testing::Test {
protected:
    void SetUp() override {
        dir_ = fs::temp_directory_path()
               / ("convgrad_batch_" + std::to_string(getpid()) + "_"
                   + testing::UnitTest::GetInstance()->current_test_info()->name());
        fs::create_directories(dir_ / "deeper");
    }
    void TearDown() override { fs::remove_all(dir_); }

    fs::path write(const std::string &name, const std::string &text) const {
        std::ofstream(dir_ / name) << text;
        return dir_ / name;
    }
    [[nodiscard]] batch read(const std::string &text) const {
        return read_batch(write("batch", text));
    }

    fs::path dir_;
};

std::vector<std::string> texts(const batch &b) {
    std::vector<std::string> list;
    for (const batch_entry &entry : b.entries) list.push_back(entry.text);
    return list;
}

using list = std::vector<std::string>;

TEST_F(batch_file, problems_comments_and_blank_lines) {
    const batch b = read("# a comment\n\n  ic1ih2oc3kh1  # trailing\nic2ih2oc3kh1 "
                         "ic3ih2oc3kh1\r\n\t#ic9\nic4n\"a#b\"");
    EXPECT_EQ(texts(b), (list{"ic1ih2oc3kh1", "ic2ih2oc3kh1", "ic3ih2oc3kh1", "ic4n\"a#b\""}));
    EXPECT_EQ(b.entries[0].where, (dir_ / "batch").string() + ":3");
    EXPECT_EQ(b.entries[2].where, (dir_ / "batch").string() + ":4");
    EXPECT_FALSE(b.entries[0].dir.has_value());
    EXPECT_FALSE(b.entries[0].types.has_value());
    EXPECT_FALSE(b.entries[0].deconv.has_value());
    EXPECT_EQ(b.entries[0].mb, 0);
    EXPECT_TRUE(b.ignored.empty());
}

TEST_F(batch_file, empty_file) {
    EXPECT_TRUE(read("").entries.empty());
    EXPECT_TRUE(read("# nothing\n\\\n").entries.empty());
}

TEST_F(batch_file, continued_lines) {
    const batch b = read("--attr-post-ops=, \\\n   sum:0.5, \\\n  add:f32\nic1 ic2\\\nih3 ic4");
    EXPECT_EQ(texts(b), (list{"ic1", "ic2ih3", "ic4"}));
    EXPECT_EQ(b.ignored.at("--attr-post-ops"), 1);
}

TEST_F(batch_file, directions) {
    const batch b =
        read("--dir=FWD_B,bwd_wb\nic1\n--dir=BWD_D\nic2\n--dir=BWD_DW\nic3\n--reset\nic4");
    ASSERT_EQ(b.entries.size(), 4U);
    EXPECT_TRUE(b.entries[0].dir->forward && b.entries[0].dir->backward_weights);
    EXPECT_FALSE(b.entries[0].dir->backward_data);
    EXPECT_TRUE(b.entries[1].dir->backward_data && !b.entries[1].dir->forward);
    EXPECT_TRUE(b.entries[2].dir->backward_data && b.entries[2].dir->backward_weights);
    EXPECT_FALSE(b.entries[3].dir.has_value());
    EXPECT_THROW(static_cast<void>(read("--dir=SIDEWAYS\n")), usage_error);
}

TEST_F(batch_file, types) {
    const batch b =
        read("--dt=f32,bf16:bf16:bf16,s8:s8:f32,bf16\nic1\n--dt=u8:s8:s8\nic2\n--reset\nic3");
    EXPECT_EQ(*b.entries[0].types, (std::vector{data_type::f32, data_type::bf16}));
    EXPECT_TRUE(b.entries[1].types->empty());
    EXPECT_FALSE(b.entries[2].types.has_value());
}

TEST_F(batch_file, batch_sizes_and_match) {
    const batch b = read(
        "--mb=1,4\nic1nfirst\n--match=.*fir.*\nic2nfirst\nic3nsecond\n--match=\n--mb=0\nic4nthird");
    ASSERT_EQ(b.entries.size(), 5U);
    EXPECT_EQ(texts(b), (list{"ic1nfirst", "ic1nfirst", "ic2nfirst", "ic2nfirst", "ic4nthird"}));
    EXPECT_EQ(b.entries[0].mb, 1);
    EXPECT_EQ(b.entries[1].mb, 4);
    EXPECT_EQ(b.entries[4].mb, 0);
    EXPECT_THROW(static_cast<void>(read("--mb=two\n")), usage_error);
    EXPECT_THROW(static_cast<void>(read("--match=(\n")), usage_error);
}

TEST_F(batch_file, long_expressions_and_texts_are_refused) {
    const std::string much(100000, 'a'), open(100000, '(');
    EXPECT_THROW(static_cast<void>(read("--match=" + open + "\nic1\n")), usage_error);
    EXPECT_THROW(static_cast<void>(read("--match=.*x\nic1n" + much + "\n")), usage_error);
    const std::string long_text(1000, 'a');
    EXPECT_EQ(read("--match=.*a\nic1n" + long_text + "\n").entries.size(), 1U);
}

TEST_F(batch_file, names_of_files_may_be_too_long) {
    EXPECT_THROW(static_cast<void>(read("--batch=" + std::string(5000, 'b') + "\n")), usage_error);
}

TEST_F(batch_file, options_and_problem_on_one_line) {
    const batch b = read("--reset --allow-enum-tags-only=0 --dir=BWD_D --dt=bf16:bf16:bf16 "
                         "--stag=acdeb ic1 --dir=BWD_W ic2\n");
    EXPECT_EQ(texts(b), (list{"ic1", "ic2"}));
    EXPECT_TRUE(b.entries[0].dir->backward_data);
    EXPECT_TRUE(b.entries[1].dir->backward_weights);
    EXPECT_EQ(b.ignored.at("--stag"), 1);
    EXPECT_EQ(b.ignored.at("--allow-enum-tags-only"), 1);
}

TEST_F(batch_file, nested_files_start_from_the_options_in_force_and_do_not_change_them) {
    write("deeper/inner", "--dt=f16\nic2\n--batch=leaf\n");
    write("deeper/leaf", "ic3\n");
    const batch b = read("--dt=bf16\nic1\n--batch=deeper/inner\nic4\n--deconv\nic5\n--conv ic6");
    EXPECT_EQ(texts(b), (list{"ic1", "ic2", "ic3", "ic4", "ic5", "ic6"}));
    EXPECT_EQ(*b.entries[1].types, std::vector{data_type::f16});
    EXPECT_EQ(*b.entries[2].types, std::vector{data_type::f16});
    EXPECT_EQ(*b.entries[3].types, std::vector{data_type::bf16});
    EXPECT_FALSE(b.entries[3].deconv.has_value());
    EXPECT_TRUE(*b.entries[4].deconv);
    EXPECT_FALSE(*b.entries[5].deconv);
}

TEST_F(batch_file, files_that_cannot_be_read) {
    EXPECT_THROW(static_cast<void>(read_batch(dir_ / "absent")), usage_error);
    EXPECT_THROW(static_cast<void>(read_batch(dir_ / "deeper")), usage_error);
    EXPECT_THROW(static_cast<void>(read("--batch=absent\n")), usage_error);
    EXPECT_THROW(static_cast<void>(read("ic1\n--batch=batch\n")), usage_error);  // itself
}

}  // namespace
}  // namespace convgrad::cli

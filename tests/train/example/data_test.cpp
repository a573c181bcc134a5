// Reading data, and files that are replaced as a whole.
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "train/checkpoint.hpp"
#include "train/dataset.hpp"
#include "train/idx.hpp"
#include "train/whole_file.hpp"

using namespace convgrad::train;

namespace {

using bytes = std::vector<std::uint8_t>;

std::string refusal(const bytes &file, std::size_t rank) {
    try {
        parse_idx(file, rank, "f");
    } catch (const std::runtime_error &e) {
        return e.what();
    }
    return "accepted";
}

TEST(idx, reads_what_it_announces) {
    const idx_array a = parse_idx(bytes{0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9}, 1, "f");
    EXPECT_EQ(a.shape, std::vector<std::size_t>{3});
    EXPECT_EQ(a.data, (bytes{7, 8, 9}));
}

TEST(idx, refuses_everything_else) {
    EXPECT_EQ(refusal({}, 1), "f: is not an IDX file");
    EXPECT_EQ(refusal({1, 2, 3, 4, 5}, 1), "f: is not an IDX file");
    EXPECT_EQ(refusal({0x1f, 0x8b, 8}, 1), "f: is compressed; unpack it with gunzip");
    EXPECT_EQ(refusal({0, 0, 13, 1, 0, 0, 0, 0}, 1),
        "f: holds values of IDX type 13; expected 8 (unsigned bytes)");
    EXPECT_EQ(refusal({0, 0, 8, 1, 0, 0, 0, 0}, 3), "f: has 1 axes; expected 3 (images)");
    EXPECT_EQ(refusal({0, 0, 8, 1, 0, 0}, 1), "f: ends within its header");
    EXPECT_EQ(refusal({0, 0, 8, 1, 0, 0, 0, 3, 7, 8}, 1), "f: announces 3 values but holds 2");
    bytes huge = {0, 0, 8, 3};
    huge.insert(huge.end(), 12, 0xff);
    EXPECT_EQ(refusal(huge, 3), "f: announces more values than memory can hold");
}

TEST(dataset, embedded_digits) {
    const dataset data = embedded_digits();
    EXPECT_EQ(data.training.size(), 1438U);
    EXPECT_EQ(data.test.size(), 359U);
    EXPECT_EQ(data.classes, 10);
    EXPECT_EQ(data.training.height, 8);
    EXPECT_EQ(data.training.width, 8);
    EXPECT_EQ(data.training.pixels.size(), 1438U * 64);
    for (const images *set : {&data.training, &data.test})
        for (float p : set->pixels) EXPECT_TRUE(p >= 0 && p <= 1);
    // The first image is a zero; its first row is 0 0 5 13 9 1 0 0.
    EXPECT_EQ(data.training.labels[0], 0);
    EXPECT_EQ(data.training.pixels[3], 13.0F / 16);
}

TEST(dataset, shuffles_all_and_repeats_with_the_seed) {
    random_numbers a(3, 1), b(3, 1), c(3, 2);
    const auto order = shuffled(100, a);
    EXPECT_EQ(order, shuffled(100, b));
    EXPECT_NE(order, shuffled(100, c));
    std::vector<bool> seen(100);
    for (std::size_t i : order) seen[i] = true;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 100);
}

TEST(dataset, augmented_images_stay_images) {
    const dataset data = embedded_digits();
    const std::vector<std::size_t> some = {0, 1, 2, 3};
    values batch;
    gather(data.training, some, batch);
    const std::vector<float> before = batch.data;
    random_numbers random(1);
    augment(batch, random);
    EXPECT_NE(batch.data, before);
    for (float p : batch.data) EXPECT_TRUE(p >= 0 && p <= 1);
}

class checkpoint : public testing::Test {
protected:
    checkpoint() { std::filesystem::create_directories(directory_); }
    ~checkpoint() override { std::filesystem::remove_all(directory_); }
    std::string path(const std::string &name) { return (directory_ / name).string(); }
    void write(const std::string &name, const bytes &content) {
        std::ofstream(path(name), std::ios::binary)
            .write(reinterpret_cast<const char *>(content.data()),
                static_cast<std::streamsize>(content.size()));
    }
    /// Everything in the directory, in order.
    std::string names() {
        std::set<std::string> sorted;
        for (const auto &entry : std::filesystem::directory_iterator(directory_))
            sorted.insert(entry.path().filename().string());
        std::string text;
        for (const std::string &name : sorted) text += (text.empty() ? "" : " ") + name;
        return text;
    }

private:
    std::filesystem::path directory_ =
        std::filesystem::temp_directory_path() / ("checkpoint_test_" + std::to_string(getpid()));
};

TEST_F(checkpoint, comes_back) {
    const bytes state = {1, 2, 3, 4, 5};
    write_checkpoint(path("a"), bytes(100, 9));
    write_checkpoint(path("a"), state);
    EXPECT_EQ(read_checkpoint(path("a")), state);
    EXPECT_EQ(names(), "a");
}

TEST_F(checkpoint, any_damage_is_found) {
    write_checkpoint(path("a"), {{1, 2, 3, 4, 5}});
    const bytes whole = read_file(path("a"));
    for (std::size_t i = 0; i < whole.size(); ++i) {
        bytes changed = whole;
        changed[i] ^= 1;
        write("changed", changed);
        EXPECT_THROW(read_checkpoint(path("changed")), std::runtime_error) << i;
        write("short", bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(i)));
        EXPECT_THROW(read_checkpoint(path("short")), std::runtime_error) << i;
    }
}

TEST_F(checkpoint, a_file_that_cannot_be_written_is_an_error) {
    EXPECT_THROW(replace_file(path("absent/a"), {}), std::runtime_error);
    EXPECT_THROW(replace_file(path(""), {}), std::runtime_error);
    EXPECT_THROW(replace_file("", {}), std::runtime_error);
    EXPECT_THROW(replace_file("/dev/full", {{1, 2}}), std::runtime_error);
    for (const std::string &name : {path("absent/a"), path(""), std::string()})
        EXPECT_THROW(check_replaceable(name), std::runtime_error) << name;
    EXPECT_NO_THROW(check_replaceable(path("a")));
    EXPECT_EQ(names(), "");
}

TEST_F(checkpoint, links_are_followed) {
    write("far", {1});
    std::filesystem::create_symlink("far", path("near"));
    std::filesystem::create_symlink("near", path("link"));
    std::filesystem::create_symlink("new", path("dangling"));
    std::filesystem::create_symlink("cycle", path("cycle"));
    std::filesystem::permissions(path("far"), std::filesystem::perms{0640});
    replace_file(path("link"), {{2, 3}});
    replace_file(path("dangling"), {{4}});
    EXPECT_THROW(replace_file(path("cycle"), {{5}}), std::runtime_error);
    EXPECT_EQ(read_file(path("far")), (bytes{2, 3}));
    EXPECT_EQ(read_file(path("new")), bytes{4});
    EXPECT_EQ(names(), "cycle dangling far link near new");
    EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
    EXPECT_TRUE(std::filesystem::is_symlink(path("dangling")));
    EXPECT_EQ(std::filesystem::status(path("far")).permissions(), std::filesystem::perms{0640});
}

TEST_F(checkpoint, what_is_no_regular_file_is_written_to) {
    ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
    bytes seen(3);
    std::thread reader([&] {
        std::ifstream(path("fifo"), std::ios::binary)
            .read(reinterpret_cast<char *>(seen.data()), 3);
    });
    replace_file(path("fifo"), {{6, 7, 8}});
    reader.join();
    EXPECT_EQ(seen, (bytes{6, 7, 8}));
    EXPECT_TRUE(std::filesystem::is_fifo(path("fifo")));
    replace_file("/dev/null", {{1}});
    EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
    EXPECT_EQ(names(), "fifo");
}

}  // namespace

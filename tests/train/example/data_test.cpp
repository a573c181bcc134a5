// Reading data, and files that are replaced as a whole.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "train/checkpoint.hpp"
#include "train/dataset.hpp"
#include "train/idx.hpp"

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

private:
    std::filesystem::path directory_ =
        std::filesystem::temp_directory_path() / ("checkpoint_test_" + std::to_string(getpid()));
};

TEST_F(checkpoint, comes_back) {
    const bytes state = {1, 2, 3, 4, 5};
    write_checkpoint(path("a"), bytes(100, 9));
    write_checkpoint(path("a"), state);
    EXPECT_EQ(read_checkpoint(path("a")), state);
    EXPECT_FALSE(std::filesystem::exists(path("a.tmp")));
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
}

}  // namespace

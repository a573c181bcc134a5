#include "dataset.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <stdexcept>

#include "embedded.hpp"
#include "fingerprint.hpp"
#include "idx.hpp"

namespace convgrad::train {
namespace {

/// Images and labels that belong together, pixel values as they are in the files.
struct raw_set {
    idx_array pixels, labels;
};

raw_set parse_pair(std::span<const std::uint8_t> pixels, const std::string &pixels_source,
    std::span<const std::uint8_t> labels, const std::string &labels_source) {
    raw_set raw{parse_idx(pixels, 3, pixels_source), parse_idx(labels, 1, labels_source)};
    if (raw.pixels.shape[0] != raw.labels.shape[0])
        throw std::runtime_error(pixels_source + " has " + std::to_string(raw.pixels.shape[0])
                                 + " images, but " + labels_source + " has "
                                 + std::to_string(raw.labels.shape[0]) + " labels");
    if (raw.pixels.data.empty()) throw std::runtime_error(pixels_source + ": has no pixels");
    return raw;
}

/// The images for which wanted(index) holds, with pixels divided by `largest`.
template <typename Wanted>
images take(const raw_set &raw, float largest, Wanted &&wanted) {
    images set;
    set.height = static_cast<dim>(raw.pixels.shape[1]);
    set.width = static_cast<dim>(raw.pixels.shape[2]);
    for (std::size_t n = 0; n < raw.labels.data.size(); ++n) {
        if (!wanted(n)) continue;
        set.labels.push_back(raw.labels.data[n]);
        for (std::size_t i = 0; i < set.area(); ++i)
            set.pixels.push_back(static_cast<float>(raw.pixels.data[n * set.area() + i]) / largest);
    }
    return set;
}

float largest_pixel(const raw_set &raw) {
    const auto largest = *std::max_element(raw.pixels.data.begin(), raw.pixels.data.end());
    return std::max<float>(1.0F, largest);
}

std::uint64_t fingerprint_of(const images &set, std::uint64_t so_far) {
    so_far = fingerprint(set.pixels.data(), set.pixels.size() * sizeof(float), so_far);
    return fingerprint(set.labels.data(), set.labels.size(), so_far);
}

void complete(dataset &data) {
    std::uint8_t highest = 0;
    for (const images *set : {&data.training, &data.test}) {
        highest = std::max(highest, *std::max_element(set->labels.begin(), set->labels.end()));
        data.fingerprint = fingerprint_of(*set, data.fingerprint);
    }
    data.classes = highest + 1;
}

/// A file by MNIST's usual names: with a dash, or with the dot that some archives have.
std::string find_file(
    const std::filesystem::path &directory, const std::string &stem, const std::string &ending) {
    for (const char separator : {'-', '.'}) {
        std::string name = stem;
        name.append(1, separator).append(ending);
        const auto path = directory / name;
        if (std::filesystem::exists(path)) return path.string();
    }
    const std::string name = stem + "-" + ending;
    const bool packed = std::filesystem::exists(directory / (name + ".gz"));
    throw std::runtime_error(directory.string() + ": " + name
                             + (packed ? " is still compressed; unpack it with gunzip"
                                       : " is missing (expected: train-images-idx3-ubyte, "
                                         "train-labels-idx1-ubyte, t10k-images-idx3-ubyte, "
                                         "t10k-labels-idx1-ubyte)"));
}

raw_set read_pair(const std::filesystem::path &directory, const std::string &which) {
    const std::string pixels = find_file(directory, which + "-images", "idx3-ubyte");
    const std::string labels = find_file(directory, which + "-labels", "idx1-ubyte");
    constexpr std::string_view beginning("\0\0\x08", 3);  // of every IDX file with bytes
    return parse_pair(read_file(pixels, beginning), pixels, read_file(labels, beginning), labels);
}

}  // namespace

dataset embedded_digits() {
    const raw_set raw =
        parse_pair(digits_images(), "embedded images", digits_labels(), "embedded labels");
    const auto for_testing = [](std::size_t n) { return n % 5 == 4; };
    const float largest = largest_pixel(raw);
    dataset data;
    data.name = "UCI optical digits (embedded)";
    data.training = take(raw, largest, [&](std::size_t n) { return !for_testing(n); });
    data.test = take(raw, largest, for_testing);
    complete(data);
    return data;
}

dataset read_directory(const std::string &path) {
    if (!std::filesystem::is_directory(path))
        throw std::runtime_error(path + ": is not a directory");
    const raw_set training = read_pair(path, "train"), test = read_pair(path, "t10k");
    if (!std::equal(training.pixels.shape.begin() + 1, training.pixels.shape.end(),
            test.pixels.shape.begin() + 1))
        throw std::runtime_error(path + ": training and test images differ in size");
    const float largest = std::max(largest_pixel(training), largest_pixel(test));
    const auto all = [](std::size_t) { return true; };
    dataset data;
    data.name = path;
    data.training = take(training, largest, all);
    data.test = take(test, largest, all);
    complete(data);
    return data;
}

std::vector<std::size_t> shuffled(std::size_t count, random_numbers &random) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    return order;
}

void gather(const images &from, std::span<const std::size_t> indices, values &to) {
    to.reshape({static_cast<dim>(indices.size()), from.height, from.width, 1});
    for (std::size_t n = 0; n < indices.size(); ++n)
        std::copy_n(from.pixels.begin() + static_cast<std::ptrdiff_t>(indices[n] * from.area()),
            from.area(), to.data.begin() + static_cast<std::ptrdiff_t>(n * from.area()));
}

void augment(values &batch, random_numbers &random) {
    const dim height = batch.shape[1], width = batch.shape[2];
    const auto area = static_cast<std::size_t>(height * width);
    const float middle_y = static_cast<float>(height - 1) / 2,
                middle_x = static_cast<float>(width - 1) / 2;
    std::vector<float> original(area);
    for (std::size_t n = 0; n < static_cast<std::size_t>(batch.shape[0]); ++n) {
        float *image = batch.data.data() + n * area;
        std::copy_n(image, area, original.begin());
        const auto pixel = [&](dim y, dim x) {
            const bool inside = y >= 0 && y < height && x >= 0 && x < width;
            return inside ? original[static_cast<std::size_t>(y * width + x)] : 0.0F;
        };
        const float angle = random.uniform(-0.2F, 0.2F), shear = random.uniform(-0.15F, 0.15F);
        const float scale_y = random.uniform(0.88F, 1.12F), scale_x = random.uniform(0.88F, 1.12F);
        const float shift = 0.09F * static_cast<float>(std::min(height, width));
        const float shift_y = random.uniform(-shift, shift),
                    shift_x = random.uniform(-shift, shift);
        const float sine = std::sin(angle), cosine = std::cos(angle);
        for (dim y = 0; y < height; ++y)
            for (dim x = 0; x < width; ++x) {
                // Where this pixel comes from, and the four pixels around that place.
                const float v = (static_cast<float>(y) - middle_y) * scale_y,
                            u = (static_cast<float>(x) - middle_x) * scale_x + shear * v;
                const float from_y = sine * u + cosine * v + middle_y + shift_y,
                            from_x = cosine * u - sine * v + middle_x + shift_x;
                const float floor_y = std::floor(from_y), floor_x = std::floor(from_x);
                const float part_y = from_y - floor_y, part_x = from_x - floor_x;
                const auto y0 = static_cast<dim>(floor_y), x0 = static_cast<dim>(floor_x);
                image[y * width + x] =
                    (1 - part_y) * ((1 - part_x) * pixel(y0, x0) + part_x * pixel(y0, x0 + 1))
                    + part_y * ((1 - part_x) * pixel(y0 + 1, x0) + part_x * pixel(y0 + 1, x0 + 1));
            }
    }
}

}  // namespace convgrad::train

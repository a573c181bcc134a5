// Images with labels: the digits inside the program, or IDX files of MNIST's kind.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "random.hpp"
#include "values.hpp"

namespace convgrad::train {

struct images {
    dim height = 0, width = 0;
    std::vector<float> pixels;  // 0 to 1, image after image
    std::vector<std::uint8_t> labels;

    [[nodiscard]] std::size_t size() const { return labels.size(); }
    [[nodiscard]] std::size_t area() const { return static_cast<std::size_t>(height * width); }
};

struct dataset {
    std::string name;
    images training, test;
    dim classes = 0;
    /// Identifies the data: a checkpoint is only continued with what it was begun with.
    std::uint64_t fingerprint = 0;
};

/// The 1,797 digits of data/digits. Every fifth image is for testing: 1,438 and 359.
dataset embedded_digits();

/// train-images-idx3-ubyte, train-labels-idx1-ubyte and the same with t10k. Throws
/// std::runtime_error.
dataset read_directory(const std::string &path);

/// A random order of [0, count).
std::vector<std::size_t> shuffled(std::size_t count, random_numbers &random);

/// The images at `indices`, as N×H×W×1.
void gather(const images &from, std::span<const std::size_t> indices, values &to);

/// Turns, scales, shears and shifts each image a little.
void augment(values &batch, random_numbers &random);

}  // namespace convgrad::train

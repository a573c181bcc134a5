// Tables of errors, as docs/accuracy.md shows them.
#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/problems.hpp"

namespace convgrad::accuracy {

struct row_key {
    family f;
    bool master;  // f32 gradients of 16-bit data
    std::string method;
    friend bool operator==(const row_key &, const row_key &) = default;
};
using row = std::array<errors, std::size(all_flavours)>;

/// All rows of one type, in order of appearance within a family.
struct type_table {
    std::vector<std::pair<row_key, row>> rows;

    row &at(const row_key &key);
};

/// Three digits.
std::string number(double v);
void print(std::ostream &out, const type_table &t, double (*value)(const errors &));

}  // namespace convgrad::accuracy

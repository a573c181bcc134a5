// Problems as files for another library to compute, and its results.
//
// DIR/index.jsonl has one object per problem, in order: pass, type, out_type, and sizes as a
// convolution; DIR/<number>.a and .b hold its two inputs as f32 in the order (N, C, X…) or (O, I,
// K…), DIR/<number>.out the results in the same form, if the other library could compute it.
// DIR/name names the other library.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "accuracy/subject.hpp"

namespace convgrad::accuracy {

class exporter {
public:
    explicit exporter(std::string directory);
    void add(const subject &s);

private:
    std::string directory_;
    std::ofstream index_;
    int count_ = 0;
};

class imported {
public:
    explicit imported(std::string directory);
    [[nodiscard]] const std::string &name() const { return name_; }
    /// The results of the problem after the last one; nothing where there are none.
    [[nodiscard]] std::optional<std::vector<double>> next() const;

private:
    std::string directory_, name_;
    mutable int count_ = 0;
};

}  // namespace convgrad::accuracy

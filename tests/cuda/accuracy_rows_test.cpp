// Errors of every algorithm are measured: each is reached by a problem, and has a row in
// docs/accuracy.md. No GPU is needed.
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "accuracy/engine_runs.hpp"
#include "accuracy/problems.hpp"
#include "cuda/plan.hpp"

namespace convgrad::accuracy {
namespace {

/// All that compute a problem on the best device there is, with cuDNN.
void add_algorithms(const conv::problem &p, std::set<std::string> &found) {
    cuda::architecture on = cuda::architecture_of(9, 0);
    on.cudnn = true;
    std::vector<engines::verdict> verdicts;
    found.emplace(cuda::make_plan(p, on, {}, &verdicts)->algorithm());
    for (const engines::verdict &v : verdicts)
        if (v.seconds > 0) found.emplace(v.algorithm);
}

TEST(cuda_accuracy_rows, every_algorithm_computes_a_problem_that_is_measured) {
    std::set<std::string> found;
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
        for (const family f : engine_families)
            for (const named_problem &n : engine_problems_of(f, type))
                for (const math_mode math : modes_of(type)) {
                    conv::problem p = n.p;
                    p.math = math;
                    add_algorithms(p, found);
                }
    for (const std::string_view name : cuda::algorithm_names())
        EXPECT_TRUE(found.contains(std::string(name))) << name;
}

std::string text_of(const char *path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

// What has not been measured says so: a kernel that is new needs a GPU.
TEST(cuda_accuracy_rows, every_algorithm_has_a_row_or_is_said_to_have_none) {
    const std::string page = text_of("docs/accuracy.md"),
                      data = text_of("docs/measured/accuracy_cuda.csv");
    ASSERT_NE(page, "");
    const std::size_t from = page.find("**Not measured yet**");
    const std::string without =
        from == std::string::npos ? "" : page.substr(from, page.find("\n\n", from) - from);
    for (const std::string_view name : cuda::algorithm_names()) {
        const std::string text(name);
        const bool is_measured = data.find(",\"" + text + ", ") != std::string::npos;
        EXPECT_NE(is_measured, without.find("`" + text + "`") != std::string::npos) << name;
        EXPECT_EQ(is_measured, page.find("| " + text + ", ") != std::string::npos)
            << name << ": convgrad_accuracy --measured docs/measured/accuracy_cuda.csv --write "
            << "docs/accuracy.md";
    }
}

}  // namespace
}  // namespace convgrad::accuracy

// The exhaustive small problems of the CPU's tests on a GPU, on exact integers: all axes in one
// dimension with all groups, formats, types and passes; of their pairs and triples a part, with the
// rest by chance. Each by free choice and by one more of the algorithms that take it.
#include <convgrad/error.hpp>

#include "cuda/machine.hpp"
#include "support/exhaustive.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

class checker {
public:
    /// False after a failure.
    bool check(const problem &p, std::uint64_t seed) {
        bench_.load(p, fill::integers, seed);
        bench_.run_reference();
        const std::string chosen = gpu_.run(bench_);
        if (!agrees(chosen)) return false;
        const auto names = cuda::algorithm_names();
        for (std::size_t i = 0; i < names.size(); ++i) {
            const std::string_view other = names[(seed + i) % names.size()];
            if (other == chosen) continue;
            try {
                gpu_.run(bench_, other);
            } catch (const error &e) {
                if (e.code() == error_code::unsupported) continue;
                throw;
            }
            return agrees(other);
        }
        return true;
    }

private:
    bool agrees(std::string_view algorithm) {
        const std::string difference = bench_.compare_exact();
        EXPECT_EQ(difference, "") << algorithm;
        return difference.empty();
    }

    workbench bench_;
    gpu_bench gpu_;
};

void check_one_dimension(pass what, data_type type) {
    CONVGRAD_NEEDS_GPU();
    checker gpu;
    for_each_one_dimension(what, type, [&](const problem &p, std::uint64_t number) {
        return number % sample_step() != 0 || gpu.check(p, number);
    });
}

TEST(cuda_exhaustive, one_dimension_forward) {
    for (const data_type type : exhaustive_types) check_one_dimension(pass::forward, type);
}
TEST(cuda_exhaustive, one_dimension_backward_data) {
    for (const data_type type : exhaustive_types) check_one_dimension(pass::backward_data, type);
}
TEST(cuda_exhaustive, one_dimension_backward_weights) {
    for (const data_type type : exhaustive_types) check_one_dimension(pass::backward_weights, type);
}

TEST(cuda_exhaustive, a_part_of_the_pairs) {
    CONVGRAD_NEEDS_GPU();
    checker gpu;
    const std::vector<conv::axis> axes = all_axes();
    std::uint64_t number = 0;
    const std::uint64_t step = 149 * sample_step();  // prime to the number of axes
    for (const pass what : {pass::forward, pass::backward_data, pass::backward_weights})
        for (const conv::axis &a : axes)
            for (const conv::axis &b : axes) {
                if (++number % step != 0) continue;
                rng random(number);
                if (!gpu.check(problem_with(random, what, {a, b}), number)) return;
            }
}

TEST(cuda_exhaustive, some_triples) {
    CONVGRAD_NEEDS_GPU();
    checker gpu;
    const std::vector<conv::axis> axes = all_axes();
    for (std::uint64_t number = 1; number <= 6000; number += sample_step()) {
        rng random(number + (std::uint64_t{1} << 33));
        const auto any = [&] { return axes[random.next() % axes.size()]; };
        const conv::axis a = any(), b = any(), c = any();
        const auto what = static_cast<pass>(number % 3);
        if (!gpu.check(problem_with(random, what, {a, b, c}), number)) return;
    }
}

}  // namespace
}  // namespace convgrad::test

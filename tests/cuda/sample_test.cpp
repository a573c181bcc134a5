// One case of every kernel: few enough for tools that watch a GPU and are slow, and the proof that
// none is left out.
#include <algorithm>

#include <convgrad/error.hpp>

#include "cuda/families.hpp"
#include "cuda/machine.hpp"
#include "cuda/products.hpp"

namespace convgrad::test {
namespace {

using conv::problem;
using cuda::kernel;

constexpr auto kernels = static_cast<std::size_t>(kernel::count);

/// Calls body for depthwise layers with channels in whole pieces, as networks have them.
template <typename Body>
void for_each_plain_depthwise(Body &&body) {
    for (const conv::pass what : families::all_passes)
        for (const data_type type : families::all_types)
            for (const dim kernel : {3, 5, 7})
                for (const dim stride : {1, 2}) {
                    problem p;
                    p.what = what;
                    p.type = p.out_type = type;
                    p.mb = 2;
                    p.groups = 40;
                    p.ic = p.oc = 1;
                    for (std::size_t d = 1; d < 3; ++d)
                        p.x[d] = make_axis(14, kernel, stride, 1, kernel / 2, kernel / 2);
                    set_layouts(p, data_layout::nxc, weights_layout::oix, data_layout::nxc);
                    body(p);
                }
}

/// Calls body for layers of every family, often enough that chance leaves nothing out.
template <typename Body>
void for_each_problem(Body &&body) {
    rng random(31);
    for_each_plain_depthwise(body);
    for (int round = 0; round < 6; ++round) {
        products::for_each(random, body);
        families::for_each_depthwise(random, body);
        families::for_each_plane(random, body);
        families::for_each_first(random, body);
        families::for_each_sliding(random, 10, body);
        families::for_each_sum(body);
    }
}

/// Takes the cases that launch a kernel which none before did.
class sample {
public:
    /// `dry`: nothing is launched.
    explicit sample(bool dry) : dry_(dry) {}

    void take_from(const problem &p) {
        if (testing::Test::HasFailure() || left() == 0) return;
        bench_.load(p, fill::integers, ++seed_);
        has_reference_ = false;
        for (const std::string_view algorithm : cuda::algorithm_names()) {
            if (algorithm == "cuda.cudnn") continue;
            const bool tiles = algorithm == "cuda.bulk" || algorithm == "cuda.pointwise";
            for (int tile = tiles ? 0 : -1; tile < (tiles ? 4 : 0); ++tile) {
                const products::only_tile limit(tile);
                take(algorithm);
            }
        }
    }
    /// Kernels that have work and were in no case.
    [[nodiscard]] std::string missing() const {
        std::string names;
        for (std::size_t i = 0; i < kernels; ++i)
            if (is_missing(static_cast<kernel>(i)))
                names.append(cuda::name_of(static_cast<kernel>(i))).append(" ");
        return names;
    }

private:
    [[nodiscard]] bool is_missing(kernel which) const {
        return !seen_[static_cast<std::size_t>(which)] && has_work(which, gpu_.arch());
    }
    [[nodiscard]] std::size_t left() const {
        std::size_t all = 0;
        for (std::size_t i = 0; i < kernels; ++i)
            if (is_missing(static_cast<kernel>(i))) ++all;
        return all;
    }
    void take(std::string_view algorithm) {
        std::vector<kernel> launched;
        try {
            launched = gpu_.kernels_of(bench_, algorithm);
        } catch (const error &e) {
            ASSERT_EQ(e.code(), error_code::unsupported) << e.what();
            return;
        }
        if (std::ranges::none_of(launched, [&](kernel k) { return is_missing(k); })) return;
        for (const kernel k : launched) seen_[static_cast<std::size_t>(k)] = true;
        if (dry_) return;
        if (!has_reference_) bench_.run_reference();
        has_reference_ = true;
        gpu_.run(bench_, algorithm);
        ASSERT_EQ(bench_.compare_exact(), "") << algorithm << ' ' << to_text(bench_.problem());
    }

    bool dry_;
    workbench bench_;
    gpu_bench gpu_;
    std::array<bool, kernels> seen_{};
    std::uint64_t seed_ = 0;
    bool has_reference_ = false;
};

TEST(cuda_sample, cases_of_every_kernel_are_exact) {
    CONVGRAD_NEEDS_GPU();
    sample all(false);
    for_each_problem([&](const problem &p) { all.take_from(p); });
    EXPECT_EQ(all.missing(), "");
}

// The same without launches, so that it tells of all kernels where they cannot run, too.
TEST(cuda_sample, there_is_a_case_of_every_kernel) {
    CONVGRAD_NEEDS_GPU();
    sample all(true);
    for_each_problem([&](const problem &p) { all.take_from(p); });
    EXPECT_EQ(all.missing(), "");
}

}  // namespace
}  // namespace convgrad::test

// A tensor to add that is repeated along axes: strides of zero, in every algorithm.
#include <set>

#include <convgrad/error.hpp>
#include <gtest/gtest.h>

#include "support/winograd_bound.hpp"

namespace convgrad::test {
namespace {

using conv::pass;
using conv::problem;

struct sizes {
    dim mb, groups, ic, oc;
    std::array<conv::axis, 3> x;
};

/// Shapes that bring every algorithm for data into play.
std::vector<sizes> all_sizes() {
    const conv::axis three = make_axis(9, 3, 1, 1, 1, 1), strided = make_axis(11, 3, 2, 1, 1, 1),
                     one = make_axis(13, 1, 1, 1, 0, 0);
    return {
        {2, 1, 17, 33, {conv::axis{}, three, three}},
        {2, 1, 3, 32, {conv::axis{}, strided, strided}},
        {2, 1, 20, 3, {conv::axis{}, three, strided}},
        {3, 1, 18, 35, {conv::axis{}, one, one}},
        {2, 19, 1, 1, {conv::axis{}, three, strided}},
        {1, 3, 4, 5, {make_axis(4, 2, 1, 1, 0, 0), three, three}},
    };
}

TEST(repeated_add, every_algorithm_takes_it) {
    workbench bench;
    std::set<std::string> ran;
    std::uint64_t seed = 0;
    for (const sizes &s : all_sizes())
        for (const pass what : {pass::forward, pass::backward_data})
            for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
                for (const data_layout layout : {data_layout::nxc, data_layout::ncx})
                    for (const unsigned repeated : {1U, 2U, 4U, 8U, 16U, 21U, 29U, 30U, 31U}) {
                        problem p = sized(what, type, s.mb, s.groups, s.ic, s.oc);
                        p.x = s.x;
                        p.add = true;
                        p.relu = repeated == 2;
                        set_layouts(p, layout, weights_layout::oix, layout);
                        dim *const strides[] = {&p.add_strides.n, &p.add_strides.c,
                            &p.add_strides.x[0], &p.add_strides.x[1], &p.add_strides.x[2]};
                        for (unsigned d = 0; d < 5; ++d)
                            if ((repeated >> d & 1U) != 0) *strides[d] = 0;
                        bench.load(p, fill::integers, ++seed);
                        bench.run_reference();
                        for (const isa set : affordable_isas(seed, 24))
                            for (const std::string_view name : cpu::algorithm_names()) {
                                run_report report;
                                try {
                                    report = bench.run({.max_isa = set, .algorithm = name});
                                } catch (const error &e) {
                                    ASSERT_EQ(e.code(), error_code::unsupported);
                                    continue;
                                }
                                ran.insert(report.algorithm);
                                ASSERT_EQ(compare_integers(bench, report.algorithm), "")
                                    << name << " " << to_string(set) << " mask " << repeated;
                            }
                    }
    for (const char *name : {"depthwise.fma", "planes.fma", "narrow.fma", "folded.fma",
             "pointwise.fma", "winograd2x2.fma", "winograd4x4.fma", "tiled.fma"})
        EXPECT_TRUE(ran.contains(name)) << name;
}

}  // namespace
}  // namespace convgrad::test

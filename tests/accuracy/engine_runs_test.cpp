// The way on which errors of engines are measured that this machine need not have.
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include <gtest/gtest.h>

#include "accuracy/engine_runs.hpp"
#include "accuracy/engine_table.hpp"
#include "accuracy/problems.hpp"

namespace convgrad::accuracy {
namespace {

// The CPU's engine through the seam: the errors that its plans have without it.
TEST(engine_runs, are_the_plans_of_the_engine) {
    engine_runs on({.threads = 1, .max_isa = detected_isa()});
    for (const data_type type : {data_type::f32, data_type::bf16})
        for (const named_problem &n : problems_of(family::narrow, type)) {
            subject s(n.p, flavour::random, 1);
            for (const math_mode math : modes_of(type)) {
                const errors direct = s.run({.max_isa = detected_isa()}, math);
                const errors seam = on.run(s, *on.chosen(n.p, math));
                EXPECT_EQ(seam.sum, direct.sum) << n.name;
                EXPECT_EQ(seam.energy, direct.energy) << n.name;
                EXPECT_EQ(seam.elements, direct.elements);
            }
            const auto methods = on.methods_for(n.p);
            EXPECT_GE(methods.size(), 2U);
            for (const engine_method &m : methods) {
                EXPECT_EQ(m.name,
                    std::string(m.plan->algorithm()) + ", "
                        + std::string(convgrad::to_string(engines::mode_of(m.plan->facts().kept))));
                EXPECT_EQ(on.run(s, *m.plan).unlike, 0) << m.name;
            }
        }
}

// A bias gradient is measured too: plain sums of one operand.
TEST(engine_runs, of_bias_gradients) {
    engine_runs on({.threads = 1});
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
        for (const named_problem &n : engine_problems_of(family::bias, type))
            for (const flavour what : all_flavours) {
                subject s(n.p, what, 1);
                EXPECT_EQ(s.plain().unlike, 0) << n.name;
                const errors e = on.run(s, *on.chosen(n.p, math_mode::accurate));
                EXPECT_GT(e.elements, 0) << n.name;
                EXPECT_EQ(e.unlike, 0) << n.name << ", " << to_string(what);
                EXPECT_LE(e.sum, longest_sum(n.p)) << n.name << ", " << to_string(what);
            }
}

class engine_file : public testing::Test {
protected:
    ~engine_file() override { std::remove(path.c_str()); }
    void write(const std::string &text) const { std::ofstream(path) << text; }

    const std::string path = testing::TempDir() + "convgrad_engine_file.csv";
    const std::string head =
        "# some device\n"
        "type,layers,pass,output,method,data,largest_sum,largest_ulp,rms_sum,elements,wrong\n";
};

TEST_F(engine_file, becomes_tables) {
    write(head
          + "f32,dense,forward,f32,\"*chosen*, fast\",random,250,300,50,100,0\n"
            "f32,dense,forward,f32,\"cuda.dense, fast\",random,250,300,50,100,0\n"
            "f32,dense,data gradient,f32,\"cuda.dense, fast\",random,300,400,50,100,2\n"
            "f32,dense,forward,f32,*plain f32 sum*,random,4,6,0.5,100,0\n");
    const std::string text = engine_tables(path);
    // In terms of the plain sum; the largest of all passes; wrong ones counted; in order.
    for (const char *part : {"Measured on some device.", "| f32 | forward | fast | 100 | 250 |",
             "| dense | cuda.dense, fast | **2 wrong** |"})
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
    EXPECT_LT(text.find("| dense | *plain"), text.find("| dense | cuda.dense"));
    EXPECT_LT(text.find("| dense | cuda.dense"), text.find("| dense | *chosen*"));
}

// Lines of algorithms that are measured alone take the place of those that were there.
TEST_F(engine_file, gets_other_lines_of_some_algorithms) {
    const engine_runs on({});
    const conv::problem bias = engine_problems_of(family::bias, data_type::f32).front().p;
    const std::string name(on.chosen(bias, math_mode::accurate)->algorithm());
    write("# " + on.name() + head.substr(head.find('\n')) + "f32,bias gradient,bias gradient,f32,\""
          + name + ", strict\",random,12345,1,1,1,0\n"
          + "f32,dense,forward,f32,\"another, fast\",random,250,300,50,100,0\n");
    EXPECT_THROW(measure_engine("cpu", path, {"none"}), std::runtime_error);
    EXPECT_EQ(measure_engine("cpu", path, {name}), 0);
    const std::string text = engine_tables(path);
    EXPECT_EQ(text.find("12345"), std::string::npos) << text;
    EXPECT_NE(text.find("| bias gradient | " + name), std::string::npos) << text;
    EXPECT_NE(text.find("| dense | another, fast | 250 |"), std::string::npos) << text;
    write(head);
    EXPECT_THROW(measure_engine("cpu", path, {name}), std::runtime_error);  // of another device
}

TEST_F(engine_file, that_is_none_is_refused) {
    EXPECT_THROW(engine_tables(path), std::runtime_error);
    const std::string texts[] = {"no measurement", "# device\nother,columns\n",
        head + "f32,dense,forward\n", head + "f64,dense,forward,f32,a,random,1,1,1,1,0\n",
        head + "f32,dense,forward,f32,a,random,one,1,1,1,0\n"};
    for (const std::string &text : texts) {
        write(text);
        EXPECT_THROW(engine_tables(path), std::runtime_error) << text;
    }
    EXPECT_THROW(measure_engine("gpu", path), std::runtime_error);
}

}  // namespace
}  // namespace convgrad::accuracy

// Hashes of results, one line per problem, instruction set and algorithm asked for by name: run
// before and after a change that must not move a bit, and compare the two tables with diff.
//
//   convgrad_bits [random problems [random]] > before.txt
//
// With the word "random" the training shapes are left out.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include <convgrad/error.hpp>

#include "data.hpp"
#include "embedded_problems.hpp"
#include "op_case.hpp"
#include "problem_string.hpp"
#include "support/workbench.hpp"

namespace {

using namespace convgrad;

/// Larger ones would take the portable kernels minutes.
constexpr double most_macs = 1e8;

void print_problem(test::workbench &bench, const std::string &name) {
    for (const isa set : test::usable_isas()) {
        if (set == isa::amx_bf16 && conv::macs(bench.problem()) > most_macs / 50) continue;
        for (const std::string_view algorithm : cpu::algorithm_names()) {
            try {
                const test::run_report ran = bench.run({.max_isa = set, .algorithm = algorithm});
                if (ran.set != set) continue;
                const auto bytes = bench.output_bytes();
                fmt::print("{} {} {} {:016x}\n", name, to_string(set), algorithm,
                    cli::hash_bytes(bytes.data(), bytes.size()));
            } catch (const error &e) {
                if (e.code() != error_code::unsupported) throw;
            }
        }
    }
}

/// One image of each training shape, so small that it takes a moment.
void print_training_shapes(test::workbench &bench) {
    for (const cli::embedded_set which : {cli::embedded_set::verify, cli::embedded_set::scan})
        for (const cli::embedded_problem &e : cli::embedded_problems(which))
            for (const op_kind kind : convolution_op_kinds) {
                if (cli::is_transposed(kind) != e.deconv) continue;
                for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
                    for (const bool planes : {false, true}) {
                        cli::op_case c;
                        c.problem = std::make_shared<cli::problem_string>(
                            cli::parse_problem(std::string(e.text), e.deconv));
                        c.kind = kind;
                        c.type = type;
                        c.data = planes ? data_format::ncx : data_format::nxc;
                        c.weights = cli::weights_formats_of(kind)[planes ? 1 : 0];
                        conv::problem p = cli::make_call(c, false).problem;
                        p.mb = std::min<dim>(p.mb, 1);
                        if (conv::macs(p) > most_macs) continue;
                        bench.load(p, test::fill::reals, 1);
                        print_problem(bench, fmt::format("{}/{}/{}/{}", e.text, to_string(kind),
                                                 to_string(type), planes ? "ncx" : "nxc"));
                    }
            }
}

}  // namespace

int main(int argc, char **argv) {
    const std::uint64_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 400;
    test::workbench bench;
    for (std::uint64_t seed = 1; seed <= count; ++seed) {
        test::rng random(seed);
        bench.load(test::random_problem(random), test::fill::reals, seed);
        print_problem(bench, fmt::format("random{}", seed));
    }
    if (argc < 3) print_training_shapes(bench);
}

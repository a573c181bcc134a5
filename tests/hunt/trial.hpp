// One problem in memory, what must come out of it, and the ways to compute it.
#pragma once

#include <memory>

#include <convgrad/convgrad.hpp>

#include "evaluate.hpp"
#include "memory.hpp"
#include "problem.hpp"

namespace hunt {

/// What an output must hold.
struct output {
    memory where;
    std::vector<std::size_t> order;  // of `want`
    values old;                      // contents before the call, in that order; empty: garbage
    expected want;
};

/// The tensors of a problem. Which of them an op has follows from it.
struct trial {
    problem p;
    memory src, weights, bias, add, diff_dst;
    std::vector<output> outputs;  // in the order of compile() and compile_backward()
    bool refused = false;         // an output overlaps itself: the call must throw

    trial(problem what, draw &random);
    /// What is added before the ReLU.
    memory &addend();
    /// Inputs and outputs in the order of compile() and compile_backward().
    std::vector<memory *> inputs();
    /// Other garbage wherever there is no element, and outputs as before the first call.
    void refill(draw &random);

private:
    void place(draw &random);
    void add_output(
        data_type type, const dims &shape, std::vector<std::size_t> order, draw &random);
    void fill(draw &random);
    void evaluate();
};

/// Where and how to compute.
enum class path { eager, compiled, graph, drop_in };
constexpr const char *path_names[] = {"eager", "compiled", "graph", "drop-in"};

/// Whether the path can express the problem.
bool can_take(path way, const problem &p);
/// Computes. Throws convgrad::error, or std::runtime_error where the library breaks its word.
void call(path way, trial &t, const convgrad::engine &on, draw &random);
/// Whether infer_shape() finds the shape of the output; empty: it does, or cannot.
std::string complaint_of_inference(const problem &p, draw &random);
/// The C interface of oneDNN Graph; engines of its own.
void call_drop_in(trial &t, draw &random);
bool open_drop_in(const char *library);

}  // namespace hunt

// Graphs and partitions in front of oneDNN: what is done beside its own calls.
#pragma once

#include <span>

#include "onednn/behind.hpp"
#include "onednn/compiled.hpp"
#include "onednn/graph.hpp"

namespace convgrad::onednn {

/// Adds an op to oneDNN's graph. Where it refuses one that this library computes, an op of no kind
/// takes its place there.
status add_op_in_front(const library &next, client_graph *graph, const client_op *op);

/// oneDNN's filter, then: which of its partitions this library could run.
status filter_in_front(const library &next, client_graph *graph, partition_policy policy);

status get_partitions_in_front(
    const library &next, client_graph *graph, std::size_t count, client_partition **made);

status create_with_op_in_front(
    const library &next, client_partition **made, const client_op *op, engine_kind_value engine);

/// The arguments of a compile call.
struct compile_call {
    client_partition *partition;
    client_compiled_partition *compiled;
    std::size_t input_count;
    const tensor_description **inputs;
    std::size_t output_count;
    const tensor_description **outputs;
    client_engine *engine;

    [[nodiscard]] status by(const library &next) const {
        return next.partition_compile(
            partition, compiled, input_count, inputs, output_count, outputs, engine);
    }
};

/// Chooses who runs the partition from now on, and compiles there.
status compile_in_front(const library &next, const compile_call &call);

/// The arguments of an execution.
struct execute_call {
    const client_compiled_partition *compiled;
    client_stream *stream;
    std::size_t input_count;
    const client_tensor **inputs;
    std::size_t output_count;
    const client_tensor **outputs;
    const client_tensor *scratchpad;
    bool by_v2;  // which of the two functions was called
};

/// An execution that is oneDNN's; `text` is for the trace, null: nothing is known.
status execute_behind(const library &next, const execute_call &call, const std::string *text);

/// oneDNN's tensors as this library executes on them. Throws bad_alloc.
std::vector<tensor_view> views_of(
    const library &next, std::size_t count, const client_tensor *const *tensors);

}  // namespace convgrad::onednn

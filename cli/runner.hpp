// A case compiled and bound to memory, ready to be executed again and again.
#pragma once

#include <vector>

#include <convgrad/graph.hpp>

#include "cpu/plan.hpp"
#include "data.hpp"
#include "op_case.hpp"

namespace convgrad::cli {

/// Canonical buffers of a call: inputs filled, output poisoned.
conv::buffers fill_tensors(const op_call &call, tensor_store &store, const filling &with);

class runner {
public:
    /// Goes the public way: graph, partition, compile.
    runner(const op_call &call, const conv::buffers &data, const engine &on);
    void execute() const;
    /// One line: op, algorithm, instruction set, blocks.
    [[nodiscard]] std::string describe() const { return compiled_.describe(); }

private:
    compiled_partition compiled_;
    stream on_;
    std::vector<tensor> inputs_, outputs_;
};

/// The plan that the library makes for a call on an engine.
std::unique_ptr<const cpu::plan> plan_of(
    const op_call &call, const engine &on, std::vector<engines::verdict> *refusals = nullptr);

}  // namespace convgrad::cli

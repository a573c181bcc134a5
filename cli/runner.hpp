// A case compiled and bound to memory, ready to be executed again and again.
#pragma once

#include <vector>

#include <convgrad/graph.hpp>

#include "cpu/plan.hpp"
#include "data.hpp"
#include "device_memory.hpp"
#include "op_case.hpp"

namespace convgrad::cli {

/// Canonical buffers of a call: inputs filled, output poisoned.
conv::buffers fill_tensors(const op_call &call, tensor_store &store, const filling &with);

class runner {
public:
    /// Goes the public way: graph, partition, compile.
    runner(const op_call &call, const conv::buffers &data, const engine &on);
    /// Computes on the engine; complete at return. A device has copies of the tensors.
    void execute() const;
    /// Brings what a device has computed to where the host's tensors are.
    void fetch() const;
    /// How long an execution takes on the engine: its own time, without calls from the host.
    [[nodiscard]] double seconds() const;
    /// One line: op, algorithm, instruction set, blocks.
    [[nodiscard]] std::string describe() const { return compiled_.describe(); }

private:
    compiled_partition compiled_;
    stream on_;
    std::unique_ptr<device_memory> there_;  // null: the host's memory is used
    std::vector<void *> results_;           // on the host
    std::vector<tensor> inputs_, outputs_;
};

/// Plans of one call, bound to the same memory.
class plan_timer {
public:
    plan_timer(const op_call &call, const conv::buffers &data, const engine &on);
    /// How long an execution takes on the engine, without calls from the host.
    [[nodiscard]] double seconds(const engines::plan &plan) const;

private:
    stream on_;
    std::unique_ptr<device_memory> there_;  // null: the host's memory is used
    conv::buffers data_;
};

/// The plan that the library makes for a call on any engine, and on a CPU.
std::unique_ptr<const engines::plan> any_plan_of(
    const op_call &call, const engine &on, std::vector<engines::verdict> *refusals = nullptr);
std::unique_ptr<const cpu::plan> plan_of(
    const op_call &call, const engine &on, std::vector<engines::verdict> *refusals = nullptr);

}  // namespace convgrad::cli

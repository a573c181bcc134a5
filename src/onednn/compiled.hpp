// Compiled partitions: the library's, and how a client's tensors reach it.
#pragma once

#include <optional>
#include <span>

#include <convgrad/graph.hpp>

#include "onednn/description.hpp"
#include "onednn/partition.hpp"
#include "onednn/runtime.hpp"
#include "onednn/tensor.hpp"

namespace convgrad::onednn {

/// A tensor to execute on.
struct tensor_view {
    void *data = nullptr;
    /// What the tensor says of itself; nothing: the compile call is believed.
    std::optional<tensor_description> lt;
};

struct compiled_body {
    std::shared_ptr<const partition_body> source;
    compiled_partition library;
    /// Where the library's tensors stand in the client's lists, which are those of the compile
    /// call.
    std::vector<std::size_t> input_places, output_places;
    std::size_t output_count = 0;  // of the compile call
    std::size_t scratch = 0;       // bytes that one execution needs; 0: none
    /// All tensors of the compile call, with what was found out.
    std::vector<tensor_description> tensors;
    std::vector<inplace_pair> inplace;
    double gain = 0;  // predicted_gain(), in front of oneDNN
    std::string kernels, trace_text;

    /// Makes the trace say why it is this library that runs it; empty: it is alone.
    void explain(const std::string &why);

    /// Bytes to ask a client for: enough to align what it gives.
    [[nodiscard]] std::size_t client_scratch() const { return scratch == 0 ? 0 : scratch + 63; }

    /// Computes. `scratch_memory` has `scratch` bytes, 64-byte aligned; null when none are needed.
    void execute(std::span<const tensor_view> inputs, std::span<const tensor_view> outputs,
        void *scratch_memory) const;
};

/// What a client holds: empty until compiled. In front of oneDNN: what is known beside its handle.
struct client_compiled_partition {
    std::shared_ptr<const compiled_body> body;
    std::string delegated;  // not empty: oneDNN runs it, and this is for the trace
};

/// Whether this library runs it.
bool is_ours(const client_compiled_partition *compiled);

/// "f32:8x3x5 f32:16x3x3 -> f32:8x16x3", for the trace.
std::string describe_tensors(std::span<const tensor_description *const> inputs,
    std::span<const tensor_description *const> outputs);

/// Throws what the library throws, and invalid_argument for missing tensors.
std::shared_ptr<compiled_body> compile(std::shared_ptr<const partition_body> source,
    std::span<const tensor_description *const> inputs,
    std::span<const tensor_description *const> outputs);

}  // namespace convgrad::onednn

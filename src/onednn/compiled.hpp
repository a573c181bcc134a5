// Compiled partitions: the library's, and how a client's tensors reach it.
#pragma once

#include <convgrad/graph.hpp>

#include "onednn/description.hpp"
#include "onednn/partition.hpp"
#include "onednn/runtime.hpp"
#include "onednn/tensor.hpp"

namespace convgrad::onednn {

struct compiled_body {
    std::shared_ptr<const partition_body> source;
    compiled_partition library;
    /// Where the library's tensors stand in the client's lists, which are those of the compile
    /// call.
    std::vector<std::size_t> input_places, output_places;
    std::size_t scratch = 0;  // bytes that one execution needs; 0: none
    /// All tensors of the compile call, with what was found out.
    std::vector<tensor_description> tensors;
    std::vector<inplace_pair> inplace;
    std::string trace_text;

    /// Bytes to ask a client for: enough to align what it gives.
    [[nodiscard]] std::size_t client_scratch() const { return scratch == 0 ? 0 : scratch + 63; }

    /// Computes. `scratch_memory` has `scratch` bytes, 64-byte aligned; null when none are needed.
    void execute(std::span<const client_tensor *const> inputs,
        std::span<const client_tensor *const> outputs, void *scratch_memory) const;
};

/// What a client holds: empty until compiled.
struct client_compiled_partition {
    std::shared_ptr<const compiled_body> body;
};

/// Throws what the library throws, and invalid_argument for missing tensors.
std::shared_ptr<const compiled_body> compile(std::shared_ptr<const partition_body> source,
    std::span<const tensor_description *const> inputs,
    std::span<const tensor_description *const> outputs);

}  // namespace convgrad::onednn

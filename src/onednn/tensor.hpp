// Tensors: a description with memory.
#pragma once

#include <optional>

#include "onednn/behind.hpp"
#include "onednn/description.hpp"
#include "onednn/runtime.hpp"

namespace convgrad::onednn {

struct client_tensor {
    tensor_description lt{};
    client_engine *engine = nullptr;  // null for a scalar on the host
    void *data = nullptr;
    client_memory owned;           // behind `data`, where the client asked for it
    std::int64_t scalar_bits = 0;  // behind `data` of a scalar on the host
};

/// What a tensor of oneDNN's was made with; nothing where that is not known.
std::optional<tensor_description> description_of(const library &next, const client_tensor *tensor);

}  // namespace convgrad::onednn

// Tensors: a description with memory.
#pragma once

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

}  // namespace convgrad::onednn

#include "device.hpp"

#include <chrono>

namespace convgrad::train {
namespace {

std::size_t bytes_of(const dims &shape, data_type type) {
    std::size_t count = size_of(type);
    for (dim d : shape) count *= static_cast<std::size_t>(d);
    return count;
}

/// Adds what a copy took to the log.
template <typename Copy>
void timed(residence &home, std::size_t bytes, Copy &&copy) {
    using clock = std::chrono::steady_clock;
    const clock::time_point start = clock::now();
    copy();
    if (!home.counted) return;
    home.log.copies += std::chrono::duration<double>(clock::now() - start).count();
    home.log.bytes += static_cast<double>(bytes);
}

}  // namespace

device_copy::~device_copy() {
    if (memory_ != nullptr) home_.there->release(memory_);
}

void device_copy::reserve(std::size_t bytes) {
    if (bytes <= held_) return;
    if (memory_ != nullptr) home_.there->release(memory_);
    memory_ = nullptr;
    held_ = 0;
    memory_ = home_.there->allocate(bytes);
    held_ = bytes;
}

const_tensor device_copy::filled(const const_tensor &from) {
    if (home_.there == nullptr) return from;
    const std::size_t bytes = bytes_of(from.shape, from.type);
    reserve(bytes);
    timed(home_, bytes, [&] { home_.there->copy_in(memory_, from.data, bytes); });
    return {memory_, from.type, from.shape};
}

tensor device_copy::room(const tensor &result) {
    if (home_.there == nullptr) return result;
    reserve(bytes_of(result.shape, result.type));
    return {memory_, result.type, result.shape};
}

void device_copy::fetch(const tensor &result) const {
    if (home_.there == nullptr) return;
    const std::size_t bytes = bytes_of(result.shape, result.type);
    timed(home_, bytes, [&] { home_.there->copy_out(result.data, memory_, bytes); });
}

}  // namespace convgrad::train

// Where convolutions run that do not run on the host: the device's memory and its clock. The
// library computes there; memory, copies and times are its caller's business.
#pragma once

#include <functional>

#include <convgrad/engine.hpp>
#include <convgrad/tensor.hpp>

namespace convgrad::train {

/// A device whose memory the host does not reach.
class device {
public:
    device() = default;
    virtual ~device() = default;
    device(const device &) = delete;
    device &operator=(const device &) = delete;

    /// Throws out_of_memory.
    [[nodiscard]] virtual void *allocate(std::size_t bytes) = 0;
    virtual void release(void *memory) noexcept = 0;
    /// Whatever is put on a stream after that finds the copy.
    virtual void copy_in(void *to, const void *from, std::size_t bytes) = 0;
    virtual void copy_out(void *to, const void *from, std::size_t bytes) = 0;
    /// Waits until all that `work` puts on the stream is done. The seconds that the device took.
    virtual double run(const stream &on, const std::function<void()> &work) = 0;
};

/// An engine, and the device behind it where tensors of the host are not what it computes on.
struct place {
    // NOLINTNEXTLINE(google-explicit-constructor): an engine on the host is a place
    place(const engine &on_, device *there_ = nullptr) : on(on_), there(there_) {}

    engine on;
    device *there;
};

/// What it costs that tensors are on the host between convolutions. Zero on a CPU.
struct transfer_time {
    double copies = 0;   // seconds
    double bytes = 0;    // copied, in both directions
    double waiting = 0;  // seconds of calls in which the device did not compute: queuing, waiting

    void add(const transfer_time &other) {
        copies += other.copies;
        bytes += other.bytes;
        waiting += other.waiting;
    }
};

/// Where a layer's convolutions find their tensors, and what that costs.
struct residence {
    device *there = nullptr;  // null: the host
    bool counted = false;     // only training steps count
    transfer_time log = {};
};

/// A tensor's twin in the memory of a device. Without a device the tensor itself serves.
class device_copy {
public:
    /// `home` outlives this object.
    explicit device_copy(residence &home) : home_(home) {}
    ~device_copy();
    device_copy(const device_copy &) = delete;
    device_copy &operator=(const device_copy &) = delete;

    /// The twin of a tensor, with its values.
    const_tensor filled(const const_tensor &from);
    /// The twin of a tensor that is to be written; fetch() brings the result to it.
    tensor room(const tensor &result);
    void fetch(const tensor &result) const;

private:
    void reserve(std::size_t bytes);

    residence &home_;
    void *memory_ = nullptr;
    std::size_t held_ = 0;  // bytes
};

}  // namespace convgrad::train

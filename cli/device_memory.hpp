// Tensors of a case in the memory of a device.
#pragma once

#include <cstddef>
#include <vector>

namespace convgrad::cli {

/// A device's copies of tensors of the host, each made once.
class device_memory {
public:
    explicit device_memory(int device) : device_(device) {}
    ~device_memory();
    device_memory(const device_memory &) = delete;
    device_memory &operator=(const device_memory &) = delete;

    /// The copy of what lies at `host`; null for null. Throws out_of_memory.
    void *copy_of(const void *host, std::size_t bytes);
    /// Brings the device's copy of what lies at `host` back.
    void fetch(void *host) const;

private:
    struct twin {
        const void *host;
        void *there;
        std::size_t bytes;
    };
    int device_;
    std::vector<twin> twins_;
};

}  // namespace convgrad::cli

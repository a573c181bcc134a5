// Workspaces of executions, kept for reuse within a fixed bound.
#pragma once

#include <cstddef>

namespace convgrad {

/// 64-byte aligned memory for one execution; goes back for reuse when it ends. Throws
/// out_of_memory.
class scratch {
public:
    explicit scratch(std::size_t bytes);
    ~scratch();
    scratch(const scratch &) = delete;
    scratch &operator=(const scratch &) = delete;

    [[nodiscard]] void *data() const { return data_; }

private:
    void *data_ = nullptr;
    std::size_t capacity_ = 0;
};

}  // namespace convgrad

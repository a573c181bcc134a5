// The one way to say that a caller's workspace limit cannot be met.
#pragma once

#include <string>
#include <string_view>

#include <convgrad/error.hpp>

namespace convgrad::cpu {

/// An out_of_memory that knows how much would do.
class workspace_shortage : public error {
public:
    workspace_shortage(const std::string &message, std::size_t need)
        : error(error_code::out_of_memory, message), need_(need) {}
    [[nodiscard]] std::size_t need() const noexcept { return need_; }

private:
    std::size_t need_;
};

/// Throws out_of_memory if `need` bytes, what the leanest plan takes, exceed the limit.
inline void check_workspace(std::string_view what, std::size_t need, std::size_t limit) {
    if (need <= limit) return;
    throw workspace_shortage(std::string(what) + ": the workspace limit is " + std::to_string(limit)
                                 + " bytes, but the leanest plan needs " + std::to_string(need),
        need);
}

}  // namespace convgrad::cpu

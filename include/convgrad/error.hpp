// The one exception type of the library.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include <convgrad/export.hpp>

namespace convgrad {
inline namespace CONVGRAD_ABI {

/// What went wrong. *Invalid* means that the specification forbids it; *unsupported* that it is
/// legal but not available here.
enum class error_code : std::uint8_t {
    invalid_op,        ///< unknown op or attribute, missing or mistyped attribute, value out of
                       ///< range, wrong number of inputs or outputs, wrong data type
    invalid_graph,     ///< one tensor id described in two ways, a cycle, two producers, a change
                       ///< after finalising
    invalid_shape,     ///< ranks, list lengths, channels, groups or sizes that do not fit together
    invalid_argument,  ///< null data, wrong tensor count, a tensor that does not match what was
                       ///< compiled, an engine of the wrong kind
    unsupported,       ///< legal, but not available here
    out_of_memory,     ///< an allocation, or the caller's workspace limit, failed
    device_failure,    ///< a device failed at or after work that was queued on it; results are lost
};

/// "invalid_op", "invalid_graph", …
CONVGRAD_API std::string_view to_string(error_code code) noexcept;

/// Every failure of the library. `what()` names the op, the argument, the values seen and the rule
/// that they break.
class CONVGRAD_API error : public std::runtime_error {
public:
    error(error_code code, const std::string &message);
    error(const error &) = default;
    error &operator=(const error &) = default;
    ~error() override;
    [[nodiscard]] error_code code() const noexcept { return code_; }

private:
    error_code code_;
};

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

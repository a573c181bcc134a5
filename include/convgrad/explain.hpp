// What the library would do with an op, and why.
#pragma once

#include <string>
#include <vector>

#include <convgrad/eager.hpp>

namespace convgrad {
inline namespace CONVGRAD_ABI {

/// The plan of one op, and the algorithms that were weighed and not taken.
struct explanation {
    struct candidate {
        std::string algorithm, uses;
        double seconds = 0;  ///< as predicted; 0: refused before
        std::string reason;
    };

    op_kind kind{};
    std::string algorithm;                ///< e.g. "tiled.fma"
    std::string uses;                     ///< of the device, e.g. the instruction set "avx512"
    std::string blocks;                   ///< e.g. "tile 4x14 oc 64 ic 64"
    std::vector<logical_tensor> outputs;  ///< as given, with inferred shapes
    int threads = 0;                      ///< the most that an execution which begins now uses
    std::size_t workspace = 0;            ///< bytes
    std::size_t constants = 0;            ///< bytes that executions keep of constant weights
    double seconds = 0;  ///< as predicted, of one nominal core or device: for comparing algorithms
    double flops = 0;
    std::vector<candidate> others;
};

/// Plans an op as compile() does and tells how. Every input must have a known shape, and so must
/// outputs that cannot be inferred.
[[nodiscard]] CONVGRAD_API explanation explain(op_kind kind, list_view<logical_tensor> inputs,
    list_view<logical_tensor> outputs, const attributes &attrs = {},
    const compile_options &opts = {});

/// All of it as text, several lines.
[[nodiscard]] CONVGRAD_API std::string to_string(const explanation &what);

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

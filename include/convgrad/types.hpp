// Basic vocabulary: data types, shapes, instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <convgrad/export.hpp>

namespace convgrad {
inline namespace CONVGRAD_ABI {

/// One dimension, stride or offset. Always 64-bit.
using dim = std::int64_t;
/// A shape or a list of strides, outermost first.
using dims = std::vector<dim>;

/// Stands for a dimension that is not known yet (the value oneDNN Graph uses).
inline constexpr dim unknown_dim = std::numeric_limits<dim>::min();

/// Element types. Floating-point operands of one op share f32, bf16 or f16; shape inputs are s32.
enum class data_type : std::uint8_t { undef, f32, bf16, f16, s32 };

/// Names of instruction sets with kernels of their own. A name stands for a set of a processor's
/// capabilities, and processors combine these as they like: there is no order, and comparing with
/// < or > does not compile.
enum class isa : std::uint8_t {
    best,  ///< as a setting: all that the processor has
    portable,
    avx2,
    avx512,
    avx512_bf16,
    amx_bf16,
    neon,
};
bool operator<(isa, isa) = delete;
bool operator>(isa, isa) = delete;
bool operator<=(isa, isa) = delete;
bool operator>=(isa, isa) = delete;

/// All instruction sets but `best`; those of one kind of processor from the weakest on.
inline constexpr isa all_isas[] = {
    isa::portable, isa::avx2, isa::avx512, isa::avx512_bf16, isa::amx_bf16, isa::neon};

/// How far f32 arithmetic may be rearranged.
enum class math_mode : std::uint8_t {
    strict,    ///< f32 fused multiply-add only
    accurate,  ///< default: any path whose error stays within that of an f32 sum
    fast,  ///< f32 operands may be rounded to bf16 parts, 3×3 layers take larger tiles; faster,
           ///< less precise
};

/// Where an engine computes.
enum class engine_kind : std::uint8_t { cpu, cuda };

CONVGRAD_API std::string_view to_string(data_type type) noexcept;
/// "best", "portable", "avx2", "avx512", "avx512_bf16", "amx_bf16" or "neon".
CONVGRAD_API std::string_view to_string(isa set) noexcept;
CONVGRAD_API std::string_view to_string(math_mode mode) noexcept;
/// "cpu" or "cuda".
CONVGRAD_API std::string_view to_string(engine_kind kind) noexcept;

/// Bytes of one element; 0 for `undef`.
CONVGRAD_API std::size_t size_of(data_type type) noexcept;

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

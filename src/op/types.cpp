#include <convgrad/types.hpp>

namespace convgrad {
inline namespace CONVGRAD_ABI {

std::string_view to_string(data_type type) noexcept {
    switch (type) {
    case data_type::undef:
        return "undef";
    case data_type::f32:
        return "f32";
    case data_type::bf16:
        return "bf16";
    case data_type::f16:
        return "f16";
    case data_type::s32:
        return "s32";
    }
    return "unknown type";
}

std::string_view to_string(isa set) noexcept {
    switch (set) {
    case isa::best:
        return "best";
    case isa::portable:
        return "portable";
    case isa::avx2:
        return "avx2";
    case isa::avx512:
        return "avx512";
    case isa::avx512_bf16:
        return "avx512_bf16";
    case isa::amx_bf16:
        return "amx_bf16";
    case isa::neon:
        return "neon";
    }
    return "unknown isa";
}

std::string_view to_string(math_mode mode) noexcept {
    switch (mode) {
    case math_mode::strict:
        return "strict";
    case math_mode::accurate:
        return "accurate";
    case math_mode::fast:
        return "fast";
    }
    return "unknown mode";
}

std::string_view to_string(engine_kind kind) noexcept {
    switch (kind) {
    case engine_kind::cpu:
        return "cpu";
    case engine_kind::cuda:
        return "cuda";
    }
    return "unknown engine kind";
}

std::size_t size_of(data_type type) noexcept {
    switch (type) {
    case data_type::undef:
        return 0;
    case data_type::f32:
    case data_type::s32:
        return 4;
    case data_type::bf16:
    case data_type::f16:
        return 2;
    }
    return 0;
}

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

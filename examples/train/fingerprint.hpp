// FNV-1a over bytes: tells files and weights apart, and finds damage.
#pragma once

#include <cstddef>
#include <cstdint>

namespace convgrad::train {

inline std::uint64_t fingerprint(const void *data, std::size_t bytes, std::uint64_t so_far = 0) {
    std::uint64_t hash = so_far == 0 ? 0xcbf29ce484222325U : so_far;
    const auto *at = static_cast<const unsigned char *>(data);
    for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3U;
    return hash;
}

}  // namespace convgrad::train

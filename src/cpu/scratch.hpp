// Workspaces of executions, kept for reuse within a fixed bound.
#pragma once

#include <cstddef>

namespace convgrad::cpu {

/// A cache line.
inline constexpr std::size_t scratch_alignment = 64;

/// Memory for one execution. Throws out_of_memory.
void *take_scratch(std::size_t bytes);
/// Gives it back for reuse.
void give_scratch_back(void *data) noexcept;
/// Frees what is kept.
void release_scratch() noexcept;

}  // namespace convgrad::cpu

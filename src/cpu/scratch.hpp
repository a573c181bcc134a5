// Workspaces of executions, kept for reuse within a fixed bound.
#pragma once

#include <cstddef>
#include <memory>

namespace convgrad::cpu {

/// A cache line.
inline constexpr std::size_t scratch_alignment = 64;

/// Memory for one execution. Throws out_of_memory.
void *take_scratch(std::size_t bytes);
/// Gives it back for reuse.
void give_scratch_back(void *data) noexcept;
/// Memory that outlives executions, none of which is kept for reuse. Throws out_of_memory.
std::shared_ptr<void> allocate_kept(std::size_t bytes);
/// Frees what is kept.
void release_scratch() noexcept;

}  // namespace convgrad::cpu

// Engines, streams and allocators.
//
// Where oneDNN itself is loaded behind this library, engines and streams are oneDNN's: they are
// made and asked through its public functions only, and what has to be known about an engine beyond
// that (its allocator) is kept in a table here. Where it is not, they are objects of our own.
#pragma once

#include <optional>

#include <convgrad/engine.hpp>

#include "onednn/abi.hpp"

namespace convgrad::onednn {

/// An engine handle. Only handles made here point to such an object; never look into one without
/// asking the table.
struct client_engine {
    engine_kind_value kind;
};

struct client_stream {
    client_engine *engine;
};

/// A pair of client callbacks; null: the default.
struct allocator {
    host_allocate allocate = nullptr;
    host_deallocate deallocate = nullptr;

    [[nodiscard]] bool is_default() const { return allocate == nullptr; }
};

/// Nothing for a handle that nobody knows.
std::optional<engine_kind_value> kind_of(client_engine *engine);

/// Null for a handle that nobody knows.
client_engine *engine_of(const client_stream *stream);

/// Returns when what was put on the stream is complete.
status wait_for(client_stream *stream);

/// The allocator that an engine was made with.
allocator allocator_of(const client_engine *engine);

/// The floating-point mode of new graphs.
fpmath_mode default_fpmath_mode();

/// Where partitions of graphs with this mode compute: alone, accurate or fast; in front of oneDNN,
/// strict or as CONVGRAD_ONEDNN_MATH says where the mode is strict. Threads: as for every engine of
/// the library, or OMP_NUM_THREADS where CONVGRAD_NUM_THREADS is not set.
const engine &engine_for(fpmath_mode mode);

/// Memory that a client's allocator, or the default one, gave: 64-byte aligned. What the client's
/// callbacks throw leaves every function.
class client_memory {
public:
    client_memory() = default;
    ~client_memory();
    client_memory(const client_memory &) = delete;
    client_memory &operator=(const client_memory &) = delete;

    [[nodiscard]] void *data() const { return data_; }
    /// To be called once. Leaves null data where the allocator has nothing to give.
    void allocate(const allocator &from, std::size_t bytes);
    /// Gives the memory back. Call it where the client's exceptions shall be heard: the destructor
    /// keeps them to itself.
    void release();

private:
    allocator from_;
    void *data_ = nullptr;
};

}  // namespace convgrad::onednn

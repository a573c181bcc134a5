// Stands in for an installed oneDNN that was built without graphs: engines and streams of its own
// making. With the drop-in loaded before, graphs are the drop-in's alone. (One with graphs:
// fake_dnnl.cpp.)
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#define STUB_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int success = 0, invalid_arguments = 2;

// Looks inside like nothing of the drop-in's.
struct stub_engine {
    unsigned long mark = 0x5ca1ab1e0ff1ce00UL;
    int kind = 0;
};
struct stub_stream {
    unsigned long mark = 0xdecafbad0ff1ce00UL;
    stub_engine *engine = nullptr;
};
int live_engines = 0;

[[noreturn]] void reached(const char *name) {
    std::fprintf(stderr, "%s of the oneDNN behind was called\n", name);
    std::abort();
}

}  // namespace

/// For the tests: how many engines of this library exist.
STUB_API int stub_dnnl_live_engines() {
    return live_engines;
}

STUB_API std::size_t dnnl_engine_get_count(int kind) {
    return kind == 1 ? 1 : 0;
}

STUB_API int dnnl_engine_create(stub_engine **engine, int kind, std::size_t index) {
    if (engine == nullptr || kind != 1 || index != 0) return invalid_arguments;
    *engine = new stub_engine;
    (*engine)->kind = kind;
    ++live_engines;
    return success;
}

STUB_API int dnnl_engine_get_kind(stub_engine *engine, int *kind) {
    if (engine->mark != stub_engine{}.mark) reached("dnnl_engine_get_kind with a foreign handle");
    *kind = engine->kind;
    return success;
}

STUB_API int dnnl_engine_destroy(stub_engine *engine) {
    delete engine;
    --live_engines;
    return success;
}

STUB_API int dnnl_stream_create(stub_stream **stream, stub_engine *engine, unsigned) {
    *stream = new stub_stream;
    (*stream)->engine = engine;
    return success;
}

STUB_API int dnnl_stream_get_engine(const stub_stream *stream, stub_engine **engine) {
    if (stream->mark != stub_stream{}.mark) reached("dnnl_stream_get_engine with a foreign handle");
    *engine = stream->engine;
    return success;
}

STUB_API int dnnl_stream_wait(stub_stream *) {
    return success;
}

STUB_API int dnnl_stream_destroy(stub_stream *stream) {
    delete stream;
    return success;
}

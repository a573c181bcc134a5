// What late_client asks of the library, behind names that dlsym() finds.
#include <vector>

#include <convgrad/convgrad.hpp>

/// Whether the default engine and a new one run on the runtime's threads: 0, 1 or (if they differ)
/// -1.
extern "C" CONVGRAD_API int shares_threads() {
    const bool fresh = convgrad::engine().shares_threads();
    if (convgrad::default_engine().shares_threads() != fresh) return -1;
    return fresh ? 1 : 0;
}

extern "C" CONVGRAD_API int threads() {
    return convgrad::default_engine().threads();
}

/// 1 if a convolution large enough for several threads gives what it must.
extern "C" CONVGRAD_API int computes() {
    std::vector<float> src(4 * 34 * 34 * 32, 1), weights(9 * 32 * 32, 1), dst(4 * 32 * 32 * 32);
    convgrad::convolution({src.data(), {4, 34, 34, 32}}, {weights.data(), {3, 3, 32, 32}}, {},
        {dst.data(), {4, 32, 32, 32}}, {});
    for (const float value : dst)
        if (value != 9 * 32) return 0;
    return 1;
}

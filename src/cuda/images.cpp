// Puts the fat binaries into this object as they are; CMake names their files.
#include "cuda/images.hpp"

namespace convgrad::cuda {

// Read-only data; 64-byte alignment is what the driver asks for.
#define CONVGRAD_IMAGE(name, symbol, file)                                                         \
    asm(".pushsection .rodata\n.balign 64\n.hidden " #symbol "\n.global " #symbol "\n" #symbol     \
        ":\n.incbin \"" file "\"\n.popsection");                                                   \
    extern "C" const unsigned char symbol[];
#include "cuda_images.inc"
#undef CONVGRAD_IMAGE

std::span<const image> images() {
    static const image all[] = {
#define CONVGRAD_IMAGE(name, symbol, file) {name, symbol},
#include "cuda_images.inc"
#undef CONVGRAD_IMAGE
    };
    return all;
}

}  // namespace convgrad::cuda

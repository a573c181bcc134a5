// A program from outside: public headers only.
#include <convgrad/convgrad.hpp>

#include <cstring>
#include <vector>

int main(int argc, char **argv) {
    if (argc != 2 || std::strcmp(argv[1], CONVGRAD_VERSION_STRING) != 0) return 1;
    std::vector<float> src(2 * 4 * 4 * 3, 1.0F), diff_dst(2 * 4 * 4 * 5, 1.0F), gradient(3 * 5);
    convgrad::convolution_backward_weights({src.data(), {2, 4, 4, 3}},
        {diff_dst.data(), {2, 4, 4, 5}}, {gradient.data(), {1, 1, 3, 5}});
    for (float value : gradient)
        if (value != 32.0F) return 2;
    // Errors of the library are caught as what they are, across the library's boundary.
    try {
        convgrad::engine(convgrad::engine_options{.threads = -1});
    } catch (const convgrad::error &e) {
        return e.code() == convgrad::error_code::invalid_argument ? 0 : 3;
    }
    return 4;
}

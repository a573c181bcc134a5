// No memory of the process is both written and executed, whatever ran.
#include <fstream>
#include <string>

#include "graph/helpers.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

/// Lines of /proc/self/maps such as "7f12… rwxp …".
std::vector<std::string> writable_and_executable() {
    std::vector<std::string> found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        const std::size_t flags = line.find(' ') + 1;
        if (line.compare(flags + 1, 2, "wx") == 0) found.push_back(line);
    }
    return found;
}

TEST(executable_memory, is_never_writable) {
    const layer l;
    for (const isa set : usable_isas()) {
        const engine on(engine_options{.threads = 3, .max_isa = set});
        buffer diff_src(l.src.shape()), diff_weights(l.weights.shape());
        convolution_backward(l.src.view(), l.diff_dst.view(), l.weights.view(), diff_src.view(),
            diff_weights.view(), l.attrs, {.on = &on});
        EXPECT_EQ(writable_and_executable(), std::vector<std::string>()) << to_string(set);
    }
}

}  // namespace
}  // namespace convgrad::test

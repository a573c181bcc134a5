// Feeds inputs to a fuzz target under any compiler and debugger: the corpus as a test, finds, and,
// where there is no libFuzzer, random bytes.
//
//     fuzz_graph_replay FILE_OR_DIRECTORY...
//     fuzz_graph_replay --random SEED COUNT
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/input.hpp"
#include "support/random.hpp"

namespace {

namespace fs = std::filesystem;
using bytes = std::vector<std::uint8_t>;

/// `name` is the last line of the output where the program ends here.
void feed(const std::string &name, const bytes &input) {
    std::printf("%s\n", name.c_str());
    std::fflush(stdout);
    LLVMFuzzerTestOneInput(input.data(), input.size());
}

std::vector<fs::path> files_in(int count, char **names) {
    std::vector<fs::path> files;
    for (int i = 0; i < count; ++i) {
        if (!fs::is_directory(names[i])) {
            files.emplace_back(names[i]);
            continue;
        }
        for (const fs::directory_entry &entry : fs::directory_iterator(names[i]))
            if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
}

int replay(const std::vector<fs::path> &files) {
    for (const fs::path &file : files) {
        std::ifstream in(file, std::ios::binary);
        const bytes input((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
        if (!in) {
            std::fprintf(stderr, "cannot read %s\n", file.c_str());
            return 2;
        }
        feed(file.string(), input);
    }
    std::printf("%zu inputs\n", files.size());
    return files.empty() ? 2 : 0;
}

void feed_random(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        convgrad::test::rng random(seed);
        bytes input(static_cast<std::size_t>(random.between(16, 200)));
        for (std::uint8_t &b : input) b = static_cast<std::uint8_t>(random.next());
        feed("seed " + std::to_string(seed), input);
    }
}

}  // namespace

int main(int argc, char **argv) {
    if (argc == 4 && std::strcmp(argv[1], "--random") == 0) {
        feed_random(std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
        return 0;
    }
    return replay(files_in(argc - 1, argv + 1));
}

// 64-bit ARM: what the processor has, and its caches, both by the word of Linux.
#include <fstream>
#include <string>

#include <sys/auxv.h>

#include "cpu/machine/machine.hpp"

namespace convgrad::cpu {
namespace {

constexpr unsigned long hwcap_advanced_simd = 1UL << 1;

std::string first_word(const std::string &path) {
    std::ifstream file(path);
    std::string word;
    file >> word;
    return word;
}

/// "512K" in bytes; 0 if it is nothing of this form.
std::size_t bytes_of(const std::string &text) {
    std::size_t number = 0, i = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
        number = 10 * number + static_cast<std::size_t>(text[i] - '0');
    if (i + 1 < text.size()) return 0;
    if (i == text.size()) return number;
    return text[i] == 'K' ? number << 10 : text[i] == 'M' ? number << 20 : 0;
}

}  // namespace

capabilities ask_processor() {
    return (getauxval(AT_HWCAP) & hwcap_advanced_simd) != 0 ? capabilities(capabilities::neon)
                                                            : capabilities();
}

caches ask_caches() {
    caches found{0, 0, 0};
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index";
    for (int i = 0; i < 8; ++i) {
        const std::string index = folder + std::to_string(i) + '/';
        const std::string level = first_word(index + "level");
        if (level.empty()) break;
        if (first_word(index + "type") == "Instruction") continue;
        const std::size_t bytes = bytes_of(first_word(index + "size"));
        if (level == "1") found.l1d = bytes;
        if (level == "2") found.l2 = bytes;
        if (level == "3") found.l3 = bytes;
    }
    return found;
}

}  // namespace convgrad::cpu

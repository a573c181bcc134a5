#include "idx.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace convgrad::train {
namespace {

[[noreturn]] void refuse(const std::string &source, const std::string &why) {
    throw std::runtime_error(source + ": " + why);
}

std::uint32_t big_endian(std::span<const std::uint8_t> bytes, std::size_t at) {
    std::uint32_t n = 0;
    for (std::size_t i = 0; i < 4; ++i) n = n << 8U | bytes[at + i];
    return n;
}

}  // namespace

idx_array parse_idx(
    std::span<const std::uint8_t> bytes, std::size_t rank, const std::string &source) {
    if (bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
        refuse(source, "is compressed; unpack it with gunzip");
    if (bytes.size() < 4 || bytes[0] != 0 || bytes[1] != 0) refuse(source, "is not an IDX file");
    if (bytes[2] != 8)
        refuse(source, "holds values of IDX type " + std::to_string(bytes[2])
                           + "; expected 8 (unsigned bytes)");
    if (bytes[3] != rank)
        refuse(source, "has " + std::to_string(bytes[3]) + " axes; expected " + std::to_string(rank)
                           + (rank == 3 ? " (images)" : " (labels)"));
    const std::size_t header = 4 + 4 * rank;
    if (bytes.size() < header) refuse(source, "ends within its header");
    idx_array a;
    std::size_t count = 1;
    for (std::size_t i = 0; i < rank; ++i) {
        a.shape.push_back(big_endian(bytes, 4 + 4 * i));
        if (__builtin_mul_overflow(count, a.shape.back(), &count))
            refuse(source, "announces more values than memory can hold");
    }
    if (bytes.size() - header != count)
        refuse(source, "announces " + std::to_string(count) + " values but holds "
                           + std::to_string(bytes.size() - header));
    const auto body = bytes.subspan(header);
    a.data.assign(body.begin(), body.end());
    return a;
}

std::vector<std::uint8_t> read_file(const std::string &path, std::string_view beginning) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(
        std::fopen(path.c_str(), "rb"), std::fclose);
    std::vector<std::uint8_t> bytes;
    constexpr std::size_t step = std::size_t{1} << 20U;
    for (std::size_t read = 1; file != nullptr && read > 0;) {
        const std::size_t size = bytes.size();
        bytes.resize(size + step);
        read = std::fread(bytes.data() + size, 1, step, file.get());
        bytes.resize(size + read);
        const std::size_t common = std::min(bytes.size(), beginning.size());
        if (common > 0 && std::memcmp(bytes.data(), beginning.data(), common) != 0) return bytes;
    }
    if (file == nullptr || std::ferror(file.get()) != 0)
        refuse("cannot read " + path, std::strerror(errno));
    return bytes;
}

}  // namespace convgrad::train

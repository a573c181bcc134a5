#include "checkpoint.hpp"

#include "fingerprint.hpp"
#include "idx.hpp"
#include "whole_file.hpp"

namespace convgrad::train {
namespace {

constexpr char magic[8] = {'c', 'o', 'n', 'v', 'g', 'r', 'd', '1'};

}  // namespace

void write_checkpoint(const std::string &path, std::span<const std::uint8_t> state) {
    byte_writer file;
    file.put(magic);
    file.put(static_cast<std::uint64_t>(state.size()));
    file.put(fingerprint(state.data(), state.size()));
    std::vector<std::uint8_t> bytes = file.bytes();
    bytes.insert(bytes.end(), state.begin(), state.end());
    replace_file(path, bytes);
}

std::vector<std::uint8_t> read_checkpoint(const std::string &path) {
    std::vector<std::uint8_t> bytes = read_file(path, {magic, sizeof(magic)});
    constexpr std::size_t header = sizeof(magic) + 16;
    if (bytes.size() < header || std::memcmp(bytes.data(), magic, sizeof(magic)) != 0)
        throw std::runtime_error(path + ": is not a checkpoint of convgrad train");
    byte_reader in{std::span<const std::uint8_t>(bytes).subspan(sizeof(magic))};
    const auto size = in.get<std::uint64_t>(), checksum = in.get<std::uint64_t>();
    bytes.erase(bytes.begin(), bytes.begin() + header);
    if (bytes.size() != size || fingerprint(bytes.data(), bytes.size()) != checksum)
        throw std::runtime_error(path + ": the checkpoint is damaged (its checksum does not fit)");
    return bytes;
}

}  // namespace convgrad::train

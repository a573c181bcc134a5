#include "checkpoint.hpp"

#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "fingerprint.hpp"
#include "idx.hpp"

namespace convgrad::train {
namespace {

constexpr char magic[8] = {'c', 'o', 'n', 'v', 'g', 'r', 'd', '1'};

[[noreturn]] void fail(const std::string &what, const std::string &path) {
    throw std::runtime_error("cannot " + what + " " + path + ": " + std::strerror(errno));
}

/// An open file that is closed in any case.
class descriptor {
public:
    descriptor(const std::string &path, int flags)
        : path_(path), id_(open(path.c_str(), flags, 0666)) {
        if (id_ < 0) fail("open", path);
    }
    ~descriptor() { close(id_); }
    descriptor(const descriptor &) = delete;
    descriptor &operator=(const descriptor &) = delete;

    void write_all(std::span<const std::uint8_t> bytes) const {
        while (!bytes.empty()) {
            const ssize_t written = write(id_, bytes.data(), bytes.size());
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) fail("write", path_);
            bytes = bytes.subspan(static_cast<std::size_t>(written));
        }
    }
    void synchronise() const {
        // Pipes and terminals cannot, and need not.
        if (fsync(id_) != 0 && errno != EINVAL && errno != EROFS) fail("write", path_);
    }

private:
    std::string path_;
    int id_;
};

}  // namespace

void replace_file(const std::string &path, std::span<const std::uint8_t> bytes) {
    const std::string beside = path + ".tmp";
    {
        const descriptor file(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
        file.write_all(bytes);
        file.synchronise();
    }
    if (rename(beside.c_str(), path.c_str()) != 0) fail("replace", path);
    // The renaming itself is durable once the directory is.
    const std::string parent = std::filesystem::path(path).parent_path().string();
    descriptor(parent.empty() ? "." : parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC).synchronise();
}

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
    std::vector<std::uint8_t> bytes = read_file(path);
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

#include "whole_file.hpp"

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace convgrad::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string &what, const std::string &path, int reason = errno) {
    throw std::runtime_error("cannot " + what + " " + path + ": " + std::strerror(reason));
}

/// An open file that is closed in any case.
class descriptor {
public:
    descriptor(std::string path, int id) : path_(std::move(path)), id_(id) {
        if (id_ < 0) fail("open", path_);
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
    [[nodiscard]] int id() const { return id_; }

private:
    std::string path_;
    int id_;
};

/// The name of the file that is being written beside another; the signal handler reads it.
std::atomic<const char *> unfinished = nullptr;
static_assert(std::atomic<const char *>::is_always_lock_free);

/// A new file beside `target`, removed again unless it takes the target's place.
class file_beside {
public:
    explicit file_beside(const fs::path &target) : target_(target.string()), name_(name(target)) {
        unfinished = name_.c_str();
    }
    ~file_beside() {
        if (!kept_) unlink(name_.c_str());
        unfinished = nullptr;
    }
    file_beside(const file_beside &) = delete;
    file_beside &operator=(const file_beside &) = delete;

    [[nodiscard]] const std::string &path() const { return name_; }
    void take_place() {
        if (rename(name_.c_str(), target_.c_str()) != 0) fail("replace", target_);
        kept_ = true;
    }

private:
    /// Of this process alone, so that two that write the same file do not meet in this one; cut
    /// where the target's own name is as long as names can be.
    static std::string name(const fs::path &target) {
        const std::string end = ".tmp-" + std::to_string(getpid());
        const std::string stem = target.filename().string().substr(0, NAME_MAX - end.size());
        return (target.parent_path() / (stem + end)).string();
    }

    std::string target_, name_;
    bool kept_ = false;
};

/// The file at the end of all links; it need not exist. stat() has found no cycle.
fs::path behind_links(const std::string &path) {
    fs::path at = path;
    for (int links = 0; links < 64 && fs::is_symlink(fs::symlink_status(at)); ++links)
        at = at.parent_path() / fs::read_symlink(at);
    return at;
}

std::optional<struct stat> status_of(const std::string &path) {
    struct stat found {};
    if (stat(path.c_str(), &found) == 0) return found;
    if (errno != ENOENT || path.empty()) fail("open", path);
    return std::nullopt;
}

bool same_file(const struct stat &a, const struct stat &b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// The standard stream that already writes to this file, whatever it is; -1: none. Replaced, or
/// opened a second time, the file would lose what the stream has written.
int standard_stream(const struct stat &file) {
    for (int id : {STDOUT_FILENO, STDERR_FILENO}) {
        struct stat own {};
        const int flags = fcntl(id, F_GETFL);
        if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && fstat(id, &own) == 0
            && same_file(own, file))
            return id;
    }
    return -1;
}

void write_directly(const std::string &path, std::span<const std::uint8_t> bytes, int stream) {
    const descriptor file(path,
        stream >= 0 ? fcntl(stream, F_DUPFD_CLOEXEC, 0) : open(path.c_str(), O_WRONLY | O_CLOEXEC));
    file.write_all(bytes);
}

/// The renaming itself is durable once the directory is, which some may enter but not read.
void synchronise_directory(const fs::path &target) {
    const std::string parent = target.parent_path().string();
    const char *name = parent.empty() ? "." : parent.c_str();
    const int id = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (id < 0 && errno == EACCES) return;
    descriptor(name, id).synchronise();
}

/// The file to be replaced; nothing where `path` is to be written to directly.
std::optional<fs::path> replaceable(
    const std::string &path, const std::optional<struct stat> &old) {
    if (!old) return behind_links(path);
    if (S_ISDIR(old->st_mode)) fail("write", path, EISDIR);
    if (access(path.c_str(), W_OK) != 0) fail("write", path);
    if (!S_ISREG(old->st_mode) || standard_stream(*old) >= 0) return std::nullopt;
    fs::path target = behind_links(path);
    // The link of an open file that was removed leads to it, but its text names no file.
    struct stat found {};
    if (stat(target.c_str(), &found) != 0 || !same_file(found, *old)) return std::nullopt;
    return target;
}

}  // namespace

void replace_file(const std::string &path, std::span<const std::uint8_t> bytes) {
    const std::optional<struct stat> old = status_of(path);
    const std::optional<fs::path> target = replaceable(path, old);
    if (!target) return write_directly(path, bytes, standard_stream(*old));
    file_beside beside(*target);
    {
        const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
        const descriptor file(path, open(beside.path().c_str(), flags, 0666));
        // The new file is the old one with other contents, as far as we may make it so.
        constexpr mode_t permissions = 0777;
        if (old && fchmod(file.id(), old->st_mode & permissions) != 0) errno = 0;
        file.write_all(bytes);
        file.synchronise();
    }
    beside.take_place();
    synchronise_directory(*target);
}

void check_replaceable(const std::string &path) {
    const std::optional<fs::path> target = replaceable(path, status_of(path));
    if (!target) return;
    const std::string parent = target->parent_path().string();
    if (access(parent.empty() ? "." : parent.c_str(), W_OK | X_OK) != 0) fail("open", path);
}

void remove_unfinished_file() noexcept {
    if (const char *name = unfinished) unlink(name);
}

}  // namespace convgrad::train

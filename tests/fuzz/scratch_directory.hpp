// A directory of this process alone, removed at the end.
#pragma once

#include <filesystem>
#include <string>

#include <unistd.h>

namespace convgrad::fuzz {

class scratch_directory {
public:
    scratch_directory()
        : path_(std::filesystem::temp_directory_path()
                / ("convgrad-fuzz-" + std::to_string(::getpid()))) {
        std::filesystem::create_directories(path_);
    }
    ~scratch_directory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    scratch_directory(const scratch_directory &) = delete;
    scratch_directory &operator=(const scratch_directory &) = delete;

    [[nodiscard]] const std::filesystem::path &path() const { return path_; }

private:
    std::filesystem::path path_;
};

}  // namespace convgrad::fuzz

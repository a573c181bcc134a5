// The state of a training as a file with a checksum.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace convgrad::train {

/// A state with a header and a checksum around it, written by replace_file().
void write_checkpoint(const std::string &path, std::span<const std::uint8_t> state);
/// Throws std::runtime_error that tells whether the file is no checkpoint, or a damaged one.
std::vector<std::uint8_t> read_checkpoint(const std::string &path);

class byte_writer {
public:
    template <typename T>
    void put(const T &value) {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto *at = reinterpret_cast<const std::uint8_t *>(&value);
        bytes_.insert(bytes_.end(), at, at + sizeof(T));
    }
    template <typename T>
    void put_list(const std::vector<T> &list) {
        put(static_cast<std::uint64_t>(list.size()));
        for (const T &value : list) put(value);
    }
    [[nodiscard]] const std::vector<std::uint8_t> &bytes() const { return bytes_; }

private:
    std::vector<std::uint8_t> bytes_;
};

class byte_reader {
public:
    explicit byte_reader(std::span<const std::uint8_t> bytes) : rest_(bytes) {}

    template <typename T>
    T get() {
        static_assert(std::is_trivially_copyable_v<T>);
        if (rest_.size() < sizeof(T)) throw std::runtime_error("the checkpoint ends too early");
        T value;
        std::memcpy(&value, rest_.data(), sizeof(T));
        rest_ = rest_.subspan(sizeof(T));
        return value;
    }
    template <typename T>
    std::vector<T> get_list() {
        const auto count = get<std::uint64_t>();
        if (count > rest_.size() / sizeof(T))
            throw std::runtime_error("the checkpoint ends too early");
        std::vector<T> list;
        for (std::uint64_t i = 0; i < count; ++i) list.push_back(get<T>());
        return list;
    }

private:
    std::span<const std::uint8_t> rest_;
};

}  // namespace convgrad::train

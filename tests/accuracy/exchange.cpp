#include "accuracy/exchange.hpp"

#include <array>
#include <filesystem>
#include <utility>

namespace convgrad::accuracy {
namespace {

std::string file(const std::string &directory, int number, const char *suffix) {
    return directory + "/" + std::to_string(number) + suffix;
}

void write_values(const std::string &path, const std::vector<double> &values) {
    const std::vector<float> f32(values.begin(), values.end());
    std::ofstream(path, std::ios::binary)
        .write(static_cast<const char *>(static_cast<const void *>(f32.data())),
            static_cast<std::streamsize>(f32.size() * sizeof(float)));
}

/// `"name": [a, b, c], `
template <typename Value>
void list(std::ostream &out, const char *name, const conv::problem &p, Value value) {
    out << '"' << name << "\": [" << value(p.x[0]) << ", " << value(p.x[1]) << ", " << value(p.x[2])
        << "], ";
}

}  // namespace

exporter::exporter(std::string directory) : directory_(std::move(directory)) {
    std::filesystem::create_directories(directory_);
    index_.open(directory_ + "/index.jsonl");
}

void exporter::add(const subject &s) {
    const conv::problem &p = s.problem();
    constexpr std::string_view passes[] = {"forward", "backward_data", "backward_weights"};
    index_ << "{\"pass\": \"" << passes[static_cast<std::size_t>(p.what)] << "\", \"type\": \""
           << convgrad::to_string(p.type) << "\", \"out_type\": \""
           << convgrad::to_string(p.out_type) << "\", ";
    list(index_, "src", p, [](const conv::axis &a) { return a.src; });
    list(index_, "dst", p, [](const conv::axis &a) { return a.dst; });
    list(index_, "kernel", p, [](const conv::axis &a) { return a.kernel; });
    list(index_, "stride", p, [](const conv::axis &a) { return a.stride; });
    list(index_, "dilation", p, [](const conv::axis &a) { return a.dilation; });
    list(index_, "pad", p, [](const conv::axis &a) { return a.pad; });
    index_ << "\"mb\": " << p.mb << ", \"groups\": " << p.groups << ", \"ic\": " << p.ic
           << ", \"oc\": " << p.oc << "}\n";
    const auto inputs = inputs_of(p);
    write_values(file(directory_, count_, ".a"), s.input(inputs[0]));
    write_values(file(directory_, count_, ".b"), s.input(inputs[1]));
    ++count_;
}

imported::imported(std::string directory) : directory_(std::move(directory)) {
    std::getline(std::ifstream(directory_ + "/name"), name_);
}

std::optional<std::vector<double>> imported::next() const {
    const std::string path = file(directory_, count_++, ".out");
    std::ifstream in(path, std::ios::binary);
    if (!in) return std::nullopt;
    std::vector<float> f32(std::filesystem::file_size(path) / sizeof(float));
    in.read(static_cast<char *>(static_cast<void *>(f32.data())),
        static_cast<std::streamsize>(f32.size() * sizeof(float)));
    return std::vector<double>(f32.begin(), f32.end());
}

}  // namespace convgrad::accuracy

// Compares the eager API with what tests/oracle/draw.py computed: oracle_check DIRECTORY.
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <convgrad/error.hpp>
#include <convgrad/op.hpp>

#include "conv/convert.hpp"
#include "support/eager_call.hpp"
#include "support/pools.hpp"
#include "support/workbench.hpp"

namespace convgrad::test {
namespace {

dims parse_list(const std::string &text) {
    dims list;
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) list.push_back(std::stoll(word));
    return list;
}

data_type parse_type(const std::string &text) {
    for (const data_type type : {data_type::f32, data_type::bf16, data_type::f16})
        if (to_string(type) == text) return type;
    throw std::runtime_error("unknown type " + text);
}

std::size_t count(const dims &shape) {
    std::size_t n = 1;
    for (dim d : shape) n *= static_cast<std::size_t>(d);
    return n;
}

/// One line of the index.
class entry {
public:
    explicit entry(const std::string &line) {
        std::istringstream words(line);
        for (std::string word; words >> word;) {
            const auto equals = word.find('=');
            fields_[word.substr(0, equals)] = word.substr(equals + 1);
        }
    }
    [[nodiscard]] const std::string &text(const std::string &key) const { return fields_.at(key); }
    [[nodiscard]] dims list(const std::string &key) const { return parse_list(text(key)); }
    [[nodiscard]] attributes attrs() const {
        return {.strides = list("strides"),
            .pads_begin = list("pads_begin"),
            .pads_end = list("pads_end"),
            .dilations = list("dilations"),
            .auto_pad = text("auto_pad"),
            .groups = std::stoll(text("groups")),
            .data_format = text("data_format"),
            .weights_format = text("weights_format"),
            .output_padding = list("output_padding")};
    }

private:
    std::map<std::string, std::string> fields_;
};

/// What the oracle says about each output element.
struct expectation {
    std::vector<double> value, magnitude, terms;
};

template <typename T>
std::vector<T> read(std::istream &in, std::size_t n) {
    std::vector<T> data(n);
    const auto bytes = static_cast<std::streamsize>(n * sizeof(T));
    std::vector<char> raw(static_cast<std::size_t>(bytes));
    if (!in.read(raw.data(), bytes)) throw std::runtime_error("data.bin is too short");
    if (n > 0) std::memcpy(data.data(), raw.data(), raw.size());
    return data;
}

double element(const std::vector<std::byte> &data, data_type type, std::size_t i) {
    if (type == data_type::f32) {
        float v = 0;
        std::memcpy(&v, &data[i * 4], 4);
        return v;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, &data[i * 2], 2);
    return type == data_type::bf16 ? conv::to_float(bf16{bits}) : conv::to_float(f16{bits});
}

/// Empty if every element is within its bound.
std::string compare(
    const std::vector<std::byte> &out, data_type type, const expectation &expected) {
    for (std::size_t i = 0; i < expected.value.size(); ++i) {
        const double got = element(out, type, i), value = expected.value[i];
        const double bound = error_bound(
            type, value, expected.magnitude[i], static_cast<dim>(std::llround(expected.terms[i])));
        if (std::fabs(got - value) <= bound) continue;
        std::ostringstream text;
        text << "element " << i << ": got " << got << ", JAX has " << value << ", bound " << bound;
        return text.str();
    }
    return {};
}

/// Reads one problem's data and runs it on every engine; the number of failures.
int check(const entry &e, std::istream &data, const std::vector<engine> &engines) {
    const op_kind kind = op_kind_from_name(e.text("op"));
    const data_type type = parse_type(e.text("type"));
    const auto tensor_data = [&](const dims &shape) {
        return read<std::byte>(data, count(shape) * size_of(type));
    };
    const dims in0_shape = e.list("in0"), in1_shape = e.list("in1"), bias_shape = e.list("bias");
    const dims out_shape = e.list("out");
    auto in0 = tensor_data(in0_shape), in1 = tensor_data(in1_shape);
    auto bias = bias_shape.empty() ? std::vector<std::byte>() : tensor_data(bias_shape);
    const std::size_t n = count(out_shape);
    const expectation expected{read<double>(data, n), read<double>(data, n), read<double>(data, n)};
    int failures = 0;
    for (const engine &on : engines) {
        std::vector<std::byte> out(n * size_of(type), std::byte{0xff});
        std::string problem;
        try {
            call_eager(kind, {static_cast<void *>(in0.data()), type, in0_shape},
                {static_cast<void *>(in1.data()), type, in1_shape},
                bias.empty() ? tensor{}
                             : tensor{static_cast<void *>(bias.data()), type, bias_shape},
                {static_cast<void *>(out.data()), type, out_shape}, e.attrs(), {.on = &on});
            problem = compare(out, type, expected);
        } catch (const error &failure) {
            problem = failure.what();
        }
        if (problem.empty()) continue;
        ++failures;
        std::cout << to_string(on.instruction_set()) << ": " << problem << '\n';
    }
    return failures;
}

int run(const std::string &directory) {
    std::ifstream index(directory + "/index.txt"), data(directory + "/data.bin", std::ios::binary);
    if (!index || !data) throw std::runtime_error("no index.txt and data.bin in " + directory);
    // Threads of our own: those of the library block every signal, and so the AMX emulator's.
    spawning_pool pool;
    std::vector<engine> engines;
    for (const isa set : usable_isas())
        engines.emplace_back(engine_options{.threads = 2, .pool = &pool, .max_isa = set});
    int passed = 0, failed = 0;
    for (std::string line; std::getline(index, line);) {
        if (check(entry(line), data, engines) == 0) {
            ++passed;
        } else {
            ++failed;
            std::cout << "  in " << line << '\n';
        }
    }
    std::cout << passed << " passed, " << failed << " failed\n";
    return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace convgrad::test

int main(int argc, char **argv) {
    if (argc != 2) {
        std::cerr << "usage: oracle_check DIRECTORY\n";
        return 2;
    }
    try {
        return convgrad::test::run(argv[1]);
    } catch (const std::exception &e) {
        std::cerr << "oracle_check: " << e.what() << '\n';
        return 1;
    }
}

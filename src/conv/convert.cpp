#include <convgrad/convert.hpp>

#include <algorithm>
#include <string>

namespace convgrad {
inline namespace CONVGRAD_ABI {
namespace {

template <typename From, typename To, typename Function>
void convert_all(std::span<const From> from, std::span<To> to, Function one) {
    if (from.size() != to.size())
        throw error(error_code::invalid_argument,
            "convert: there are " + std::to_string(from.size()) + " elements to convert, but "
                + std::to_string(to.size()) + " places; the numbers must be equal");
    std::transform(from.begin(), from.end(), to.begin(), one);
}

}  // namespace

void convert(std::span<const float> from, std::span<bf16> to) {
    convert_all(from, to, [](float v) { return to_bf16(v); });
}

void convert(std::span<const float> from, std::span<f16> to) {
    convert_all(from, to, [](float v) { return to_f16(v); });
}

void convert(std::span<const bf16> from, std::span<float> to) {
    convert_all(from, to, [](bf16 v) { return to_f32(v); });
}

void convert(std::span<const f16> from, std::span<float> to) {
    convert_all(from, to, [](f16 v) { return to_f32(v); });
}

}  // namespace CONVGRAD_ABI
}  // namespace convgrad

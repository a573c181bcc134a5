// Copies of variants that are safe without memory.
//
// libstdc++ (12 at least) destroys a variant of vectors and strings whose copy failed as if it held
// a value, which crashes. Copying the alternative first and moving it into place does not fail half
// way.
#pragma once

#include <map>
#include <utility>
#include <variant>

namespace convgrad::ops {

template <typename... Types>
std::variant<Types...> copy_of(const std::variant<Types...> &value) {
    return std::visit(
        []<typename T>(const T &v) { return std::variant<Types...>(std::in_place_type<T>, v); },
        value);
}

template <typename Key, typename Less, typename... Types>
std::map<Key, std::variant<Types...>, Less> copy_of(
    const std::map<Key, std::variant<Types...>, Less> &from) {
    std::map<Key, std::variant<Types...>, Less> made;
    for (const auto &[key, value] : from) made.emplace_hint(made.end(), key, copy_of(value));
    return made;
}

}  // namespace convgrad::ops

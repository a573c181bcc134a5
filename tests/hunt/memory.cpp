#include "memory.hpp"

#include <algorithm>
#include <map>
#include <new>
#include <numeric>

#include <sys/mman.h>

namespace hunt {
namespace {

constexpr dim guard = 40;  // elements before and behind, none of them the tensor's

std::vector<std::size_t> shuffled(std::size_t count, draw &random) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = count; i > 1; --i)
        std::swap(order[i - 1],
            order[static_cast<std::size_t>(random.between(0, static_cast<dim>(i) - 1))]);
    return order;
}

dims nested_strides(const dims &shape, draw &random, bool gaps) {
    dims strides(shape.size());
    dim next = gaps && random.percent(40) ? random.between(2, 4) : 1;
    for (std::size_t axis : shuffled(shape.size(), random)) {
        strides[axis] = next;
        next *= std::max<dim>(shape[axis], 1);
        if (gaps && random.percent(50)) next += random.between(1, 9);
    }
    return strides;
}

dims small_strides(const dims &shape, draw &random, dim most) {
    dims strides;
    for (std::size_t i = 0; i < shape.size(); ++i) strides.push_back(random.between(1, most));
    return strides;
}

bool has_repeats(std::vector<dim> offsets) {
    std::sort(offsets.begin(), offsets.end());
    return std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end();
}

constexpr std::size_t page = 4096;

/// Mappings that were given back, by their number of pages.
std::map<std::size_t, std::vector<std::uint8_t *>> &spare() {
    static std::map<std::size_t, std::vector<std::uint8_t *>> list;
    return list;
}

}  // namespace

fenced_bytes::fenced_bytes(std::size_t size) : size_(size), pages_(1) {
    while (pages_ * page < size) pages_ *= 2;
    auto &list = spare()[pages_];
    if (!list.empty()) {
        first_ = list.back();
        list.pop_back();
        return;
    }
    const std::size_t all = (pages_ + 2) * page;
    void *at = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    first_ = static_cast<std::uint8_t *>(at) + page;
    if (mprotect(first_, pages_ * page, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
}

fenced_bytes::~fenced_bytes() {
    if (first_ != nullptr) spare()[pages_].push_back(first_);
}

std::uint8_t *fenced_bytes::begin(bool at_end) const {
    return at_end ? first_ + pages_ * page - size_ : first_;
}

memory::memory(data_type type, dims shape, layout as, draw &random)
    : type_(type), shape_(std::move(shape)), width_(convgrad::size_of(type)) {
    const bool tiny =
        std::accumulate(shape_.begin(), shape_.end(), dim{1}, std::multiplies<>()) < 300;
    if (as == layout::interleaved && tiny) {
        for (int tries = 0; tries < 6; ++tries) {
            strides_ = small_strides(shape_, random, random.one_of<dim>({6, 20, 60}));
            find_offsets();
            if (!has_repeats(offsets_)) break;
            strides_.clear();
        }
    } else if (as == layout::overlapping) {
        strides_ = small_strides(shape_, random, random.one_of<dim>({1, 3, 20, 70}));
    }
    if (strides_.empty() && as != layout::packed)
        strides_ = nested_strides(shape_, random, as != layout::permuted);
    // The strides of axes without a second element mean nothing.
    for (std::size_t i = 0; i < strides_.size(); ++i)
        if (shape_[i] <= 1 && random.percent(30)) strides_[i] = random.one_of<dim>({1, 7, 1000003});
    find_offsets();
    const dim last = offsets_.empty() ? 0 : *std::max_element(offsets_.begin(), offsets_.end()) + 1;
    // The tensor begins or ends at a fence, or lies in the open with any alignment.
    const auto place = random.between(0, 3);
    start_ = place == 0 ? 0 : static_cast<std::size_t>(guard + random.between(0, 20));
    const std::size_t elements = start_ + static_cast<std::size_t>(last + (place == 1 ? 0 : guard));
    held_ = fenced_bytes(elements * width_);
    bytes_ = held_.begin(place == 1);
    is_element_.resize(elements);
    for (dim at : offsets_) is_element_[start_ + static_cast<std::size_t>(at)] = true;
}

void memory::find_offsets() {
    dims strides = strides_;
    if (strides.empty()) {
        strides.assign(shape_.size(), 1);
        for (std::size_t i = shape_.size(); i-- > 1;)
            strides[i - 1] = strides[i] * std::max<dim>(shape_[i], 1);
    }
    offsets_.assign(1, 0);
    for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
        std::vector<dim> next;
        next.reserve(offsets_.size() * static_cast<std::size_t>(shape_[axis]));
        for (dim base : offsets_)
            for (dim i = 0; i < shape_[axis]; ++i) next.push_back(base + i * strides[axis]);
        offsets_ = std::move(next);
    }
}

bool memory::elements_overlap() const {
    return has_repeats(offsets_);
}

void memory::fill_gaps(draw &random) {
    const std::uint64_t poison =
        random.one_of<std::uint64_t>({0xffffffffffffffffULL, 0x7fc17fc17fc17fc1ULL,
            0x7f807f807f807f80ULL, 0x7f817f817f817f81ULL, 0x7c007c007c007c00ULL, random.bits()});
    for (std::size_t i = 0; i < is_element_.size(); ++i)
        if (!is_element_[i]) std::memcpy(&bytes_[i * width_], &poison, width_);
}

void memory::fill_all(draw &random) {
    std::fill(bytes_, bytes_ + held_.size(), std::uint8_t{0xff});  // NaN in every type
    fill_gaps(random);
}

void memory::put(std::size_t element, double value) {
    store(&bytes_[(start_ + static_cast<std::size_t>(offsets_[element])) * width_], value, type_);
}

double memory::get(std::size_t element) const {
    return load(&bytes_[(start_ + static_cast<std::size_t>(offsets_[element])) * width_], type_);
}

std::vector<std::uint32_t> memory::bits() const {
    std::vector<std::uint32_t> all(offsets_.size());
    for (std::size_t i = 0; i < all.size(); ++i)
        std::memcpy(
            &all[i], &bytes_[(start_ + static_cast<std::size_t>(offsets_[i])) * width_], width_);
    return all;
}

bool memory::gaps_are_as(const std::vector<std::uint8_t> &before) const {
    for (std::size_t i = 0; i < is_element_.size(); ++i)
        if (!is_element_[i] && std::memcmp(&bytes_[i * width_], &before[i * width_], width_) != 0)
            return false;
    return true;
}

}  // namespace hunt

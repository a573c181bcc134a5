// What a compiled partition keeps of constant weights between executions.
//
// Layer: used by compiled.hpp. Knows only that there is a form, not what it looks like.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace convgrad {

/// The form of one step's weights that its plan multiplies with, for one address at a time. Any
/// number of threads may use it at once; nobody waits while another makes it, since threads of a
/// caller's pool must not wait for each other.
class kept_constants {
public:
    using form = std::shared_ptr<const void>;

    /// The form of the weights at `address`: as kept, or what `make` returns. Null: another thread
    /// is making one, or `make` returned none.
    template <typename Make>
    form get(const void *address, Make &&make) {
        form old;
        std::uint64_t age = 0;
        {
            const std::lock_guard lock(mutex_);
            if (form_ != nullptr && address == address_) return form_;
            if (making_) return nullptr;
            making_ = true;
            age = age_;
            old = std::move(form_);
        }
        old.reset();  // its memory may be needed
        const claim mine(*this);
        form made = make();
        const std::lock_guard lock(mutex_);
        if (age == age_) {
            address_ = address;
            form_ = made;
        }
        return made;
    }

    /// Nothing that was made before stays, nor what is being made.
    void forget() noexcept {
        form old;
        const std::lock_guard lock(mutex_);
        ++age_;
        old.swap(form_);
    }

    [[nodiscard]] bool has_some() const noexcept {
        const std::lock_guard lock(mutex_);
        return form_ != nullptr;
    }

private:
    /// Ends the making, also if it failed.
    struct claim {
        explicit claim(kept_constants &of_) : of(of_) {}
        ~claim() {
            const std::lock_guard lock(of.mutex_);
            of.making_ = false;
        }
        claim(const claim &) = delete;
        claim &operator=(const claim &) = delete;
        kept_constants &of;
    };

    mutable std::mutex mutex_;
    bool making_ = false;
    std::uint64_t age_ = 0;  // how often all was forgotten
    const void *address_ = nullptr;
    form form_;
};

}  // namespace convgrad

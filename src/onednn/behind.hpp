// The oneDNN behind this library, where there is one.
//
// In front of oneDNN every handle that a client holds is oneDNN's, and oneDNN is told everything
// first. What this library has to know beyond that is noted beside the handles: see
// docs/onednn-delegation.md.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "onednn/guard.hpp"
#include "onednn/interface.hpp"

namespace convgrad::onednn {

/// oneDNN's own functions, all of one file.
struct library {
#define CONVGRAD_ONEDNN_MEMBER(name) decltype(&dnnl_graph_##name) name = nullptr;
    CONVGRAD_ONEDNN_FUNCTIONS(CONVGRAD_ONEDNN_MEMBER)
    /// Null in a version that lacks it.
    CONVGRAD_ONEDNN_LATER_FUNCTIONS(CONVGRAD_ONEDNN_MEMBER)
#undef CONVGRAD_ONEDNN_MEMBER

    int major = 0, minor = 0, patch = 0;
    /// Streams of SYCL do not run in the order of calls.
    bool is_sycl = false;

    /// "oneDNN 3.12.1"
    [[nodiscard]] std::string name() const;
};

/// Null: this library is alone, as far as graphs go. Looked for at the first call and for good:
/// handles of two makers must not mix.
const library *behind();

/// A function of the library behind this one, for what is not about graphs; null: there is none.
/// `own` is this library's function of that name, which is not meant.
void *symbol_behind(const char *name, const void *own);

/// What a function that `library` may lack returns.
template <typename Function, typename... Arguments>
status call_later(Function *function, Arguments... arguments) {
    return function == nullptr ? status::unimplemented : function(arguments...);
}

/// What is known beside oneDNN's handles of one kind. No lock is held while oneDNN runs.
template <typename T>
class notes {
public:
    static notes &get() {
        // Never destroyed: clients may destroy handles while the program ends.
        static auto *table = new notes;
        return *table;
    }

    /// Null for a handle that nothing is known about.
    std::shared_ptr<T> find(const void *handle) {
        const std::shared_lock reading(lock_);
        const auto found = known_.find(handle);
        return found == known_.end() ? nullptr : found->second;
    }

    /// Replaces what was known: a new handle may have the address of one that was destroyed unseen.
    void keep(const void *handle, std::shared_ptr<T> what) {
        const std::unique_lock writing(lock_);
        known_.insert_or_assign(handle, std::move(what));
    }

    /// To be called before oneDNN destroys the handle, whose address may be taken at once.
    void drop(const void *handle) {
        std::shared_ptr<T> last;  // destroyed after the lock
        const std::unique_lock writing(lock_);
        const auto found = known_.find(handle);
        if (found == known_.end()) return;
        last = std::move(found->second);
        known_.erase(found);
    }

private:
    std::shared_mutex lock_;
    std::unordered_map<const void *, std::shared_ptr<T>> known_;
};

/// Has oneDNN make a handle, and keeps what `note` makes beside it. The client is given the handle
/// if there was memory for both; else oneDNN destroys it again.
template <typename Handle, typename Create, typename Destroy, typename Note>
status create_and_note(
    const char *what, Handle **made, const Create &create, Destroy *destroy, const Note &note) {
    using noted = typename decltype(note())::element_type;
    Handle *theirs = nullptr;
    const status said = create(&theirs);
    if (said != status::success) return said;
    const status kept = guarded(what, [&] {
        notes<noted>::get().keep(theirs, note());
        return status::success;
    });
    if (kept == status::success) {
        *made = theirs;
    } else {
        // oneDNN may have made it by another function's name, which is ours and noted it.
        notes<noted>::get().drop(theirs);
        destroy(theirs);
    }
    return kept;
}

}  // namespace convgrad::onednn

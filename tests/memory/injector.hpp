// Makes allocations fail, anywhere in the process: operator new in all its forms, aligned_alloc,
// mmap and the start of threads. The library asks for memory in no other way
// (tests/trust/hardening.sh checks that).
#pragma once

namespace convgrad::test::injector {

/// False under ThreadSanitizer, which must see allocations and thread starts itself.
extern const bool available;

enum class mode {
    once,          // one allocation fails, those after it succeed
    from_then_on,  // no memory is left
};

/// The k-th request from now on fails, the first one being number 0.
void arm(long k, mode how);
/// No more failures. Returns how many requests there were since arm().
long disarm();
/// Blocks from operator new that are not deleted yet, and maps that are not unmapped.
long live();

}  // namespace convgrad::test::injector

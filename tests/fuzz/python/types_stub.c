/* The address sanitizer that comes with the Python fuzzer lacks the undefined-behaviour sanitizer's
 * checks of C++ types. The objects ask for them; here they find nothing. (The C++ fuzzers have
 * them.) */
#include <stdint.h>

uintptr_t __ubsan_vptr_type_cache[128];

#define CHECK(name)                                                                                \
    void name(void);                                                                               \
    void name(void) {}
CHECK(__ubsan_handle_dynamic_type_cache_miss)
CHECK(__ubsan_handle_dynamic_type_cache_miss_abort)
CHECK(__ubsan_handle_function_type_mismatch_v1)
CHECK(__ubsan_handle_function_type_mismatch_v1_abort)

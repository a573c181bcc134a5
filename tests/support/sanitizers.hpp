// Tests in builds with sanitizers, which run ten to fifty times slower.
#pragma once

namespace convgrad::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif
#else
inline constexpr bool is_sanitized = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool is_thread_sanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool is_thread_sanitized = true;
#else
inline constexpr bool is_thread_sanitized = false;
#endif
#else
inline constexpr bool is_thread_sanitized = false;
#endif

/// How many cases of a random sequence to take, where an ordinary build takes `count`.
template <typename Count>
constexpr Count sampled(Count count, Count every) {
    return is_sanitized ? (count + every - 1) / every : count;
}

/// Takes every case in an ordinary build, each `every`-th under sanitizers. For long lists of cases
/// that differ in numbers, not in what is done with memory or between threads.
class sampler {
public:
    explicit sampler(int every) : every_(is_sanitized ? every : 1) {}
    bool takes_next() { return seen_++ % every_ == 0; }

private:
    int every_, seen_ = 0;
};

}  // namespace convgrad::test

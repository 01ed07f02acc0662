// What a checked build (`nox -s sanitize`) knows: which sanitizer it has, and how to tell
// AddressSanitizer about memory that it cannot follow by itself. All of it is nothing elsewhere.
#pragma once

#if defined(__has_feature)  // clang
#if __has_feature(address_sanitizer)
#define DGBENCH_ASAN 1
#elif __has_feature(thread_sanitizer)
#define DGBENCH_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)  // gcc
#define DGBENCH_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define DGBENCH_TSAN 1
#endif

#if defined(DGBENCH_ASAN)
#include <sanitizer/asan_interface.h>
#endif

#include <cstddef>

namespace dgbench {

#if defined(DGBENCH_ASAN)
constexpr const char* kSanitizer = "address";
#elif defined(DGBENCH_TSAN)
constexpr const char* kSanitizer = "thread";
#else
constexpr const char* kSanitizer = "";
#endif

// From here on a touch of these bytes is an error, as of memory that was never allocated.
inline void forbid([[maybe_unused]] const void* place, [[maybe_unused]] std::size_t bytes) {
#if defined(DGBENCH_ASAN)
  __asan_poison_memory_region(place, bytes);
#endif
}

inline void allow([[maybe_unused]] const void* place, [[maybe_unused]] std::size_t bytes) {
#if defined(DGBENCH_ASAN)
  __asan_unpoison_memory_region(place, bytes);
#endif
}

}  // namespace dgbench

// Loaded before everything else, this lets the k-th allocation of a call fail, as if there were no
// memory: `operator new`, and `mprotect`, by which pools that never move take theirs.
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<long> left{-1};  // allocations before the one that fails; below 0: none fails

bool fails() {
  return left.load() >= 0 && left.fetch_sub(1) == 0;
}

void* get(std::size_t size, std::size_t alignment) {
  if (fails()) return nullptr;
  if (size == 0) size = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* get_or_throw(std::size_t size, std::size_t alignment) {
  void* found = get(size, alignment);
  if (found == nullptr) throw std::bad_alloc();
  return found;
}

}  // namespace

extern "C" {

void fail_after(long allocations) { left = allocations; }

int mprotect(void* address, std::size_t size, int access) noexcept {
  using Call = int (*)(void*, std::size_t, int);
  static const Call real = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "mprotect"));
  if ((access & PROT_WRITE) != 0 && left.load() >= 0 && fails()) {
    errno = ENOMEM;
    return -1;
  }
  return real(address, size, access);
}

}  // extern "C"

void* operator new(std::size_t size) { return get_or_throw(size, 1); }
void* operator new[](std::size_t size) { return get_or_throw(size, 1); }
void* operator new(std::size_t size, std::align_val_t to) {
  return get_or_throw(size, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t size, std::align_val_t to) {
  return get_or_throw(size, static_cast<std::size_t>(to));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return get(size, 1); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return get(size, 1); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

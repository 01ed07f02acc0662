// A growing array that never moves: address space is reserved at once, memory is taken as it grows.
// Growing copies nothing, and pointers into it stay good, also for a device that has them mapped.
// It may lie in a file of shared memory: one process writes it, others read the same pages.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "common/sanitizers.hpp"

namespace dgbench {

constexpr std::size_t kReservedStep = std::size_t{2} << 20;  // a huge page
constexpr std::size_t kReservedLeast = std::size_t{1} << 28;  // where addresses are limited

template <class T>
class Reserved {
  static_assert(std::is_trivially_copyable_v<T>, "new elements are zero bytes");

 public:
  // `most` bytes at most; fewer where so many addresses are not to be had. In `file` where that is
  // not negative, which the one that `writes` makes longer.
  explicit Reserved(std::size_t most = std::size_t{1} << 36, int file = -1, bool writes = true)
      : writes_(writes) {
    for (std::size_t bytes = most; base_ == nullptr; bytes /= 2) {
      if (bytes < kReservedLeast) throw std::bad_alloc();
      // Without access it counts against no limit on memory; a step more, to begin at a huge page.
      void* got = mmap(nullptr, bytes + kReservedStep, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (got == MAP_FAILED) continue;
      base_ = got;
      reserved_ = bytes;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(base_);
    data_ = reinterpret_cast<T*>((address + kReservedStep - 1) / kReservedStep * kReservedStep);
    if (file < 0) return;
    file_ = dup(file);
    if (file_ < 0 || mmap(data_, reserved_, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                          file_, 0) == MAP_FAILED) {
      release();
      throw std::bad_alloc();
    }
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  ~Reserved() {
    allow(data_, had_);  // others will be given these addresses
    release();
  }

  // Makes room for `count` elements in all; throws std::bad_alloc and changes nothing if it cannot.
  void need(std::size_t count) {
    if (count > reserved_ / sizeof(T)) throw std::bad_alloc();
    const std::size_t wanted = count * sizeof(T);
    if (wanted <= had_) return;
    // An eighth more than before, so that the calls stay few; what is not touched takes no memory.
    std::size_t bytes = std::max(wanted, had_ + had_ / 8);
    bytes = std::min((bytes + kReservedStep - 1) / kReservedStep * kReservedStep, reserved_);
    char* end = reinterpret_cast<char*>(data_) + had_;
    if (file_ >= 0 && writes_ && ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
      throw std::bad_alloc();
    }
    const int access = writes_ ? PROT_READ | PROT_WRITE : PROT_READ;
    if (mprotect(end, bytes - had_, access) != 0) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (file_ < 0 && bytes >= 2 * kReservedStep) madvise(data_, bytes, MADV_HUGEPAGE);
#endif
    forbid(end, bytes - had_);
    had_ = bytes;
  }

  // Takes `count` elements more, for which there must be room; returns the place of the first.
  std::size_t take(std::size_t count) {
    const std::size_t first = size_;
    size_ += count;
    allow(data_ + first, count * sizeof(T));
    return first;
  }

  void clear() {
    forbid(data_, size_ * sizeof(T));
    size_ = 0;
  }

  void swap(Reserved& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(data_, other.data_);
    std::swap(reserved_, other.reserved_);
    std::swap(had_, other.had_);
    std::swap(size_, other.size_);
    std::swap(file_, other.file_);
    std::swap(writes_, other.writes_);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::size_t size() const { return size_; }

 private:
  void release() {
    if (base_ != nullptr) munmap(base_, reserved_ + kReservedStep);
    if (file_ >= 0) close(file_);
  }

  void* base_ = nullptr;
  T* data_ = nullptr;
  std::size_t reserved_ = 0;
  std::size_t had_ = 0;  // bytes that may be touched
  std::size_t size_ = 0;
  int file_ = -1;
  bool writes_ = true;
};

}  // namespace dgbench

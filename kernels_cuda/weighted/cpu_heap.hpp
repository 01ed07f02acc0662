// Segment Its Search (T-GCN 3.1): a heap of range sums over a fixed number of weights. Built in
// O(n), searched and changed in O(log n). See weighted/functors.hpp for the order in memory.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>

#include "weighted/functors.hpp"

namespace dgbench {

// A is the number of children: 2 is the paper's tree, 8 reads one line of memory a level.
// W is int64_t, whose sums are exact and checked for overflow, or double.
template <class W, int A = 8>
class SegmentHeap {
 public:
  void build(const W* weights, int64_t n) {
    n_ = n;
    height_ = 0;
    int64_t width = 1;
    for (; width < n; width *= A) ++height_;
    const int64_t leaves = first_leaf<A>(height_);
    reserve(leaves + width);
    W* level = sums_ + leaves;
    std::copy(weights, weights + n, level);
    // Behind the last weight only its siblings are written, on every level: their parents weigh
    // nothing, so nobody comes to the rest, and its memory is never touched.
    int64_t used = n;
    pad(level, used, width);
    while (width > 1) {
      W* const above = level - width / A;
      width /= A;
      used = (used + A - 1) / A;
      for (int64_t j = 0; j < used; ++j) above[j] = add_up(level + j * A);
      pad(above, used, width);
      level = above;
    }
  }

  int64_t size() const { return n_; }
  // Nodes below the root on the way to a leaf: what a search reads and a change writes, root aside.
  int64_t height() const { return height_; }
  W total() const { return sums_ ? sums_[0] : W(0); }
  W weight(int64_t i) const { return sums_[first_leaf<A>(height_) + i]; }

  // The leaf that holds `g` in [0, total()). Needs total() > 0.
  int64_t search(W g) const { return descend<A>(sums_, static_cast<int>(height_), g); }

  // The same for many numbers, 16 at a time in step: a level's lines are asked for together.
  void search(const W* numbers, int64_t count, int64_t* out) const {
    constexpr int64_t kInterleaved = 16;
    for (int64_t first = 0; first < count; first += kInterleaved) {
      const int64_t size = std::min(kInterleaved, count - first);
      W g[kInterleaved];
      int64_t node[kInterleaved] = {};
      std::copy_n(numbers + first, size, g);
      const W* level = sums_;
      int64_t width = 1;
      for (int64_t d = 0; d < height_; ++d) {
        level += width;
        width *= A;
        for (int64_t x = 0; x < size; ++x) {
          const W* const children = level + node[x] * A;
          node[x] = node[x] * A + choose<A>(children, g[x]);
          __builtin_prefetch(level + width + node[x] * A);
        }
      }
      std::copy_n(node, size, out + first);
    }
  }

  void modify(int64_t i, W weight) {
    if constexpr (std::is_same_v<W, int64_t>) {
      int64_t total;
      const int64_t difference = weight - this->weight(i);  // both are at least 0
      if (__builtin_add_overflow(sums_[0], difference, &total)) overflow();
      bump_by<A>(sums_, static_cast<int>(height_), i, difference);
    } else {
      bump<A>(sums_, static_cast<int>(height_), i, weight);
    }
  }

 private:
  [[noreturn]] static void overflow() {
    throw std::overflow_error("the sum of the weights is above 2^63 - 1");
  }

  static W add_up(const W* children) {
    if constexpr (std::is_same_v<W, int64_t>) {
      int64_t sum = 0;
      bool over = false;
      for (int c = 0; c < A; ++c) over |= __builtin_add_overflow(sum, children[c], &sum);
      if (over) overflow();
      return sum;
    } else {
      return sum_of_children<A>(children);
    }
  }

  static void pad(W* level, int64_t used, int64_t width) {
    std::fill(level + used, level + std::min(width, (used / A + 1) * A), W(0));
  }

  // Siblings begin at a line of memory: the root stands last in the line before. A large heap lies
  // on huge pages: a way down it meets a new page on every level but the first few.
  void reserve(int64_t nodes) {
    if (nodes <= room_) return;
    constexpr int64_t kLine = 64 / sizeof(W);
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    std::size_t bytes = static_cast<std::size_t>(nodes + 2 * kLine) * sizeof(W);
    const std::size_t grain = bytes >= 2 * kHuge ? kHuge : 64;
    bytes = (bytes + grain - 1) / grain * grain;
    memory_.reset(static_cast<W*>(std::aligned_alloc(grain, bytes)));
    room_ = 0;
    if (memory_ == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (grain == kHuge) madvise(memory_.get(), bytes, MADV_HUGEPAGE);
#endif
    sums_ = memory_.get() + kLine - 1;
    room_ = nodes;
  }

  struct Release {
    void operator()(void* memory) const { std::free(memory); }
  };

  int64_t n_ = 0;
  int64_t height_ = 0;
  int64_t room_ = 0;
  std::unique_ptr<W, Release> memory_;
  W* sums_ = nullptr;
};

}  // namespace dgbench

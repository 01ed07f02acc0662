// One class per way to draw in proportion to weights, all with the same few functions, so that a
// sampler of graphs is written once and templated over them (T-GCN 2.4, 3.1; C-SAW's region
// search):
//
//   begin(const W* weights, int64_t n)   new weights; every index is free. They are finite and at
//                                        least 0, which the caller checks. Memory is kept.
//   draw(rng) -> int64_t                 a free index in proportion to the weights as they are now;
//                                        -1 where none with weight is left. Repeats by itself.
//   take(index)                          never drawn again until `replace`; `index` is free
//   replace(index, weight)               another weight for an index, which is then free
//   counts()                             what was done since the object was made
//
// W is double or int64_t; rng() gives 64 random bits (DrawNumbers). Every method has exactly the
// distribution of sequential draws without replacement, except the demonstrator `Region::literal`.
//
// Methods that draw again on a duplicate would not end where the taken weights are nearly all there
// is (in 1e20, 1, 1 nobody hits the second). After kPatience failures in a row they build their
// table anew from what is free, counted in `rebuilt`; the distribution is the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "weighted/cpu_base.hpp"
#include "weighted/cpu_heap.hpp"
#include "weighted/cpu_prefix.hpp"
#include "weighted/functors.hpp"

namespace dgbench {

// sis: the tree of sums. What is taken weighs nothing, so no draw is ever repeated.
template <class W, int A = 8>
class SisSearch {
 public:
  using Weight = W;
  void begin(const W* weights, int64_t n) { heap_.build(weights, n); }

  template <class Rng>
  int64_t draw(Rng& rng) {
    if (!(heap_.total() > W(0))) return -1;
    counts_.draws++;
    counts_.nodes_visited += heap_.height();
    return heap_.search(scale_bits(rng(), heap_.total()));
  }
  void take(int64_t index) { replace(index, W(0)); }
  void replace(int64_t index, W weight) {
    counts_.nodes_visited += heap_.height();
    heap_.modify(index, weight);
  }
  const DrawCounts& counts() const { return counts_; }
  const SegmentHeap<W, A>& heap() const { return heap_; }

 private:
  SegmentHeap<W, A> heap_;
  DrawCounts counts_;
};

// alias: Vose's tables, one random number and two reads a draw.
template <class W>
class AliasSearch {
 public:
  using Weight = W;
  void begin(const W* weights, int64_t n) {
    weights_.assign(weights, weights + n);
    free_.begin(weights, n);
    build();
  }

  template <class Rng>
  int64_t draw(Rng& rng) {
    if (!free_.any()) return -1;
    for (int64_t failures = 0;; ++failures) {
      if (failures == kPatience || !filled_) {
        for (std::size_t i = 0; i < weights_.size(); ++i) {
          if (free_.closed(static_cast<int64_t>(i))) weights_[i] = W(0);
        }
        renew();
        failures = 0;
      }
      const auto n = static_cast<int64_t>(weights_.size());
      const int64_t index = alias_answer(keep_.data(), other_.data(), n, rng());
      if (!free_.closed(index)) {
        counts_.draws++;
        return index;
      }
      counts_.redraws++;
    }
  }
  void take(int64_t index) { free_.take(index); }
  void replace(int64_t index, W weight) {
    free_.replace(index, weight);
    weights_[index] = weight;
    renew();
  }
  const DrawCounts& counts() const { return counts_; }

 private:
  void renew() {
    build();
    counts_.rebuilt++;
    counts_.elements_scanned += static_cast<int64_t>(weights_.size());
  }
  void build();

  std::vector<W> weights_;
  std::vector<double> keep_;
  std::vector<int64_t> other_, small_, large_;
  bool filled_ = false;
  Free<W> free_;
  DrawCounts counts_;
};

// reservoir: partial Fisher-Yates, for equal weights only.
template <class W>
class ReservoirSearch {
 public:
  using Weight = W;
  void begin(const W* weights, int64_t n) {
    weight_ = n ? weights[0] : W(0);
    for (int64_t i = 1; i < n; ++i) {
      if (weights[i] != weight_) refuse();
    }
    left_ = weight_ > W(0) ? n : 0;
    order_.resize(static_cast<std::size_t>(n));
    for (int64_t i = 0; i < n; ++i) order_[i] = i;
  }

  template <class Rng>
  int64_t draw(Rng& rng) {
    if (left_ == 0) return -1;
    counts_.draws++;
    last_ = scale_bits(rng(), left_);
    return order_[last_];
  }
  void take(int64_t index) {
    if (last_ >= left_ || order_[last_] != index) locate(index, 0, left_);
    std::swap(order_[last_], order_[--left_]);
  }
  void replace(int64_t index, W weight) {
    if (weight != weight_) refuse();
    if (last_ < left_ && order_[last_] == index) return;
    locate(index, 0, static_cast<int64_t>(order_.size()));
    if (last_ >= left_) std::swap(order_[last_], order_[left_++]);
  }
  const DrawCounts& counts() const { return counts_; }

 private:
  [[noreturn]] static void refuse() {
    throw std::invalid_argument("reservoir draws among equal weights only");
  }
  void locate(int64_t index, int64_t first, int64_t stop) {
    last_ = std::find(order_.begin() + first, order_.begin() + stop, index) - order_.begin();
    counts_.elements_scanned += last_ - first + 1;
  }

  std::vector<int64_t> order_;
  int64_t left_ = 0, last_ = 0;
  W weight_ = W(0);
  DrawCounts counts_;
};

// keys: every index has a clock that rings after an exponential time of rate weight, and whoever
// rings first is drawn. Clocks have no memory, so a replaced index starts a new one now. A heap of
// four children holds the times; `draw_without_replacement` has a faster form for a fixed set.
template <class W>
class KeySearch {
 public:
  using Weight = W;
  void begin(const W* weights, int64_t n);

  template <class Rng>
  int64_t draw(Rng& rng);
  void take(int64_t index) {
    weights_[index] = W(0);
    due(index);
  }
  void replace(int64_t index, W weight) {
    weights_[index] = weight;
    due(index);
  }
  const DrawCounts& counts() const { return counts_; }

 private:
  static constexpr int64_t kChildren = 4;
  void due(int64_t index) {
    if (index == drawn_) drawn_ = -1;
    pending_.push_back(index);
  }
  template <class Rng>
  double ring(Rng& rng, W weight) {
    if (!(weight > W(0))) return INFINITY;
    return now_ - std::log1p(-unit_of(rng())) / static_cast<double>(weight);
  }
  void put(int64_t place, int64_t index) {
    heap_[place] = index;
    place_[index] = place;
  }
  void up(int64_t place);
  void down(int64_t place);

  std::vector<W> weights_;
  std::vector<double> times_;
  std::vector<int64_t> heap_, place_, pending_;
  double now_ = 0;
  int64_t drawn_ = -1;
  bool fresh_ = false;
  DrawCounts counts_;
};

}  // namespace dgbench

#include "weighted/cpu_tables.hpp"

// One class per way to draw in proportion to weights, all with the same few functions, so that a
// sampler of graphs is written once and templated over them (T-GCN 2.4, 3.1; C-SAW's region search):
//
//   begin(const W* weights, int64_t n)   new weights; every index is free. The weights are finite and
//                                        at least 0, which the caller checks. Memory is kept.
//   draw(rng) -> int64_t                 a free index in proportion to the weights as they are now; -1
//                                        where none with weight is left. Draws again by itself.
//   take(index)                          never drawn again until `replace`; `index` is free
//   replace(index, weight)               another weight for an index, which is then free
//   counts()                             what was done since the object was made
//
// W is double or int64_t; rng() gives 64 random bits (DrawNumbers). Every method has exactly the
// distribution of sequential draws without replacement, except the demonstrator `BrsLiteral`.
//
// Methods that draw again on a duplicate would not end where the taken weights are nearly all there is
// (in 1e20, 1, 1 nobody hits the second). After kPatience failures in a row they build their table anew
// from what is free, counted in `rebuilt`; the distribution is the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/philox.hpp"
#include "common/weighted_functors.hpp"
#include "cpu/weighted_heap.hpp"

namespace dgbench {

constexpr int64_t kPatience = 4096;

struct DrawCounts {
  int64_t draws = 0;             // answers given
  int64_t redraws = 0;           // random numbers whose answer was taken already
  int64_t nodes_visited = 0;     // steps in trees and binary searches, up and down
  int64_t elements_scanned = 0;  // elements of arrays that were read one after the other
  int64_t rebuilt = 0;           // tables built anew after `begin`

  void add(const DrawCounts& other) {
    draws += other.draws;
    redraws += other.redraws;
    nodes_visited += other.nodes_visited;
    elements_scanned += other.elements_scanned;
    rebuilt += other.rebuilt;
  }
};

// Random bits in order: number i of a stream depends on (seed, stream, i) only.
class DrawNumbers {
 public:
  DrawNumbers(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  uint64_t operator()() {
    if (next_ & 1) return (++next_, odd_);
    const Draws two = philox(static_cast<uint32_t>(next_ >> 1), static_cast<uint32_t>(next_ >> 33),
                             static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32),
                             static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32) ^ kPurpose);
    ++next_;
    odd_ = two.odd;
    return two.even;
  }

 private:
  static constexpr uint32_t kPurpose = 0x53495357u;  // apart from the numbers of other operators
  uint64_t seed_, stream_, next_ = 0, odd_ = 0;
};

// Which indices must not be drawn (taken, or without weight), and how many may.
template <class W>
class Free {
 public:
  void begin(const W* weights, int64_t n) {
    closed_.resize(static_cast<std::size_t>(n));
    open_ = n;
    for (int64_t i = 0; i < n; ++i) {
      closed_[i] = !(weights[i] > W(0));
      open_ -= closed_[i];
    }
  }
  bool closed(int64_t i) const { return closed_[i]; }
  void take(int64_t i) { set(i, 1); }
  void replace(int64_t i, W weight) { set(i, !(weight > W(0))); }
  void replace(int64_t i, W, W after) { replace(i, after); }
  bool any() const { return open_ > 0; }

 private:
  void set(int64_t i, uint8_t closed) {
    open_ += closed_[i] - closed;
    closed_[i] = closed;
  }
  std::vector<uint8_t> closed_;
  int64_t open_ = 0;
};

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

// Inclusive prefix sums of the weights that are free, for the methods that keep such a table.
template <class W>
class PrefixTable {
 public:
  void begin(const W* weights, int64_t n) {
    weights_.assign(weights, weights + n);
    sums_.resize(static_cast<std::size_t>(n));
    free_.begin(weights, n);
    add_up(0, counts_);
    counts_.elements_scanned -= n;  // `begin` is not counted
  }
  const DrawCounts& counts() const { return counts_; }

 protected:
  int64_t size() const { return static_cast<int64_t>(weights_.size()); }
  W total() const { return sums_.back(); }

  void add_up(int64_t first, DrawCounts& counts) {
    W sum = first ? sums_[first - 1] : W(0);
    const int64_t n = size();
    for (int64_t i = first; i < n; ++i) sums_[i] = sum += weights_[i];
    counts.elements_scanned += n - first;
  }
  void rebuild_without_taken() {
    const int64_t n = size();
    for (int64_t i = 0; i < n; ++i) {
      if (free_.closed(i)) weights_[i] = W(0);
    }
    add_up(0, counts_);
    counts_.rebuilt++;
  }
  int64_t find(W g) {
    const int64_t n = size();
    if (n > 1) counts_.nodes_visited += 64 - __builtin_clzll(static_cast<uint64_t>(n - 1));
    return first_above(sums_.data(), n, g);
  }
  void change(int64_t index, W weight) {
    free_.replace(index, weight);
    weights_[index] = weight;
    add_up(index, counts_);
    counts_.rebuilt++;
  }

  std::vector<W> weights_, sums_;
  Free<W> free_;
  DrawCounts counts_;
};

// The paper does not say why it counts O(n) for a draw by inverse transform; these are the ways to get
// there, and one (bitmap) that does not.
enum class Its { linear, bitmap, list, rebuild };

template <class W, Its Form>
class ItsSearch : public PrefixTable<W> {
  using Base = PrefixTable<W>;
  using Base::counts_, Base::free_, Base::sums_, Base::weights_;

 public:
  using Weight = W;
  void begin(const W* weights, int64_t n) {
    Base::begin(weights, n);
    list_.clear();
  }

  template <class Rng>
  int64_t draw(Rng& rng) {
    if (!free_.any()) return -1;
    for (int64_t failures = 0;; ++failures) {
      if (failures == kPatience || !(this->total() > W(0))) {
        this->rebuild_without_taken();
        failures = 0;
      }
      const int64_t index = locate(scale_bits(rng(), this->total()));
      if (!is_taken(index)) {
        counts_.draws++;
        return index;
      }
      counts_.redraws++;
    }
  }

  void take(int64_t index) {
    free_.take(index);
    if constexpr (Form == Its::list) list_.push_back(index);
    if constexpr (Form == Its::rebuild) {
      weights_[index] = W(0);
      this->add_up(index, counts_);  // what lies before it stays
      counts_.rebuilt++;
    }
  }
  void replace(int64_t index, W weight) {
    if constexpr (Form == Its::list) {
      list_.erase(std::remove(list_.begin(), list_.end(), index), list_.end());
    }
    this->change(index, weight);
  }

 private:
  int64_t locate(W g) {
    if constexpr (Form != Its::linear) return this->find(g);
    int64_t i = 0;
    while (!(sums_[i] > g)) ++i;
    counts_.elements_scanned += i + 1;
    return i;
  }
  bool is_taken(int64_t index) {
    if constexpr (Form != Its::list) return free_.closed(index);
    const auto at = std::find(list_.begin(), list_.end(), index);
    counts_.elements_scanned += at - list_.begin() + (at != list_.end());
    return at != list_.end() || !(weights_[index] > W(0));
  }

  std::vector<int64_t> list_;
};

// What to do with the region of a taken index (C-SAW's bipartite region search; dossier 3.5).
enum class Region { fresh, recycled, literal };

template <class W, Region Form>
class BrsSearch : public PrefixTable<double> {
 public:
  using Weight = W;
  void begin(const W* weights, int64_t n) {
    as_double_.assign(weights, weights + n);
    PrefixTable<double>::begin(as_double_.data(), n);
  }

  template <class Rng>
  int64_t draw(Rng& rng) {
    if (!free_.any()) return -1;
    for (int64_t failures = 0;; ++failures) {
      if (failures == kPatience || !(total() > 0)) {
        rebuild_without_taken();
        failures = 0;
      }
      const double u = unit_of(rng());
      int64_t index = find(u * total());
      if (free_.closed(index)) {
        counts_.redraws++;
        const double low = index ? sums_[index - 1] : 0.0;
        const double size = sums_[index] - low;
        const double rest = total() - size;
        if (!(rest > 0)) {
          failures = kPatience - 1;
          continue;
        }
        double v = u;  // the printed form; given that u fell into the region it is confined to a band
        if (Form == Region::fresh) v = unit_of(rng());
        if (Form == Region::recycled) v = std::min((u * total() - low) / size, 1 - 0x1p-53);
        const double y = around_region(v * rest, low, size);
        index = find(std::min(y, below_total()));
        if (free_.closed(index)) {
          counts_.redraws++;
          continue;  // from the start: then several taken indices keep the distribution exact
        }
      }
      counts_.draws++;
      return index;
    }
  }
  void take(int64_t index) { free_.take(index); }
  void replace(int64_t index, W weight) { change(index, static_cast<double>(weight)); }

 private:
  double below_total() const { return std::nextafter(total(), 0.0); }
  std::vector<double> as_double_;
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

// keys: every index has a clock that rings after an exponential time of rate weight, and whoever rings
// first is drawn. Clocks have no memory, so a replaced index starts a new one now. A heap of four
// children holds the times; `draw_without_replacement` has a faster form for a fixed set.
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

#include "cpu/weighted_tables.hpp"

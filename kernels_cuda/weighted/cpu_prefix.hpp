// The methods of weighted/cpu_search.hpp that keep prefix sums: inverse transform and region search.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "weighted/cpu_base.hpp"
#include "weighted/functors.hpp"

namespace dgbench {

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

// The paper does not say why it counts O(n) for a draw by inverse transform; these are the ways to
// get there, and one (bitmap) that does not.
enum class Its { linear, bitmap, list, rebuild };

template <class W, Its Search>
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
    if constexpr (Search == Its::list) list_.push_back(index);
    if constexpr (Search == Its::rebuild) {
      weights_[index] = W(0);
      this->add_up(index, counts_);  // what lies before it stays
      counts_.rebuilt++;
    }
  }
  void replace(int64_t index, W weight) {
    if constexpr (Search == Its::list) {
      list_.erase(std::remove(list_.begin(), list_.end(), index), list_.end());
    }
    this->change(index, weight);
  }

 private:
  int64_t locate(W g) {
    if constexpr (Search != Its::linear) return this->find(g);
    int64_t i = 0;
    while (!(sums_[i] > g)) ++i;
    counts_.elements_scanned += i + 1;
    return i;
  }
  bool is_taken(int64_t index) {
    if constexpr (Search != Its::list) return free_.closed(index);
    const auto at = std::find(list_.begin(), list_.end(), index);
    counts_.elements_scanned += at - list_.begin() + (at != list_.end());
    return at != list_.end() || !(weights_[index] > W(0));
  }

  std::vector<int64_t> list_;
};

// What to do with the region of a taken index (C-SAW's bipartite region search; dossier 3.5).
enum class Region { fresh, recycled, literal };

template <class W, Region Rule>
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
        double v = u;  // as printed; given that u fell into the region it is confined to a band
        if (Rule == Region::fresh) v = unit_of(rng());
        if (Rule == Region::recycled) v = std::min((u * total() - low) / size, 1 - 0x1p-53);
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

}  // namespace dgbench

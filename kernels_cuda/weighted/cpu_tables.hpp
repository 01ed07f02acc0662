// Longer bodies of weighted/cpu_search.hpp, which includes this file, and the choice of a class by
// name.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "weighted/cpu_search.hpp"

namespace dgbench {

template <class W>
void AliasSearch<W>::build() {
  const auto n = static_cast<int64_t>(weights_.size());
  keep_.assign(weights_.size(), 0.0);
  other_.resize(weights_.size());
  double total = 0;
  int64_t heaviest = 0;
  for (int64_t i = 0; i < n; ++i) {
    total += static_cast<double>(weights_[i]);
    if (weights_[i] > weights_[heaviest]) heaviest = i;
  }
  filled_ = total > 0;
  if (!filled_) return;
  small_.clear();
  large_.clear();
  const double share = static_cast<double>(n) / total;
  for (int64_t i = 0; i < n; ++i) {
    keep_[i] = static_cast<double>(weights_[i]) * share;
    other_[i] = heaviest;
    (keep_[i] < 1.0 ? small_ : large_).push_back(i);
  }
  while (!small_.empty() && !large_.empty()) {
    const int64_t less = small_.back();
    const int64_t more = large_.back();
    small_.pop_back();
    other_[less] = more;
    keep_[more] -= 1.0 - keep_[less];
    if (keep_[more] < 1.0) {
      large_.pop_back();
      small_.push_back(more);
    }
  }
  // What rounding leaves over is full, save columns without weight: those answer with the heaviest.
  for (const int64_t i : large_) keep_[i] = 1.0;
  for (const int64_t i : small_) {
    if (weights_[i] > W(0)) keep_[i] = 1.0;
  }
}

template <class W>
void KeySearch<W>::begin(const W* weights, int64_t n) {
  weights_.assign(weights, weights + n);
  times_.resize(weights_.size());
  heap_.resize(weights_.size());
  place_.resize(weights_.size());
  pending_.clear();
  now_ = 0;
  drawn_ = -1;
  fresh_ = true;
}

template <class W>
template <class Rng>
int64_t KeySearch<W>::draw(Rng& rng) {
  const auto n = static_cast<int64_t>(weights_.size());
  if (n == 0) return -1;
  if (fresh_) {
    for (int64_t i = 0; i < n; ++i) {
      times_[i] = ring(rng, weights_[i]);
      put(i, i);
    }
    for (int64_t place = (n - 2) / kChildren; n > 1 && place >= 0; --place) down(place);
    pending_.clear();
    fresh_ = false;
  }
  if (drawn_ >= 0) pending_.push_back(drawn_);  // neither taken nor replaced: its clock starts anew
  for (const int64_t index : pending_) {
    times_[index] = ring(rng, weights_[index]);
    up(place_[index]);
    down(place_[index]);
  }
  pending_.clear();
  drawn_ = -1;
  const int64_t first = heap_[0];
  if (times_[first] == INFINITY) return -1;
  now_ = times_[first];
  drawn_ = first;
  counts_.draws++;
  return first;
}

template <class W>
void KeySearch<W>::up(int64_t place) {
  const int64_t index = heap_[place];
  while (place > 0) {
    const int64_t above = (place - 1) / kChildren;
    counts_.nodes_visited++;
    if (!(times_[index] < times_[heap_[above]])) break;
    put(place, heap_[above]);
    place = above;
  }
  put(place, index);
}

template <class W>
void KeySearch<W>::down(int64_t place) {
  const auto n = static_cast<int64_t>(heap_.size());
  const int64_t index = heap_[place];
  for (;;) {
    const int64_t first = place * kChildren + 1;
    if (first >= n) break;
    counts_.nodes_visited++;
    int64_t least = first;
    for (int64_t c = first + 1; c < std::min(first + kChildren, n); ++c) {
      if (times_[heap_[c]] < times_[heap_[least]]) least = c;
    }
    if (!(times_[heap_[least]] < times_[index])) break;
    put(place, heap_[least]);
    place = least;
  }
  put(place, index);
}

// Calls body(search) with a search of that name; a binary tree is the paper's, 8 reads lines.
template <class W, class Body>
void with_search(const std::string& method, int arity, Body&& body) {
  const auto call = [&](auto search) { body(search); };
  if (method == "sis" && arity == 2) return call(SisSearch<W, 2>());
  if (method == "sis" && arity == 4) return call(SisSearch<W, 4>());
  if (method == "sis" && arity == 8) return call(SisSearch<W, 8>());
  if (method == "sis" && arity == 16) return call(SisSearch<W, 16>());
  if (method == "its_linear") return call(ItsSearch<W, Its::linear>());
  if (method == "its_bitmap") return call(ItsSearch<W, Its::bitmap>());
  if (method == "its_list") return call(ItsSearch<W, Its::list>());
  if (method == "its_rebuild") return call(ItsSearch<W, Its::rebuild>());
  if (method == "alias") return call(AliasSearch<W>());
  if (method == "brs") return call(BrsSearch<W, Region::fresh>());
  if (method == "brs_recycled") return call(BrsSearch<W, Region::recycled>());
  if (method == "brs_literal") return call(BrsSearch<W, Region::literal>());
  if (method == "reservoir") return call(ReservoirSearch<W>());
  if (method == "keys") return call(KeySearch<W>());
  throw std::invalid_argument("no way to draw is called '" + method + "' with arity " +
                              std::to_string(arity));
}

}  // namespace dgbench

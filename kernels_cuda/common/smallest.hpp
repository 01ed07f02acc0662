// The k smallest of n keys, ties by ordinal, without sorting: histograms narrow down the largest key
// that is taken, then one pass collects. Linear in n, and the same on every machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dgbench {

constexpr std::uint32_t kNoKey = 0xffffffffu;  // such an ordinal is passed over

// Appends the ordinals in ascending order. key(i) is a uint32; at least k keys differ from kNoKey.
template <class Key>
void smallest(std::int64_t n, std::int64_t k, const Key& key, std::vector<std::int32_t>& out) {
  if (k <= 0) return;
  constexpr int kDigit = 11;
  std::uint32_t low = kNoKey;
  std::uint32_t high = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t found = key(i);
    low = std::min(low, found);
    high = std::max(high, found == kNoKey ? 0u : found);
  }
  std::int64_t left = k;  // to be taken from keys of at least `low`
  std::uint32_t counts[1u << kDigit];
  while (low < high) {
    const std::uint32_t range = high - low;
    int shift = 0;
    while ((range >> shift) >> kDigit) ++shift;
    std::fill_n(counts, 1u << kDigit, 0u);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t from = key(i) - low;
      if (from <= range) ++counts[from >> shift];
    }
    std::uint32_t digit = 0;
    while (static_cast<std::int64_t>(counts[digit]) < left) left -= counts[digit++];
    low += digit << shift;
    high = std::min<std::uint64_t>(high, static_cast<std::uint64_t>(low) + (1ull << shift) - 1);
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t found = key(i);
    if (found < low || (found == low && found != kNoKey && left-- > 0)) {
      out.push_back(static_cast<std::int32_t>(i));
    }
  }
}

}  // namespace dgbench

// Stable parallel counting: where each item goes when items are grouped by a small integer key.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dgbench {

// Groups items 0..count-1 by key, keeping their order inside a group. Every thread counts its own
// stretch of items; the stretches are laid out in order, so the result does not depend on their
// number.
//   key(item) -> group in [0, groups), or -1 to leave the item out
//   place(item, position) writes the item
//   starts[groups + 1] receives the first position of each group
template <class Key, class Place>
void group_by(std::int64_t count, std::int64_t groups, int threads, std::int64_t* starts,
              const Key& key, const Place& place) {
  // A histogram per thread only pays while it is small beside the items.
  const std::int64_t worth = groups > 0 ? 4 * count / groups : 1;
  threads = static_cast<int>(
      std::max<std::int64_t>(1, std::min<std::int64_t>({threads, worth, count / 16384, 64})));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(threads) * groups, 0);
  const auto first = [&](int t) { return count / threads * t + std::min<std::int64_t>(t, count % threads); };
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; ++t) {
    std::int64_t* mine = counts.data() + static_cast<std::int64_t>(t) * groups;
    for (std::int64_t i = first(t); i < first(t + 1); ++i) {
      const std::int64_t g = key(i);
      if (g >= 0) ++mine[g];
    }
  }
  std::int64_t next = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    starts[g] = next;
    for (int t = 0; t < threads; ++t) {
      std::int64_t& slot = counts[static_cast<std::int64_t>(t) * groups + g];
      const std::int64_t here = slot;
      slot = next;
      next += here;
    }
  }
  starts[groups] = next;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; ++t) {
    std::int64_t* mine = counts.data() + static_cast<std::int64_t>(t) * groups;
    for (std::int64_t i = first(t); i < first(t + 1); ++i) {
      const std::int64_t g = key(i);
      if (g >= 0) place(i, mine[g]++);
    }
  }
}

}  // namespace dgbench

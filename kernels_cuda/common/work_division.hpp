// Dividing rows among threads by their cost, not by their number.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dgbench {

// Below this much work starting the threads costs more than it saves.
constexpr std::int64_t kSerialWork = 16384;

inline std::int64_t count_chunks(std::int64_t work, int threads) {
  // Enough chunks to even out speeds, each long enough to hide the cost of fetching it.
  const std::int64_t most = std::max<std::int64_t>(1, work / 4096);
  return threads <= 1 ? 1 : std::min<std::int64_t>(most, static_cast<std::int64_t>(threads) * 24);
}

// Rows that are sorted by length among themselves, one such block after the other: few enough that
// their rows of y are written while they lie in a core's cache, enough for long runs of one length. A
// block is one thread's, as neighbouring rows of y share lines of cache; so there are 64 at least.
constexpr std::int64_t kOrderMost = 4096;
inline std::int64_t order_block(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / 64, 64, kOrderMost);
}

// First row of chunk c: `cost(r)` is the cost of rows [0, r), never falling; cost(rows) = work.
template <class Cost>
std::int64_t chunk_start(std::int64_t rows, std::int64_t work, std::int64_t c, std::int64_t chunks,
                         const Cost& cost) {
  if (c == 0) return 0;
  if (c == chunks) return rows;
  const auto target = static_cast<std::int64_t>(static_cast<double>(work) * c / chunks);
  std::int64_t low = 0;
  std::int64_t high = rows;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (cost(middle) < target) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace dgbench

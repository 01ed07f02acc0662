// Many random words of one stream at a time: Philox4x32-10 over consecutive counters, in lanes that a
// compiler turns into vectors. Word i of a stream is the same however many are asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/philox.hpp"

namespace dgbench {

struct PhiloxStream {
  std::uint32_t k0, k1;        // key
  std::uint32_t c1, c2, c3;    // what the numbers are for; the first counter is the block
};

// Words from block `first` on, 16 bytes a block, in the order of `philox`: even, then odd.
template <class Word>
void philox_words(const PhiloxStream& stream, std::uint32_t first, std::int64_t count, Word* out) {
  constexpr int kLanes = 16;
  constexpr int kPerBlock = 16 / sizeof(Word);
  alignas(64) std::uint32_t c[4][kLanes];
  alignas(64) std::uint32_t words[4 * kLanes];
  for (std::int64_t from = 0; from < count; from += kLanes * kPerBlock, first += kLanes) {
    for (int i = 0; i < kLanes; ++i) {
      c[0][i] = first + static_cast<std::uint32_t>(i);
      c[1][i] = stream.c1;
      c[2][i] = stream.c2;
      c[3][i] = stream.c3;
    }
    std::uint32_t k0 = stream.k0;
    std::uint32_t k1 = stream.k1;
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < kLanes; ++i) {
        const std::uint64_t a = std::uint64_t{0xD2511F53u} * c[0][i];
        const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c[2][i];
        c[0][i] = static_cast<std::uint32_t>(b >> 32) ^ c[1][i] ^ k0;
        c[1][i] = static_cast<std::uint32_t>(b);
        c[2][i] = static_cast<std::uint32_t>(a >> 32) ^ c[3][i] ^ k1;
        c[3][i] = static_cast<std::uint32_t>(a);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < kLanes; ++i) {
      for (int j = 0; j < 4; ++j) words[4 * i + j] = c[j][i];
    }
    const std::int64_t here = std::min<std::int64_t>(count - from, kLanes * kPerBlock);
    std::memcpy(out + from, words, static_cast<std::size_t>(here) * sizeof(Word));
  }
}

}  // namespace dgbench

// Random numbers by counter: Philox4x32-10 (Salmon et al., SC 2011). A number depends on what it is
// drawn for and on nothing else, so a sample is the same for any number of threads, ranks or lanes.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

// High half of a product.
DGB_HD uint64_t mul_high(uint64_t a, uint64_t b) {
#if DGB_ON_DEVICE
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

// A draw of 64 random bits as a number in [0, n).
DGB_HD uint64_t below(uint64_t draw, uint64_t n) { return mul_high(draw, n); }

struct Draws {  // the two draws of one call
  uint64_t even;
  uint64_t odd;
};

// Ten rounds over the counter (c0, c1, c2, c3) with the key (k0, k1).
DGB_HD Draws philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c0;
    const uint64_t b = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0 | uint64_t{c1} << 32, c2 | uint64_t{c3} << 32};
}

// What the numbers of one sampling call have in common; roots differ by their position.
struct DrawKey {
  uint32_t seed_low;
  uint32_t seed_high;
  uint32_t purpose;  // hop << 16 | snapshot << 24
  uint32_t draw;     // ordinal of the sampling call
};

DGB_HD DrawKey draw_key(uint64_t seed, uint32_t hop, uint32_t snapshot, uint32_t draw) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
          hop << 16 | snapshot << 24, draw};
}

// Draws 2j and 2j + 1 of a root, j < 2^16.
DGB_HD Draws draws_of(const DrawKey& key, uint64_t position, uint32_t j) {
  return philox(j | key.purpose, static_cast<uint32_t>(position),
                static_cast<uint32_t>(position >> 32), key.draw, key.seed_low, key.seed_high);
}

}  // namespace dgbench

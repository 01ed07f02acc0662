// The passes over groups of 32 items that `weighted/cpu_keys.cpp` is made of.
#pragma once

#include <cstdint>

#include "weighted/cpu_lanes.hpp"

namespace dgbench {

#if defined(DGBENCH_KEY_LANES)

constexpr int kVectors = kGroup / Lanes::count;

// What the first three rounds of philox share for all blocks of a stream. Only the counter's lowest
// word differs between blocks (fewer than 2^32 items), and it takes three rounds to reach every
// word.
struct Rounds {
  Lanes::U m0, m1, first_c2, second_c0, second_c2, third_c2, k0[10], k1[10];

  explicit Rounds(const KeyStream& s) {
    using L = Lanes;
    constexpr uint64_t kLow = 0xffffffffu;
    auto low_key = static_cast<uint32_t>(s.seed);
    auto high_key = static_cast<uint32_t>(s.seed >> 32) ^ kKeyPurpose;
    uint64_t key0[10], key1[10];
    for (int round = 0; round < 10; ++round) {
      k0[round] = L::wide(key0[round] = low_key);
      k1[round] = L::wide(key1[round] = high_key);
      low_key += 0x9E3779B9u;
      high_key += 0xBB67AE85u;
    }
    m0 = L::wide(0xD2511F53u);
    m1 = L::wide(0xCD9E8D57u);
    const uint64_t b = uint64_t{0xCD9E8D57u} * (s.stream & kLow);
    const uint64_t a = uint64_t{0xD2511F53u} * ((b >> 32) ^ key0[0]);
    first_c2 = L::wide((s.stream >> 32) ^ key1[0]);
    second_c0 = L::wide((b & kLow) ^ key0[1]);
    second_c2 = L::wide((a >> 32) ^ key1[1]);
    third_c2 = L::wide((a & kLow) ^ key1[2]);
  }
};

// Random numbers of a group: ten rounds of philox over 8 blocks, each word in the lower half of 64
// bits; what stands above it is never read.
inline void group_bits(const Rounds& r, uint64_t first, Lanes::U out[kVectors]) {
  using L = Lanes;
  constexpr int kChains = kVectors / 2;
  L::U c0[kChains], c1[kChains], c2[kChains], c3[kChains];
  for (int x = 0; x < kChains; ++x) {
    const L::U counter = L::add_wide(L::wide(first / 4 + x * L::count / 2), L::ramp());
    const L::U a1 = L::multiply_low(counter, r.m0);
    const L::U b2 = L::multiply_low(L::exclusive(L::high(a1), r.first_c2), r.m1);
    const L::U a3 = L::multiply_low(L::exclusive(L::high(b2), r.second_c0), r.m0);
    const L::U b3 = L::multiply_low(L::exclusive(a1, r.second_c2), r.m1);
    c0[x] = L::exclusive(L::exclusive(L::high(b3), b2), r.k0[2]);
    c1[x] = b3;
    c2[x] = L::exclusive(L::high(a3), r.third_c2);
    c3[x] = a3;
  }
#pragma GCC unroll 7
  for (int round = 3; round < 10; ++round) {
    for (int x = 0; x < kChains; ++x) {
      const L::U a = L::multiply_low(c0[x], r.m0);
      const L::U b = L::multiply_low(c2[x], r.m1);
      c0[x] = L::exclusive(L::exclusive(L::high(b), c1[x]), r.k0[round]);
      c1[x] = b;
      c2[x] = L::exclusive(L::exclusive(L::high(a), c3[x]), r.k1[round]);
      c3[x] = a;
    }
  }
  for (int x = 0; x < kChains; ++x) L::in_order(c0[x], c1[x], c2[x], c3[x], out + 2 * x);
}

// exponential_of, lane by lane.
inline Lanes::F exponentials(Lanes::U bits) {
  using L = Lanes;
  const L::U y = L::shift_right_1(bits);
  const L::F gap = L::fma(L::number(y), L::set(-0x1p-31f), L::set(-0x1p-32f));
  const L::U u = L::bits(L::add(L::number(L::sub(L::set(0x7fffffffu), y)), L::set(0.5f)));
  const L::U e = L::exponent(L::sub(u, L::set(kSqrtHalf)));
  const L::F near = L::sub(L::from_bits(L::sub(u, L::to_exponent(e))), L::set(1.0f));
  const L::U halvings = L::sub(L::set(31u), e);
  const L::F z = L::choose(L::equal(halvings, L::set(0u)), gap, near);
  L::F p = L::set(kLog[0]);
  for (int c = 1; c < 10; ++c) p = L::fma(p, z, L::set(kLog[c]));
  const L::F log = L::fma(p, L::mul(z, z), z);
  return L::fma_minus(L::number(halvings), L::set(kLn2), log);
}

// Keys of the whole group that begins at `first`; `odd` is set where a weight is odd.
template <class W>
inline void group_keys(const KeyStream& s, const Rounds& rounds, int64_t first, const W* weights,
                       Lanes::F keys[kVectors], bool& odd) {
  using L = Lanes;
  L::U bits[kVectors];
  group_bits(rounds, static_cast<uint64_t>(first), bits);
  L::F e[kVectors];
  L::U least = bits[0];
  for (int v = 0; v < kVectors; ++v) {
    e[v] = exponentials(bits[v]);
    least = L::least(least, bits[v]);
  }
  if (L::any(L::below(L::shift_right_1(least), L::set(uint32_t{kCoarse})))) {
    alignas(64) float fixed[kGroup];
    for (int v = 0; v < kVectors; ++v) L::store(fixed + v * L::count, e[v]);
    for (int j = 0; j < kGroup; ++j) {
      if (fixed[j] < kCoarse * 0x1p-31f) fixed[j] = item_exponential(s.seed, s.stream, first + j);
    }
    for (int v = 0; v < kVectors; ++v) e[v] = L::load(fixed + v * L::count);
  }
  for (int v = 0; v < kVectors; ++v) {
    const W* const here = weights + first + v * L::count;
    L::F w = L::load(here);
    const unsigned plain = L::between(L::set(kMinWeight), w, L::set(kMaxWeight));
    if (plain != (1u << L::count) - 1) {
      odd |= (L::nonzero(here) & ~plain) != 0;
      w = L::add(w, L::set(0.0f));  // -0 becomes 0, whose key is +infinity
    }
    keys[v] = L::div(e[v], w);
  }
}

#endif

// What a pass over a run of items finds: a bit for each key below `low`, and key and place of those
// in [low, high], next to each other. Keys of items without weight are infinite, above every
// `high`.
struct Band {
  float low;
  float high;
};

// Items first .. last - 1, first a multiple of kGroup. `below` has a bit per item from bit 0 of
// byte first / 8; `keys` and `places` have room for last - first + 16. Returns how many are in the
// band.
template <class W>
int64_t band_of(KeyStream s, Band band, const W* weights, int64_t first, int64_t last,
                uint8_t* below, float* keys, uint32_t* places, bool& odd) {
  int64_t found = 0;
  int64_t i = first;
#if defined(DGBENCH_KEY_LANES)
  using L = Lanes;
  const L::F low = L::set(band.low);
  const L::F high = L::set(band.high);
  const Rounds rounds(s);
  alignas(64) uint32_t ramp[L::count];
  for (int j = 0; j < L::count; ++j) ramp[j] = static_cast<uint32_t>(j);
  for (; i + kGroup <= last; i += kGroup) {
    L::F group[kVectors];
    group_keys(s, rounds, i, weights, group, odd);
    uint32_t bits = 0;
    for (int v = 0; v < kVectors; ++v) {
      const unsigned less = L::less(group[v], low);
      const unsigned here = L::at_most(group[v], high) & ~less;
      bits |= less << v * L::count;
      L::pack(keys + found, here, group[v]);
      L::pack(places + found, here, L::plus(static_cast<uint32_t>(i + v * L::count), ramp));
      found += __builtin_popcount(here);
    }
    __builtin_memcpy(below + i / 8, &bits, sizeof bits);
  }
#endif
  for (; i < last; i += kGroup) {
    float group[kGroup];
    const int count = static_cast<int>(last - i < kGroup ? last - i : kGroup);
    keys_one_by_one(s, i, count, weights, group, odd);
    uint32_t bits = 0;
    for (int j = 0; j < count; ++j) {
      if (group[j] < band.low) {
        bits |= 1u << j;
      } else if (group[j] <= band.high) {
        keys[found] = group[j];
        places[found++] = static_cast<uint32_t>(i + j);
      }
    }
    __builtin_memcpy(below + i / 8, &bits, sizeof bits);
  }
  return found;
}

// Numbers of the bits of `flags`, rising; bit 0 of the first byte is item 0. Stops after `count`.
inline void places_of(const uint8_t* flags, int64_t first_byte, int64_t last_byte, int64_t* out,
                      [[maybe_unused]] int64_t count) {
  int64_t done = 0;
  int64_t byte = first_byte;
#if defined(DGBENCH_KEY_LANES)
  for (; byte < last_byte && done + 8 <= count; ++byte) {
    Lanes::write_places(out + done, flags[byte], byte * 8);
    done += __builtin_popcount(flags[byte]);
  }
#endif
  for (; byte < last_byte; ++byte) {
    for (unsigned bits = flags[byte]; bits; bits &= bits - 1) {
      out[done++] = byte * 8 + __builtin_ctz(bits);
    }
  }
}

}  // namespace dgbench

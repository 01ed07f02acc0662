// Weighted draws, one step at a time, for CPU and CUDA: a number below the total of the weights,
// the way down a tree of sums and back up, an alias table's answer, a search around a region, and
// the key of an item whose k smallest are a draw without replacement.
//
// A heap has arity A (2, 4, 8, ..) and P = A^height leaves at least as many as there are weights,
// padded with zeros. The sums of level d (the root is level 0 and has one node) lie behind those of
// level d - 1, so that the A children of a node are neighbours in memory: node j of level d has the
// children j A .. j A + A - 1 of level d + 1. With A = 2 this is the implicit heap s[1 .. 2P - 1],
// moved by one.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/host_device.hpp"
#include "common/philox.hpp"

namespace dgbench {

// --- Numbers -------------------------------------------------------------------------------------

// 64 random bits as a number in [0, 1).
DGB_HD double unit_of(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// 64 random bits as a number in [0, total), for total > 0. The product of a double rounds to less
// than the total: 1 - 2^-53 times it lies at least half a step below.
DGB_HD int64_t scale_bits(uint64_t bits, int64_t total) {
  return static_cast<int64_t>(below(bits, static_cast<uint64_t>(total)));
}
DGB_HD double scale_bits(uint64_t bits, double total) { return unit_of(bits) * total; }

// --- A tree of sums ------------------------------------------------------------------------------

// Which of a node's A children holds `g` in [0, node's sum), and `g` counted from that child's
// start: the first whose running sum is above `g`, so never one without weight. Where rounding
// leaves `g` at or above the last running sum, it is the last child with weight.
template <int A, class W>
DGB_HD int choose_child(const W* children, W& g) {
  W sum = 0;
  W start = 0;
  int passed = 0;
  for (int c = 0; c < A; ++c) {
    sum += children[c];
    const bool pass = sum <= g;
    passed += pass;
    start = pass ? sum : start;
  }
  if (passed == A) {
    do --passed;
    while (passed > 0 && !(children[passed] > W(0)));
    start = sum - children[passed];
    if (start > g) start = g;
  }
  g -= start;
  return passed;
}

template <int A, class W>
DGB_HD int64_t choose(const W* children, W& g) {
  if constexpr (A > 2) return choose_child<A>(children, g);
  const bool right = g >= children[0] && children[1] > W(0);
  g -= right ? children[0] : W(0);
  return right;
}

// The leaf that holds `g` in [0, root's sum).
template <int A, class W>
DGB_HD int64_t descend(const W* heap, int height, W g) {
  const W* level = heap;  // children of the level that we stand on begin behind it
  int64_t node = 0;
  int64_t width = 1;
  for (int d = 0; d < height; ++d) {
    level += width;
    width *= A;
    node = node * A + choose<A>(level + node * A, g);
  }
  return node;
}

// The sum of A neighbours, in pairs: the same order for everybody.
template <int A, class W>
DGB_HD W sum_of_children(const W* children) {
  if constexpr (A == 2) {
    return children[0] + children[1];
  } else {
    return sum_of_children<A / 2>(children) + sum_of_children<A / 2>(children + A / 2);
  }
}

// Where the leaves of a heap begin, which is also the number of its inner nodes.
template <int A>
DGB_HD int64_t first_leaf(int height) {
  int64_t inner = 0;
  for (int64_t width = 1; height > 0; --height, width *= A) inner += width;
  return inner;
}

// Sets a leaf and adds up every node above it anew. Nothing is subtracted: a subtree whose leaves
// are all zero sums to exactly zero, whatever was rounded before.
template <int A, class W>
DGB_HD void bump(W* heap, int height, int64_t leaf, W weight) {
  W* level = heap + first_leaf<A>(height);
  int64_t width = 1;
  for (int d = 0; d < height; ++d) width *= A;
  level[leaf] = weight;
  for (int d = height; d > 0; --d) {
    W* const above = level - width / A;
    leaf /= A;
    above[leaf] = sum_of_children<A>(level + leaf * A);
    level = above;
    width /= A;
  }
}

// The same for integers, where differences are exact and no level waits for the one below it.
template <int A>
DGB_HD void bump_by(int64_t* heap, int height, int64_t leaf, int64_t difference) {
  int64_t* level = heap + first_leaf<A>(height);
  int64_t width = 1;
  for (int d = 0; d < height; ++d) width *= A;
  for (int d = height; d >= 0; --d) {
    level[leaf] += difference;
    leaf /= A;
    width /= A;
    level -= width;
  }
}

// --- Prefix sums ---------------------------------------------------------------------------------

// First place of the rising `sums` (inclusive prefix sums) that is above `g`: never one of weight
// zero. `g` must be below the last sum. Halves n a fixed number of times, without branches.
template <class W>
DGB_HD int64_t first_above(const W* sums, int64_t n, W g) {
  const W* base = sums;
  while (n > 1) {
    const int64_t half = n / 2;
    base += base[half - 1] <= g ? half : 0;
    n -= half;
  }
  return base - sums;
}

// A number of what is left when the region [low, low + size) is cut out, put back where it was.
template <class W>
DGB_HD W around_region(W y, W low, W size) {
  return y < low ? y : y + size;
}

// --- Alias tables --------------------------------------------------------------------------------

// Column i answers i with probability keep[i] and other[i] else. One draw serves for both choices:
// the product's high half is the column, its low half what is left over of the number.
DGB_HD int64_t alias_answer(const double* keep, const int64_t* other, int64_t n, uint64_t bits) {
  const auto column = static_cast<int64_t>(below(bits, static_cast<uint64_t>(n)));
  const uint64_t rest = bits * static_cast<uint64_t>(n);
  return unit_of(rest) < keep[column] ? column : other[column];
}

// --- Keys ----------------------------------------------------------------------------------------
//
// Item i of a stream has word i % 4 of philox block i / 4, so four neighbours share one call. Sums
// and products are spelled as fused ones: every machine and device has the same keys, to the bit.

constexpr uint32_t kKeyPurpose = 0x4b455953u;  // apart from the numbers of other operators

// Block i / 4 of the numbers of a stream; `again` gives a second, independent one.
DGB_HD Draws key_block(uint64_t seed, uint64_t stream, uint64_t block, bool again) {
  return philox(static_cast<uint32_t>(block),
                static_cast<uint32_t>(block >> 32) | (again ? 0x80000000u : 0u),
                static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32),
                static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32) ^ kKeyPurpose);
}

DGB_HD uint32_t key_word(const Draws& block, uint64_t item) {
  const uint64_t half = item & 2 ? block.odd : block.even;
  return static_cast<uint32_t>(item & 1 ? half >> 32 : half);
}

DGB_HD float bits_as_float(uint32_t bits) {
#if DGB_ON_DEVICE
  return __uint_as_float(bits);
#else
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

DGB_HD uint32_t float_as_bits(float value) {
#if DGB_ON_DEVICE
  return __float_as_uint(value);
#else
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

// Coefficients of ln(1 + z) = z + z^2 p(z), the highest power first (Cephes, logf).
// A macro, because code on a device cannot read an array of the host.
#define DGB_LOG_TERMS                                                                             \
  7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,     \
      -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f, -0.5f
constexpr float kLog[10] = {DGB_LOG_TERMS};
constexpr float kLn2 = 0.69314718056f;
constexpr uint32_t kSqrtHalf = 0x3f3504f3u;  // bits of the float next to sqrt(1/2)
constexpr int32_t kCoarse = 256;

// -ln u for u in (0, 1), from 31 of 32 random bits. Small values decide who is drawn and come from
// u next to 1, where 1 - u must not be rounded: with y = bits >> 1 it is (y + 1/2) 2^-31, and it is
// taken from the integer. Where y < kCoarse that is too coarse still for weights that differ by
// 2^31, and `fine_exponential` has 32 bits more. Relative error below 3e-7.
DGB_HD float exponential_of(uint32_t bits) {
  const auto y = static_cast<int32_t>(bits >> 1);
  const float gap = fmaf(static_cast<float>(y), -0x1p-31f, -0x1p-32f);
  const uint32_t u = float_as_bits(static_cast<float>(0x7fffffff - y) + 0.5f);
  const int32_t e = static_cast<int32_t>(u - kSqrtHalf) >> 23;  // u = 2^e (1 + z), z in [-.3, .42]
  const float near = bits_as_float(u - (static_cast<uint32_t>(e) << 23)) - 1.0f;
  const float z = e == 31 ? gap : near;
  const float terms[10] = {DGB_LOG_TERMS};
  float p = terms[0];
  for (int c = 1; c < 10; ++c) p = fmaf(p, z, terms[c]);
  return fmaf(static_cast<float>(31 - e), kLn2, -fmaf(p, z * z, z));
}

// The same where y = bits >> 1 is below kCoarse.
DGB_HD float fine_exponential(uint32_t bits, uint32_t more) {
  const float low = (static_cast<float>(more) + 0.5f) * 0x1p-32f;
  return (static_cast<float>(bits >> 1) + low) * 0x1p-31f;
}

DGB_HD bool is_coarse(uint32_t bits) { return bits < 2u * kCoarse; }

// Key of an item: the k smallest are a draw of k without replacement, in the order of their keys,
// each in proportion to the weights that are left. Infinite without weight, and then never taken.
DGB_HD float key_of(float exponential, float weight) {
  return weight > 0.0f ? exponential / weight : bits_as_float(0x7f800000u);
}

// All of it for one item of weight in [kMinWeight, kMaxWeight] or 0; between these bounds no key
// is rounded to zero or infinity.
constexpr float kMinWeight = 0x1p-60f;
constexpr float kMaxWeight = 0x1p60f;

DGB_HD float item_exponential(uint64_t seed, uint64_t stream, uint64_t item) {
  const uint32_t bits = key_word(key_block(seed, stream, item / 4, false), item);
  if (!is_coarse(bits)) return exponential_of(bits);
  return fine_exponential(bits, key_word(key_block(seed, stream, item / 4, true), item));
}

DGB_HD float item_key(uint64_t seed, uint64_t stream, uint64_t item, float weight) {
  return key_of(item_exponential(seed, stream, item), weight);
}

}  // namespace dgbench

// The draws of the rank-copy generator: random numbers, lags, ranks, arrival times.
//
// Every function here is pure and neutral between host and device. The results decide which edges
// a synthetic twin has, so they must be the same bits everywhere: only + - * / and floor are used
// on doubles (all exactly rounded by IEEE 754), never libm, and whatever includes this file is
// compiled without fused multiply-add (-ffp-contract=off, nvcc: -fmad=false).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/host_device.hpp"

namespace dgbench {
namespace twins {

// What each random number of an event is used for. The numbers are part of the twin's definition:
// changing one changes every edge list.
enum Slot : uint32_t {
  kSide = 0,        // which endpoint the arriving vertex of a one-pool graph takes
  kRepeat = 1,      // copy a whole pair?
  kRepeatLag = 2,   // +0 old or recent, +1 how far back
  kReply = 4,       // answer an earlier event?
  kMix = 5,         // leave the source's block?
  kLoop = 6,        // self loop?
  kSource = 8,      // +0 remember or rank, +1 old, +2 lag, +3 rank
  kReplyLag = 16,   // two for each of the tries
  kTarget = 64,     // 64 for each attempt: +0 remember or rank, +1 old, +2 lag, +3 rank, +8.. block
};  // from 2^20 on: times and groups, see kernels_cuda/twins/op.py
constexpr uint32_t kTargetStride = 64;
constexpr int kReplyTries = 8;
constexpr int kBlockTries = 16;

DGB_HD uint64_t mix64(uint64_t x) {  // finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

DGB_HD uint64_t seed_key(uint64_t seed) { return mix64(seed + kGolden); }
DGB_HD uint64_t event_key(uint64_t seed_key_, uint64_t event) {
  return mix64(seed_key_ + kGolden * (event + 1));
}

// One number in [0, 1) with 53 bits from a seed, an event and a slot.
DGB_HD double uniform(uint64_t event_key_, uint32_t slot) {
  const uint64_t bits = mix64(event_key_ + kGolden * (static_cast<uint64_t>(slot) + 1));
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// log2 of a positive normal double, relative error below 1e-15 away from 1.
DGB_HD double log2_exact(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  // The mantissa is brought to [sqrt(1/2), sqrt(2)) so that the series below stays short.
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull;
  if (bits > 0x3ff6a09e667f3bcdull) {
    bits -= 0x0010000000000000ull;
    exponent += 1;
  }
  double m;
  memcpy(&m, &bits, sizeof m);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;  // log m = 2 artanh s
  double p = 1.0 / 21;
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  p = p * z + 1.0;
  return static_cast<double>(exponent) + 2.8853900817779268147 * (s * p);
}

// 2^x for |x| < 1000, relative error below 1e-15.
DGB_HD double exp2_exact(double x) {
  const double n = floor(x + 0.5);
  const double f = (x - n) * 0.69314718055994530942;
  double p = 1.0 / 6227020800.0;
  p = p * f + 1.0 / 479001600.0;
  p = p * f + 1.0 / 39916800.0;
  p = p * f + 1.0 / 3628800.0;
  p = p * f + 1.0 / 362880.0;
  p = p * f + 1.0 / 40320.0;
  p = p * f + 1.0 / 5040.0;
  p = p * f + 1.0 / 720.0;
  p = p * f + 1.0 / 120.0;
  p = p * f + 1.0 / 24.0;
  p = p * f + 1.0 / 6.0;
  p = p * f + 0.5;
  p = p * f + 1.0;
  p = p * f + 1.0;
  const uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
  double scale;
  memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}

DGB_HD double pow_exact(double base, double exponent) {
  return exp2_exact(exponent * log2_exact(base));
}

// How far back event k looks: 1..k. With `old` below phi evenly over the whole past, otherwise
// log-uniformly over the last min(reach, k) events; log2_reach = log2(min(reach, k)).
DGB_HD int64_t lag(double old, double u, double phi, int64_t k, int64_t reach,
                        double log2_reach) {
  if (old < phi) {
    const int64_t back = 1 + static_cast<int64_t>(u * static_cast<double>(k));
    return back < k ? back : k;
  }
  const int64_t most = reach < k ? reach : k;
  const int64_t back = static_cast<int64_t>(exp2_exact(u * log2_reach));
  return back < 1 ? 1 : (back < most ? back : most);
}

// Zipf-Mandelbrot ranks, density (x + q)^-s over [0, A), by the closed inverse. Written in units
// of q so that nothing cancels when q is large against A or s is far from 1.
struct RankLaw {
  double s, q;
  double e, inv_e;  // 1 - s and its inverse; e = 0 selects the logarithmic form

  static DGB_HD RankLaw make(double s, double q) {
    double e = 1.0 - s;
    if (e > -1e-9 && e < 1e-9) e = 0.0;
    return {s, q, e, e == 0.0 ? 0.0 : 1.0 / e};
  }

  // What depends on the number of vertices only; worth keeping while that does not change.
  DGB_HD double span(int64_t vertices) const {
    const double l = log2_exact(1.0 + static_cast<double>(vertices) / q);
    return e == 0.0 ? l : exp2_exact(e * l) - 1.0;
  }

  DGB_HD int64_t draw(double u, int64_t vertices, double span_) const {
    const double y = e == 0.0 ? exp2_exact(u * span_)
                              : exp2_exact(inv_e * log2_exact(1.0 + u * span_));
    const int64_t x = static_cast<int64_t>(q * (y - 1.0));
    return x < 0 ? 0 : (x < vertices ? x : vertices - 1);
  }
};

// When vertex j of N arrives: the first event by which N (k/E)^beta vertices are due, at most one
// vertex an event, and never so late that some would be left over.
struct Arrivals {
  int64_t total = 0, events = 0, count = 0, due = 0;
  double inv_beta = 1.0;

  DGB_HD void start(int64_t total_, int64_t events_, double beta, int64_t at_once) {
    total = total_;
    events = events_;
    inv_beta = 1.0 / beta;
    count = at_once - 1;
    due = 0;
  }

  DGB_HD bool arrives(int64_t k) const { return count < total && k == due; }

  DGB_HD void advance() {  // the vertex that was due has been placed
    const int64_t now = due;
    count += 1;
    if (count >= total) return;
    const double share = static_cast<double>(count) / static_cast<double>(total);
    int64_t next = static_cast<int64_t>(static_cast<double>(events) * pow_exact(share, inv_beta));
    if (next <= now) next = now + 1;
    const int64_t latest = events - (total - count);
    due = next < latest ? next : latest;
  }
};

}  // namespace twins
}  // namespace dgbench

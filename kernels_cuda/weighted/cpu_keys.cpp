// Draws by keys; see weighted/cpu_keys.hpp.
//
// The k-th smallest key is where the sampled one is, give or take four standard deviations of a
// sample's quantile; so a pass needs no second look at all but z n / sqrt(s) keys. With a sample of
// (z n / 2)^(2/3) / 2, 8 K of a million, sample and band cost about the same. A sample that
// misleads costs a second pass and never changes the answer.
#include "weighted/cpu_keys.hpp"

#include <omp.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <utility>
#include <vector>

#include "weighted/cpu_group.hpp"

namespace dgbench {
namespace {

constexpr int64_t kChunk = 1 << 16;    // items of one thread's turn
constexpr int64_t kRoom = 16;          // what a vector may write behind a chunk's band
constexpr int64_t kDirect = 1 << 13;   // so many items need no sample
constexpr double kDeviations = 4.0;

// Memory of a thread that calls: fresh pages would cost as much as the keys.
struct Scratch {
  std::vector<uint8_t> below;
  std::vector<float> keys;
  std::vector<uint32_t> places;
  std::vector<uint64_t> band;
  std::vector<float> sample;
  std::vector<uint32_t> few;
};

// Keys are not negative, so their bits order as they do; places order ties.
uint64_t ordered(float key, uint32_t place) { return uint64_t{float_as_bits(key)} << 32 | place; }

// Where the k-th smallest key lies, by the keys of groups at random places of equal strata.
template <class W>
Band guess(const KeyStream& s, const W* weights, int64_t n, int64_t k, std::vector<float>& sample,
           bool& odd) {
  const int64_t groups = n / kGroup;
  const double wanted = std::pow(kDeviations / 2 * static_cast<double>(n), 2.0 / 3.0) / 2;
  const int64_t taken = std::min(groups / 2, static_cast<int64_t>(wanted / kGroup) + 1);
  sample.resize(static_cast<std::size_t>(taken * kGroup));
  uint64_t state = s.seed ^ s.stream * 0x9E3779B97F4A7C15u;
#if defined(DGBENCH_KEY_LANES)
  const Rounds rounds(s);
#endif
  for (int64_t g = 0; g < taken; ++g) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const int64_t start = g * groups / taken;
    const int64_t stop = (g + 1) * groups / taken;
    const int64_t group = start + static_cast<int64_t>(below(state, stop - start));
#if defined(DGBENCH_KEY_LANES)
    Lanes::F keys[kVectors];
    group_keys(s, rounds, group * kGroup, weights, keys, odd);
    for (int v = 0; v < kVectors; ++v) {
      Lanes::store(sample.data() + g * kGroup + v * Lanes::count, keys[v]);
    }
#else
    keys_one_by_one(s, group * kGroup, kGroup, weights, sample.data() + g * kGroup, odd);
#endif
  }
  const auto size = static_cast<double>(sample.size());
  const double share = static_cast<double>(k) / static_cast<double>(n);
  const double margin = kDeviations * std::sqrt(size * share * (1 - share)) + 4;
  const auto from = static_cast<int64_t>(size * share - margin);
  const auto to = static_cast<int64_t>(size * share + margin);
  Band band{0.0f, FLT_MAX};
  auto lower = sample.begin();
  if (from > 0) {
    lower += from;
    std::nth_element(sample.begin(), lower, sample.end());
    band.low = std::min(*lower, FLT_MAX);
  }
  if (to < static_cast<int64_t>(sample.size())) {
    const auto upper = sample.begin() + to;
    std::nth_element(lower, upper, sample.end());
    band.high = std::min(*upper, FLT_MAX);
  }
  return band;
}

// Flags the `count` least of the candidates, which stand in the order of their places: by digits of
// the keys' bits, highest first, without a branch that depends on them. Of equal keys the first
// ones win.
void take_least(std::vector<uint64_t>& candidates, int64_t count, Band range, uint8_t* flags) {
  constexpr int kDigit = 10;
  constexpr std::size_t kFew = 24;
  const auto flag = [flags](uint64_t candidate, uint64_t yes) {
    const uint64_t place = candidate & 0xffffffffu;
    flags[place / 8] |= static_cast<uint8_t>(yes << place % 8);
  };
  uint64_t low = float_as_bits(range.low);
  uint64_t high = float_as_bits(range.high);
  const auto all = static_cast<std::size_t>(count) == candidates.size();
  while (candidates.size() > kFew && low < high && !all) {
    const int width = 64 - __builtin_clzll(high - low);
    const int shift = std::max(0, width - kDigit);
    int64_t sizes[1 << kDigit] = {};
    for (const uint64_t c : candidates) sizes[((c >> 32) - low) >> shift]++;
    uint64_t digit = 0;
    while (sizes[digit] < count) count -= sizes[digit++];
    std::size_t kept = 0;
    for (const uint64_t c : candidates) {
      const uint64_t own = ((c >> 32) - low) >> shift;
      flag(c, own < digit);
      candidates[kept] = c;
      kept += own == digit;
    }
    candidates.resize(kept);
    low += digit << shift;
    high = std::min(high, low + (uint64_t{1} << shift) - 1);
  }
  if (!all) std::sort(candidates.begin(), candidates.end());
  for (int64_t j = 0; j < count; ++j) flag(candidates[j], 1);
}

// Of a few items: all keys, the k-th smallest of them by digits of their bits between the least and
// the largest, and the places of those below it, in one pass without a branch that depends on them.
// Of equal keys the first ones win. `keys` and `places` are of items with weight, in order.
void write_few(const float* keys, const uint32_t* places, int64_t found, int64_t k,
               std::vector<uint32_t>& candidates, int64_t* out) {
  constexpr int kDigit = 10;
  constexpr std::size_t kSorted = 24;
  candidates.resize(static_cast<std::size_t>(found));
  uint32_t low = ~uint32_t{0};
  uint32_t high = 0;
  for (int64_t j = 0; j < found; ++j) {
    const uint32_t bits = float_as_bits(keys[j]);  // of a number from 0 on: ordered as the number
    candidates[j] = bits;
    low = std::min(low, bits);
    high = std::max(high, bits);
  }
  int64_t rank = k;  // of the bound among the candidates, from 1 on
  while (candidates.size() > kSorted && low < high) {
    const int shift = std::max(0, 32 - __builtin_clz(high - low) - kDigit);
    int32_t sizes[1 << kDigit] = {};
    for (const uint32_t c : candidates) sizes[(c - low) >> shift]++;
    uint32_t digit = 0;
    while (sizes[digit] < rank) rank -= sizes[digit++];
    std::size_t kept = 0;
    for (const uint32_t c : candidates) {
      candidates[kept] = c;
      kept += (c - low) >> shift == digit;
    }
    candidates.resize(kept);
    low += digit << shift;
    high = std::min(high, low + (uint32_t{1} << shift) - 1);
  }
  std::sort(candidates.begin(), candidates.end());
  const uint32_t bound = candidates[static_cast<std::size_t>(rank - 1)];
  int64_t equal = 0;  // keys of the bound that are among the k
  for (int64_t j = rank - 1; j >= 0 && candidates[static_cast<std::size_t>(j)] == bound; --j) ++equal;
  int64_t done = 0;
  for (int64_t j = 0; j < found && done < k; ++j) {
    const uint32_t bits = float_as_bits(keys[j]);
    const bool same = bits == bound;
    out[done] = places[j];
    done += (bits < bound) | (same & (equal > 0));
    equal -= same;
  }
}

struct BandCounts {
  int64_t below;
  int64_t within;
};

// One pass over all items. Afterwards `scratch.band` holds the band and `scratch.below` the flags.
template <class W>
BandCounts pass(const KeyStream& s, Band band, const W* weights, int64_t n, int threads,
           Scratch& scratch, bool& odd) {
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  std::vector<int64_t> within(static_cast<std::size_t>(chunks));
  std::vector<int64_t> below(static_cast<std::size_t>(chunks));
  bool any_odd = false;
  const int64_t stride = std::min(kChunk, n) + kRoom;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1) \
    reduction(|| : any_odd)
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t first = c * kChunk;
    const int64_t last = std::min(first + kChunk, n);
    bool here = false;
    within[c] = band_of(s, band, weights, first, last, scratch.below.data(),
                        scratch.keys.data() + c * stride, scratch.places.data() + c * stride, here);
    any_odd = any_odd || here;
    int64_t count = 0;
    for (int64_t word = first / 64; word < (last + 63) / 64; ++word) {
      uint64_t bits;
      __builtin_memcpy(&bits, scratch.below.data() + word * 8, sizeof bits);
      count += __builtin_popcountll(bits);
    }
    below[c] = count;
  }
  odd |= any_odd;
  BandCounts all{0, 0};
  scratch.band.clear();
  for (int64_t c = 0; c < chunks; ++c) {
    all.below += below[c];
    all.within += within[c];
    for (int64_t j = c * stride; j < c * stride + within[c]; ++j) {
      scratch.band.push_back(ordered(scratch.keys[j], scratch.places[j]));
    }
  }
  return all;
}

void write_down(const std::vector<uint8_t>& flags, int64_t n, int threads, int64_t* out) {
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  std::vector<int64_t> begins(static_cast<std::size_t>(chunks) + 1, 0);
  for (int64_t c = 0; c < chunks; ++c) {
    int64_t count = 0;
    const int64_t stop = (std::min((c + 1) * kChunk, n) + 63) / 64;
    for (int64_t word = c * kChunk / 64; word < stop; ++word) {
      uint64_t bits;
      __builtin_memcpy(&bits, flags.data() + word * 8, sizeof bits);
      count += __builtin_popcountll(bits);
    }
    begins[c + 1] = begins[c] + count;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t stop = (std::min((c + 1) * kChunk, n) + 7) / 8;
    places_of(flags.data(), c * kChunk / 8, stop, out + begins[c], begins[c + 1] - begins[c]);
  }
}

}  // namespace

template <class W>
KeyDraw draw_by_keys(const W* weights, int64_t n, int64_t k, uint64_t seed, uint64_t stream,
                     int threads, int64_t* out) {
  static thread_local Scratch scratch;
  KeyDraw result;
  const KeyStream s{seed, stream};
  threads = std::max(1, n >= 2 * kChunk ? threads : 1);
  const int64_t chunks = (n + kChunk - 1) / kChunk;
  const auto room = static_cast<std::size_t>(chunks * (std::min(kChunk, n) + kRoom));
  // Each by its own size: where there was no memory for the second, the first has grown already.
  if (scratch.keys.size() < room) scratch.keys.resize(room);
  if (scratch.places.size() < room) scratch.places.resize(room);
  const auto bytes = static_cast<std::size_t>((n + 63) / 64 * 8);
  if (scratch.below.size() < bytes) scratch.below.resize(bytes);
  std::fill_n(scratch.below.begin() + (bytes - 8), 8, uint8_t{0});
  Band band{0.0f, FLT_MAX};
  if (n <= kDirect) {
    const int64_t found = band_of(s, band, weights, 0, n, scratch.below.data(), scratch.keys.data(),
                                  scratch.places.data(), result.odd);
    result.keys_made = n;
    if (result.odd) return result;
    if (found < k) {
      result.positive = found;
    } else if (k > 0) {
      write_few(scratch.keys.data(), scratch.places.data(), found, k, scratch.few, out);
    }
    return result;
  }
  band = guess(s, weights, n, k, scratch.sample, result.odd);
  result.keys_made += static_cast<int64_t>(scratch.sample.size());
  for (;;) {
    if (result.odd) return result;
    const BandCounts found = pass(s, band, weights, n, threads, scratch, result.odd);
    result.keys_made += n;
    if (result.odd) return result;
    if (found.below > k) {
      band = {0.0f, band.low};
      continue;
    }
    const int64_t missing = k - found.below;
    if (missing > found.within) {
      if (band.high == FLT_MAX) {
        result.positive = found.below + found.within;
        return result;
      }
      band = {band.high, FLT_MAX};
      continue;
    }
    if (missing > 0) take_least(scratch.band, missing, band, scratch.below.data());
    write_down(scratch.below, n, threads, out);
    return result;
  }
}

template <class W>
KeyDraw draw_by_log_keys(const W* weights, int64_t n, int64_t k, uint64_t seed, uint64_t stream,
                         int64_t* out) {
  std::vector<std::pair<double, int64_t>> keys;
  keys.reserve(static_cast<std::size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    if (!(weights[i] > W(0))) continue;
    const double e = item_exponential(seed, stream, static_cast<uint64_t>(i));
    keys.emplace_back(std::log(e) - std::log(static_cast<double>(weights[i])), i);
  }
  KeyDraw result;
  result.keys_made = n;
  if (static_cast<int64_t>(keys.size()) < k) {
    result.positive = static_cast<int64_t>(keys.size());
    return result;
  }
  if (static_cast<std::size_t>(k) < keys.size()) {
    std::nth_element(keys.begin(), keys.begin() + k, keys.end());
  }
  for (int64_t j = 0; j < k; ++j) out[j] = keys[j].second;
  std::sort(out, out + k);
  return result;
}

#define DGBENCH_KEYS(W)                                                                     \
  template KeyDraw draw_by_keys(const W*, int64_t, int64_t, uint64_t, uint64_t, int, int64_t*); \
  template KeyDraw draw_by_log_keys(const W*, int64_t, int64_t, uint64_t, uint64_t, int64_t*);
DGBENCH_KEYS(float)
DGBENCH_KEYS(double)
DGBENCH_KEYS(int64_t)
#undef DGBENCH_KEYS

}  // namespace dgbench

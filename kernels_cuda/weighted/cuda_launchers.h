// Weighted draws on a device as plain functions; see common/launchers.h for what holds of all of them.
#pragma once

#include <cstdint>

namespace dgbench {

constexpr uint32_t kNeverTaken = 0xffffffffu;  // key of an item without weight
constexpr int kShortSet = 32;                  // sets that a warp serves
constexpr int kMediumSet = 8192;               // and a block of threads
constexpr int kTileQuads = 1024;               // four items each, of a larger set
constexpr int kTileItems = 4 * kTileQuads;
constexpr int kBins = 2048;                    // of a digit
constexpr int kPasses = 3;

// What an item's key is made of: the k smallest keys of a set are drawn. A key is the bits of a float
// that is not negative, which are ordered as it is; ties go to the lower item.
struct KeySource {
  const int32_t* given;  // by item: keys to choose by, negative for never; or null
  const float* weights;  // by item, or null for one each; not read where keys are given
  uint64_t seed, stream;  // of the random numbers, which belong to an item, not to its set
};

// Set s: items [begin[s], end[s]); out[s + 1] - out[s] of them are drawn, in ascending order, to
// chosen[out[s] ..]. Where fewer have weight the rest is -1 and kMissing is raised by their number.
struct Sets {
  const int64_t *begin, *end;
  const int64_t* out;  // [count + 1]
  int64_t count;
  int64_t* chosen;
};

struct SelectState {  // of one large set
  uint32_t threshold;  // the largest key that is taken: the digits found so far
  uint32_t left;       // of how many with exactly this key
  uint32_t missing;
  uint32_t counted[kPasses];  // tiles, so far
  uint32_t first, stop;       // its tiles
  int64_t set;
};

enum SelectCounter {
  kMissing,    // items that were asked for and are not there
  kImproper,   // not 0: a weight is negative or not finite, says dgb_examine
  kOutside,    // not 0: a weight is out of the range of keys
  kMedium,     // sets listed for blocks of threads
  kPlanned,    // sets of many blocks << 32 | their tiles: asked for
  kLarge,      // the same: given room
  kTicket,     // tiles begun by the collecting pass
  kCounters,
};

// Where sets larger than kShortSet are listed and counted. Nothing but the counters is zero before:
// what a launch reads an earlier one has written, and its number is read on the device.
struct SelectSpace {
  int64_t largest;             // no set has more items
  int64_t medium;              // larger sets are shared by many blocks
  int64_t large_most, tile_most;
  uint32_t* keys;              // [tile_most, kTileItems], or null where keys are given
  uint32_t* histograms;        // [large_most, kPasses, kBins]
  SelectState* large;          // [large_most]
  uint64_t* progress;          // [tile_most]: what a tile and those before it take
  int32_t* list;               // [count], of medium sets
  unsigned long long* counters;  // [kCounters], zero before
};

// The space of `count` sets with at most `largest` items each and `items` together, laid out in
// `memory`, and how many words of 64 bits that takes.
inline int64_t lay_out(SelectSpace& space, int64_t count, int64_t largest, int64_t items,
                       bool given, int64_t* memory) {
  space.largest = largest;
  // Of a single set it is known on the host who serves it.
  space.medium = count == 1 && largest > kMediumSet ? kShortSet : kMediumSet;
  const bool any = largest > kMediumSet;
  const int64_t most = count == 1 ? 1 : items / (kMediumSet + 1);
  space.large_most = !any ? 0 : most < count ? most : count;
  // A set's first and last tile may be begun only.
  space.tile_most = !any ? 0 : items / kTileItems + 2 * space.large_most;
  int64_t words = 0;
  const auto take = [&](int64_t bytes) {
    int64_t* const at = memory == nullptr ? nullptr : memory + words;
    words += (bytes + 15) / 16 * 2;
    return at;
  };
  space.keys = given ? nullptr
                     : reinterpret_cast<uint32_t*>(take(4 * kTileItems * space.tile_most));
  space.histograms = reinterpret_cast<uint32_t*>(take(4 * kPasses * kBins * space.large_most));
  space.large = reinterpret_cast<SelectState*>(
      take(static_cast<int64_t>(sizeof(SelectState)) * space.large_most));
  space.progress = reinterpret_cast<uint64_t*>(take(8 * space.tile_most));
  space.list = reinterpret_cast<int32_t*>(take(4 * count));
  return words;
}

extern "C" {
// Sets of at most space->medium items; larger ones are given tiles for dgb_select_large.
int dgb_select_small(const Sets* sets, const KeySource* source, const SelectSpace* space,
                     void* stream);
int dgb_select_large(const Sets* sets, const KeySource* source, const SelectSpace* space,
                     void* stream);
// Marks in `counters` what is wrong with n weights. Writes them as floats to `plain` and the set of
// all of them, of which `wanted` are drawn, to `set`: begin, end, out[2]; each unless it is null.
struct Examined {
  float* plain;
  int64_t* set;
  int64_t wanted;
  unsigned long long* counters;  // [kCounters], zero before
};
int dgb_examine_float(const float* weights, int64_t n, const Examined* into, void* stream);
int dgb_examine_double(const double* weights, int64_t n, const Examined* into, void* stream);
int dgb_examine_int(const int64_t* weights, int64_t n, const Examined* into, void* stream);
// keys[i] of the items [0, n).
int dgb_make_keys(const KeySource* source, int64_t n, uint32_t* keys, void* stream);
}

}  // namespace dgbench

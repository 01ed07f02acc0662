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
  const uint32_t* given;  // by item: keys to choose by, or null
  const float* weights;   // by item, or null for one each; not read where keys are given
  uint64_t seed, stream;  // of the random numbers, which belong to an item, not to its set
};

// Set s: items [begin[s], end[s]); out[s + 1] - out[s] of them are drawn, in ascending order, to
// chosen[out[s] ..]. Where fewer have weight the rest is -1 and `missing` is raised by their number.
struct Sets {
  const int64_t *begin, *end;
  const int64_t* out;  // [count + 1]
  int64_t count;
  int64_t* chosen;
  int64_t* missing;  // [1]
};

struct SelectState {  // of one large set
  uint32_t threshold;  // the largest key that is taken: the digits found so far
  uint32_t left;       // of how many with exactly this key
  uint32_t missing;
  uint32_t tiles[kPasses];  // counted so far
};

// Sets of any size, whose tiles many blocks share. All arrays but `keys` are zero before.
struct LargeSets {
  const int64_t* ids;      // [count] of `sets`
  const int64_t* tile_of;  // [count + 1] first tile; the last is the number of tiles
  int64_t count, tiles;
  SelectState* state;      // [count]
  uint32_t* histograms;    // [count, kPasses, kBins]
  uint64_t* progress;      // [tiles]: what a tile and those before it take
  uint32_t* ticket;        // [1]
  uint32_t* keys;          // [tiles, kTileItems], or null: made anew in every pass
};

extern "C" {
// Sets of at most kMediumSet items; larger ones are passed over. `list` [sets] and `listed` [1], zero
// before, are scratch.
int dgb_select_small(const Sets* sets, const KeySource* source, int32_t* list, uint32_t* listed,
                     void* stream);
int dgb_select_large(const Sets* sets, const LargeSets* large, const KeySource* source,
                     void* stream);
// keys[i] of the items [0, n).
int dgb_make_keys(const KeySource* source, int64_t n, uint32_t* keys, void* stream);
}

}  // namespace dgbench

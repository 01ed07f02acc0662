// A cache of feature rows on a device; the rules are those of row_cache/cpu.cpp.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace dgbench {

// slots[i] = where the i-th id is kept, or -1: by an array over all ids, or by a sorted list of those
// kept. An id out of range is kept nowhere.
struct LookUp {
  const int64_t* ids;
  const int32_t* dense;     // [num_ids], or null
  const int64_t* sorted;    // [kept] ids in ascending order
  const int32_t* slot_of;   // [kept] their slots
  int32_t* slots;           // [count]
  int64_t count, num_ids, kept;

  DGB_HD void operator()(int64_t i) const {
    const int64_t id = ids[i];
    int32_t found = -1;
    if (id >= 0 && id < num_ids) {
      if (dense != nullptr) {
        found = dense[id];
      } else {
        int64_t low = 0;
        int64_t high = kept;
        while (low < high) {
          const int64_t middle = low + (high - low) / 2;
          if (sorted[middle] < id) {
            low = middle + 1;
          } else {
            high = middle;
          }
        }
        if (low < kept && sorted[low] == id) found = slot_of[low];
      }
    }
    slots[i] = found;
  }
};

template <int VEC>
struct alignas(4 * VEC) RowPart {
  float at[VEC];
};

// out[i] = the row of slot place[i], or for place[i] = -1 - k that of the k-th miss: row misses[k] of
// `source`, or row k where `misses` is null. An index is VEC floats of a row.
template <int VEC>
struct GatherRows {
  const int32_t* place;   // [count]
  const int64_t* misses;
  const float* kept;      // [capacity, dim]
  const float* source;    // [.., dim]; may be page-locked memory of the host
  float* out;             // [count, dim]
  int64_t count, dim;

  DGB_HD void operator()(int64_t index) const {
    const int64_t parts = dim / VEC;
    const int64_t i = index / parts;
    const int64_t part = index - i * parts;
    const int32_t from = place[i];
    const int64_t k = -1 - static_cast<int64_t>(from);
    const float* const row = from >= 0         ? kept + from * dim
                             : misses != nullptr ? source + misses[k] * dim
                                                 : source + k * dim;
    using Part = RowPart<VEC>;
    reinterpret_cast<Part*>(out + i * dim)[part] = reinterpret_cast<const Part*>(row)[part];
  }
};

extern "C" {
int dgb_look_up(const LookUp* functor, void* stream);
int dgb_gather_rows(const GatherRows<1>* functor, void* stream);
}

}  // namespace dgbench

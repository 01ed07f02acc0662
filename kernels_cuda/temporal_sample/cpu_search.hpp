// Where times stand among the records of vertices, for many at once. Memory answers slowly but many
// questions at once: all searches take one step, each asks for the lines of its next, and only then
// the first goes on.
//
// Times between two known ones are mostly near a straight line, so a search looks first where the
// line says, at eight records at once, which mostly decides it. One that three looks do not decide
// goes on by halves, so that no data takes more than a few steps beyond a search by halves.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>

#include "temporal_sample/functors.hpp"
#include "temporal_store/layout.hpp"

namespace dgbench::temporal {

// Candidates of a root: by position, and where the newest of them stands.
struct CandidateRange {
  uint32_t first;   // position of the oldest
  uint32_t count;
  uint64_t stop;    // place after the newest
  uint32_t inside;  // records of its block up to there
  uint32_t block;   // its fence, the number of fences for the newest block; kNone: asked for apart
};

inline void ask_lines(const void* first, const void* last) {
  const auto stop = reinterpret_cast<uintptr_t>(last);
  for (auto line = reinterpret_cast<uintptr_t>(first) & ~uintptr_t{63}; line < stop; line += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(line));
  }
}

constexpr uint32_t kLook = 8;  // records looked at together

// How many of up to eight records are older than a key.
template <class Record>
uint32_t older_of(const Record* at, uint32_t count, double key, double origin) {
  uint32_t older = 0;
  for (uint32_t i = 0; i < count; ++i) older += time_of(at[i], origin) < key;
  return older;
}

#if defined(__AVX512F__)
inline uint32_t older_of(const Packed* at, uint32_t count, double key, double) {
  const auto words = static_cast<uint32_t>((1ull << 2 * count) - 1);
  const __m512d a = _mm512_maskz_loadu_pd(static_cast<__mmask8>(words), at);
  const __m512d b = _mm512_maskz_loadu_pd(static_cast<__mmask8>(words >> 8), at + 4);
  const __m512i odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
  const __m512d times = _mm512_permutex2var_pd(a, odd, b);
  const auto asked = static_cast<__mmask8>((1u << count) - 1);
  return static_cast<uint32_t>(__builtin_popcount(
      _mm512_mask_cmp_pd_mask(asked, times, _mm512_set1_pd(key), _CMP_LT_OQ)));
}
#endif

// Place in (0, n) where the straight line from `low` to `high` says that `key` is; any in [0, n) if
// these are not finite.
inline uint32_t on_line(double low, double high, double key, uint32_t n) {
  const double x = static_cast<double>(n) * ((key - low) / (high - low));
  if (!(x >= 1)) return 0;
  return x < static_cast<double>(n) ? static_cast<uint32_t>(x) : n - 1;
}

// At most `N` searches. `behind`: so many records before the place found are wanted, too.
template <class Record, int N>
class Searches {
 public:
  Searches(const StoreView& view, uint32_t behind)
      : view_(view), records_(static_cast<const Record*>(view.records)), behind_(behind) {}

  // Asks for the number of a vertex's records that are older than a key: `position`; `found` gets
  // the place, unless it is null.
  void start(const Vertex& v, double key, uint32_t* position, CandidateRange* found) {
    if (v.t_max < key) {
      *position = total(v);
      if (found) {
        tell(*found, v.first, v.size, v.fences);
        const Record* const stop = records_ + v.first + v.size;
        ask_lines(stop - std::min(v.size, behind_), stop);
      }
      return;
    }
    if (v.t_min < key) {
      enter(one_[count_++], {key, v.t_min, v.t_max, v.first, position, found, 0, v.size - 1,
                             v.before, v.fences, 0});
      return;
    }
    *position = 0;
    if (found) tell(*found, v.first, 0, 0);
    if (v.fences == 0) return;
    waiting_[waiters_++] = {key, v.t_min, view_.fences + v.fence, position, found, v.fences};
    const Fence* const fences = view_.fences + v.fence;
    ask_lines(fences, fences + std::min(v.fences, kFew));
  }

  // Answers all.
  void finish() {
    search_fences();
    int live = 0;
    for (int i = 0; i < count_; ++i) live_[live++] = i;
    while (live > 0) {
      int kept = 0;
      for (int i = 0; i < live; ++i) {
        if (look(one_[live_[i]])) live_[kept++] = live_[i];
      }
      live = kept;
    }
    count_ = 0;
  }

 private:
  static constexpr uint32_t kFew = 8;  // fences that are looked at all
  static constexpr uint32_t kLooks = 3;

  // The record `low` of a block is older and `high` is not: a place in (low, high].
  struct One {
    double key;
    double low_time;
    double high_time;
    uint64_t first;  // place of the block's records
    uint32_t* position;
    CandidateRange* found;
    uint32_t low;
    uint32_t high;
    uint32_t before;  // records before the block
    uint32_t block;
    uint32_t looks;
    uint32_t at = 0;  // where to look
  };

  struct Waiting {  // those that do not know their block yet
    double key;
    double newest;  // time of the first record after the fences
    const Fence* fences;
    uint32_t* position;
    CandidateRange* found;
    uint32_t count;
    uint32_t at = 0;
  };

  static void tell(CandidateRange& found, uint64_t first, uint32_t inside, uint32_t block) {
    found.stop = first + inside;
    found.inside = inside;
    found.block = block;
  }

  void enter(One& one, const One& what) {
    one = what;
    aim(one);
  }

  // Where to look next, of which it asks for the lines.
  void aim(One& one) {
    const uint32_t between = one.high - one.low - 1;  // records not known
    const uint32_t place = one.looks < kLooks
                               ? on_line(one.low_time, one.high_time, one.key, between + 1)
                               : between / 2;
    const uint32_t most = between > kLook ? between - kLook : 0;
    one.at = one.low + 1 + std::min(place > kLook / 2 ? place - kLook / 2 : 0, most);
    const Record* const at = records_ + one.first + one.at;
    const uint32_t back = between > kWild ? 0 : std::min(one.at, behind_);
    ask_lines(at - back, at + std::min(between, kLook));
  }
  static constexpr uint32_t kWild = 128;  // so many unknown are seldom decided by the first look

  // One look; whether another is needed.
  bool look(One& one) {
    const uint32_t between = one.high - one.low - 1;
    const uint32_t here = std::min(between, kLook);
    const Record* const at = records_ + one.first + one.at;
    const uint32_t older = older_of(at, here, one.key, view_.origin);
    if (older == 0 && one.at > one.low + 1) {
      one.high = one.at;
      one.high_time = time_of(at[0], view_.origin);
    } else if (older == here && one.at + here < one.high) {
      one.low = one.at + here - 1;
      one.low_time = time_of(at[here - 1], view_.origin);
    } else {
      const uint32_t inside = one.at + older;
      *one.position = one.before + inside;
      if (one.found) {
        tell(*one.found, one.first, inside, one.block);
        const Record* const stop = records_ + one.first + inside;
        ask_lines(stop - std::min(inside, behind_), stop);
      }
      return false;
    }
    ++one.looks;
    aim(one);
    return true;
  }

  void search_fences() {
    for (int i = 0; i < waiters_; ++i) {
      Waiting& w = waiting_[i];
      if (w.count <= kFew) continue;
      w.at = on_line(w.fences->t_min, w.newest, w.key, w.count);
      ask_lines(w.fences + (w.at > 0 ? w.at - 1 : 0), w.fences + std::min(w.at + 2, w.count));
    }
    for (int i = 0; i < waiters_; ++i) {
      const Waiting& w = waiting_[i];
      const uint32_t older = w.count <= kFew ? count_fences(w) : find_fence(w);
      if (older == 0) continue;
      const Fence& fence = w.fences[older - 1];
      const double after = older < w.count ? w.fences[older].t_min : w.newest;
      enter(one_[count_++], {w.key, fence.t_min, after, fence.first, w.position, w.found, 0,
                             fence.size, fence.before, older - 1, 0});
    }
    waiters_ = 0;
  }

  static uint32_t count_fences(const Waiting& w) {
    uint32_t older = 0;
    for (uint32_t f = 0; f < w.count; ++f) older += w.fences[f].t_min < w.key;
    return older;
  }

  // From the place on the line by steps that double, then by halves.
  static uint32_t find_fence(const Waiting& w) {
    uint32_t low = 0;  // fences before it are older, those from `high` on are not
    uint32_t high = w.count;
    uint32_t at = w.at;
    for (uint32_t step = 1; low < high; step *= 2) {
      if (w.fences[at].t_min < w.key) {
        low = at + 1;
        if (low == high || at < w.at) break;
        at = std::min(at + step, high - 1);
      } else {
        high = at;
        if (low == high || at > w.at) break;
        at = at - low > step ? at - step : low;
      }
    }
    return low + fences_before(w.fences + low, high - low, w.key);
  }

  const StoreView& view_;
  const Record* const records_;
  const uint32_t behind_;
  int count_ = 0;
  int waiters_ = 0;
  One one_[N];
  Waiting waiting_[N];
  int live_[N];
};

}  // namespace dgbench::temporal

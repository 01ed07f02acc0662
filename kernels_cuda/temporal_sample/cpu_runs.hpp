// Request and output of a sampler on the host, and the candidates of one root at a time.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "temporal_sample/functors.hpp"
#include "temporal_store/layout.hpp"

namespace dgbench::temporal {

// Roots, their windows and how to sample from them. `begins` may be null: then windows are `length`
// long, which may be infinite.
struct SampleRequest {
  StoreView view;
  const int64_t* nodes;
  const double* ends;
  const double* begins;
  const int64_t* positions;
  int64_t roots;
  double length;
  bool closed;
  bool replace;
  bool linear;  // along the list of blocks instead of a search over fences
  Policy policy;
  uint32_t fanout;
  DrawKey key;

  // Everything is a half-open window: a closed one ends just after its end.
  double end(int64_t root) const {
    return closed ? std::nextafter(ends[root], std::numeric_limits<double>::infinity())
                  : ends[root];
  }
  double begin(int64_t root) const {
    if (begins) return begins[root];
    return std::isinf(length) ? -std::numeric_limits<double>::infinity() : ends[root] - length;
  }
  uint32_t taken(uint32_t candidates) const {
    return temporal::taken(candidates, fanout, replace, policy);
  }
  // Whether random numbers decide which of them.
  bool draws(uint32_t candidates) const {
    return policy == Policy::Uniform && candidates > (replace ? 0 : fanout);
  }
};

// Arrays of the result: `roots` + 1 offsets, and an element for each neighbour.
struct SampleOutput {
  int64_t* offsets;
  int64_t* neighbours;
  int64_t* eids;
  double* times;
};

template <class Record>
void put(const Record& r, double origin, const SampleOutput& output, int64_t place) {
  output.neighbours[place] = static_cast<int64_t>(r.node);
  output.eids[place] = static_cast<int64_t>(r.eid);
  output.times[place] = time_of(r, origin);
}

// Records that follow each other.
template <class Record>
void put_run(const Record* at, uint32_t count, double origin, const SampleOutput& output,
             int64_t place) {
  for (uint32_t i = 0; i < count; ++i) put(at[i], origin, output, place + i);
}

#if defined(__AVX512F__)
// Eight at a time: a record is a word of two ids and a word of time.
inline void put_run(const Packed* at, uint32_t count, double, const SampleOutput& output,
                    int64_t place) {
  const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
  const __m512i odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
  for (uint32_t i = 0; i < count; i += 8) {
    const uint32_t here = std::min(count - i, 8u);
    const auto words = static_cast<uint32_t>((1ull << 2 * here) - 1);
    const auto out = static_cast<__mmask8>((1u << here) - 1);
    const __m512i a = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(words), at + i);
    const __m512i b = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(words >> 8), at + i + 4);
    const __m512i ids = _mm512_permutex2var_epi64(a, even, b);
    const __m512i nodes = _mm512_and_si512(ids, _mm512_set1_epi64(0xffffffff));
    _mm512_mask_storeu_epi64(output.neighbours + place + i, out, nodes);
    _mm512_mask_storeu_epi64(output.eids + place + i, out, _mm512_srli_epi64(ids, 32));
    _mm512_mask_storeu_epi64(output.times + place + i, out, _mm512_permutex2var_epi64(a, odd, b));
  }
}
#endif

// Candidates of one root as runs of records, newest run first: how they are had where records must
// be left out, and on the paper's walk along the list (Algorithm 1).
template <class Record>
class Runs {
 public:
  explicit Runs(const SampleRequest& request)
      : request_(request), records_(static_cast<const Record*>(request.view.records)) {}

  // Returns the number of candidates; of the newest `fanout` at least where only these are wanted.
  uint32_t gather(const Vertex& v, double begin, double end) {
    runs_.clear();
    count_ = 0;
    visited_ = 0;
    most_ =
        request_.policy == Policy::Recent ? request_.fanout : std::numeric_limits<uint32_t>::max();
    whole_ = v.dead == 0 && request_.view.deleted == 0;
    if (is_deleted(v) || total(v) == 0 || !(begin < end)) return 0;
    if (request_.linear) {
      walk(v, begin, end);
    } else {
      const Range range =
          window_of(v, request_.view.fences, records_, begin, end, request_.view.origin);
      uint32_t stop = range.first + range.count;
      while (stop > range.first && count_ < most_) {
        const Piece piece = piece_of_position(v, request_.view.fences, stop - 1);
        const uint32_t start = std::max(range.first, piece.before);
        add(records_ + piece.first + (start - piece.before), stop - start);
        stop = start;
      }
    }
    return count_;
  }

  // Blocks of the list that the last walk looked at.
  uint32_t visited() const { return visited_; }

  // Writes the chosen candidates of a root from `place` on; returns how many.
  uint32_t write(int64_t position, const SampleOutput& output, int64_t place) {
    const uint32_t k = request_.taken(count_);
    chosen_.resize(std::max<std::size_t>(k, 1));
    if (request_.policy == Policy::Recent) {
      for (uint32_t i = 0; i < k; ++i) chosen_[i] = count_ - k + i;
    } else {
      draw_uniform(count_, request_.fanout, request_.replace, request_.key, position,
                   chosen_.data());
    }
    before_.resize(runs_.size());
    uint32_t seen = 0;
    for (std::size_t r = runs_.size(); r-- > 0;) {
      before_[runs_.size() - 1 - r] = seen;
      seen += runs_[r].count;
    }
    for (uint32_t i = 0; i < k; ++i) {
      const auto after = std::upper_bound(before_.begin(), before_.end(), chosen_[i]);
      const auto run = static_cast<std::size_t>(after - before_.begin()) - 1;
      const Record* const first = runs_[runs_.size() - 1 - run].first;
      put(first[chosen_[i] - before_[run]], request_.view.origin, output, place + i);
    }
    return k;
  }

 private:
  struct Run {
    const Record* first;
    uint32_t count;
  };

  void walk(const Vertex& v, double begin, double end) {
    for (uint32_t b = v.tail; b != kNone && count_ < most_;) {
      const Block& block = request_.view.blocks[b];
      ++visited_;
      const bool newest = b == v.tail;  // its size and times are in the vertex's line
      const double oldest_time = newest ? v.t_min : block.t_min;
      b = block.prev;
      if (end <= oldest_time) continue;
      if (begin > (newest ? v.t_max : block.t_max)) break;
      const uint32_t size = newest ? v.size : block.size;
      const Record* const first = records_ + (newest ? v.first : block.first);
      const uint32_t start = older_in(first, size, begin, request_.view.origin);
      const uint32_t stop = older_in(first, size, end, request_.view.origin);
      add(first + start, stop - start);
    }
  }

  bool is_shown(const Record& r) const {
    if (is_dead(r)) return false;
    return request_.view.deleted == 0 || !is_deleted(request_.view.vertices[r.node]);
  }

  // Adds a run that is older than all before, less what is deleted.
  void add(const Record* first, uint32_t count) {
    if (whole_) {
      if (count > 0) runs_.push_back({first, count});
      count_ += count;
      return;
    }
    for (uint32_t i = count; i-- > 0 && count_ < most_;) {
      if (!is_shown(first[i])) continue;
      if (runs_.empty() || runs_.back().first != first + i + 1) runs_.push_back({first + i + 1, 0});
      --runs_.back().first;
      ++runs_.back().count;
      ++count_;
    }
  }

  const SampleRequest& request_;
  const Record* const records_;
  std::vector<Run> runs_;
  std::vector<uint32_t> before_;
  std::vector<uint32_t> chosen_;
  uint32_t count_ = 0;
  uint32_t most_ = 0;
  uint32_t visited_ = 0;
  bool whole_ = true;
};

}  // namespace dgbench::temporal

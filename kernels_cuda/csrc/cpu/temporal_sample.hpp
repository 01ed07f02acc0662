// Temporal sampling on the host. Memory answers slowly but many questions at once, so roots are
// looked up in groups: all of a group take one step, each asks for the line of its next, and only
// then the first goes on. Per root that is its vertex, the probes of a search, and its records.
#pragma once

#include <omp.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "common/temporal_functors.hpp"
#include "common/temporal_layout.hpp"

namespace dgbench::temporal {

// What is asked. `begins` may be null: then windows are `length` long, which may be infinite.
struct Question {
  StoreView view;
  const int64_t* nodes;
  const double* ends;
  const double* begins;
  const int64_t* positions;
  int64_t roots;
  double length;
  bool closed;
  bool replace;
  bool listed;  // along the list of blocks instead of a search over fences
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
};

// Where the answer goes: `roots` + 1 offsets, and a place for each neighbour.
struct Answer {
  int64_t* offsets;
  int64_t* neighbours;
  int64_t* eids;
  double* times;
};

template <class Record>
void put(const Record& r, double origin, const Answer& to, int64_t place) {
  to.neighbours[place] = static_cast<int64_t>(r.node);
  to.eids[place] = static_cast<int64_t>(r.eid);
  to.times[place] = time_of(r, origin);
}

// Records that follow each other.
template <class Record>
void put_run(const Record* at, uint32_t count, double origin, const Answer& to, int64_t place) {
  for (uint32_t i = 0; i < count; ++i) put(at[i], origin, to, place + i);
}

#if defined(__AVX512F__)
// Eight at a time: a record is a word of two ids and a word of time.
inline void put_run(const Packed* at, uint32_t count, double, const Answer& to, int64_t place) {
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
    _mm512_mask_storeu_epi64(to.neighbours + place + i, out, nodes);
    _mm512_mask_storeu_epi64(to.eids + place + i, out, _mm512_srli_epi64(ids, 32));
    _mm512_mask_storeu_epi64(to.times + place + i, out, _mm512_permutex2var_epi64(a, odd, b));
  }
}
#endif

inline void ask_lines(const void* first, const void* last) {
  const auto stop = reinterpret_cast<uintptr_t>(last);
  for (auto line = reinterpret_cast<uintptr_t>(first) & ~uintptr_t{63}; line < stop; line += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(line));
  }
}

// Candidates of one root as runs of records, newest run first: how they are had where records must
// be left out, and on the paper's walk along the list (Algorithm 1).
template <class Record>
class Runs {
 public:
  explicit Runs(const Question& q)
      : q_(q), records_(static_cast<const Record*>(q.view.records)) {}

  // Returns the number of candidates; of the newest `fanout` at least where only these are wanted.
  uint32_t gather(const Vertex& v, double begin, double end) {
    runs_.clear();
    count_ = 0;
    visited_ = 0;
    most_ = q_.policy == Policy::Recent ? q_.fanout : std::numeric_limits<uint32_t>::max();
    whole_ = v.dead == 0 && q_.view.deleted == 0;
    if (is_deleted(v) || total(v) == 0 || !(begin < end)) return 0;
    if (q_.listed) {
      walk(v, begin, end);
    } else {
      const Range range = window_of(v, q_.view.fences, records_, begin, end, q_.view.origin);
      uint32_t stop = range.first + range.count;
      while (stop > range.first && count_ < most_) {
        const Piece piece = piece_of_position(v, q_.view.fences, stop - 1);
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
  uint32_t write(int64_t position, const Answer& to, int64_t place) {
    const uint32_t k = q_.taken(count_);
    chosen_.resize(std::max<std::size_t>(k, 1));
    if (q_.policy == Policy::Recent) {
      for (uint32_t i = 0; i < k; ++i) chosen_[i] = count_ - k + i;
    } else {
      draw_uniform(count_, q_.fanout, q_.replace, q_.key, position, chosen_.data());
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
      put(first[chosen_[i] - before_[run]], q_.view.origin, to, place + i);
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
      const Block& block = q_.view.blocks[b];
      ++visited_;
      const bool newest = b == v.tail;  // its size and times are in the vertex's line
      const double oldest_time = newest ? v.t_min : block.t_min;
      b = block.prev;
      if (end <= oldest_time) continue;
      if (begin > (newest ? v.t_max : block.t_max)) break;
      const uint32_t size = newest ? v.size : block.size;
      const Record* const first = records_ + (newest ? v.first : block.first);
      const uint32_t start = older_in(first, size, begin, q_.view.origin);
      const uint32_t stop = older_in(first, size, end, q_.view.origin);
      add(first + start, stop - start);
    }
  }

  bool is_shown(const Record& r) const {
    if (is_dead(r)) return false;
    return q_.view.deleted == 0 || !is_deleted(q_.view.vertices[r.node]);
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

  const Question& q_;
  const Record* const records_;
  std::vector<Run> runs_;
  std::vector<uint32_t> before_;
  std::vector<uint32_t> chosen_;
  uint32_t count_ = 0;
  uint32_t most_ = 0;
  uint32_t visited_ = 0;
  bool whole_ = true;
};

// Samples G roots at a time, and asks for lines ahead of their use if `kAhead`. One at a time is the
// plain way, for comparison.
template <class Record, int G, bool kAhead>
class Group {
 public:
  static constexpr int kLanes = G;

  Group(const Question& q, const Answer& to)
      : q_(q),
        to_(to),
        records_(static_cast<const Record*>(q.view.records)),
        runs_(q),
        chosen_(q.policy == Policy::Uniform ? static_cast<std::size_t>(q.fanout) * G : 0),
        places_(chosen_.size()) {}

  // The first root whose vertex is not there or whose window is not a number; `roots` if none is.
  int64_t bad() const { return bad_; }

  // Finds the candidates of up to G roots from `root` on.
  void locate(int64_t root, int lanes, Range* found) {
    if (kAhead) {
      const int64_t stop = std::min(q_.roots, root + 2 * G);
      for (int64_t next = root + lanes; next < stop; ++next) {
        __builtin_prefetch(q_.view.vertices + q_.nodes[next]);
      }
    }
    searches_ = 0;
    for (int i = 0; i < lanes; ++i) {
      found[i] = {0, 0};
      const double begin = q_.begin(root + i);
      const double end = q_.end(root + i);
      const int64_t node = q_.nodes[root + i];
      if (node < 0 || node >= q_.view.num_vertices || begin != begin || end != end) {
        bad_ = std::min(bad_, root + i);
        continue;
      }
      const Vertex& v = q_.view.vertices[node];
      if (is_apart(v)) {
        found[i].count = runs_.gather(v, begin, end);
      } else if (G == 1) {
        found[i] = window_of(v, q_.view.fences, records_, begin, end, q_.view.origin);
      } else if (total(v) > 0 && begin < end) {
        start(v, end, &found[i].count);
        if (begin > -std::numeric_limits<double>::infinity()) start(v, begin, &found[i].first);
      }
    }
    if (G == 1) return;
    search_fences();
    search_records();
    for (int i = 0; i < lanes; ++i) {
      if (found[i].first > 0) found[i].count -= found[i].first;
    }
  }

  // Writes the neighbours of these roots from `place` on; returns the place after them.
  int64_t collect(int64_t root, int lanes, const Range* found, int64_t place) {
    const bool drawn = q_.policy == Policy::Uniform && draw(root, lanes, found);
    for (int i = 0; kAhead && i < lanes; ++i) {
      const uint32_t k = q_.taken(found[i].count);
      if (k == 0 || (drawn && is_drawn(found[i]))) continue;
      const Vertex& v = vertex(root + i);
      const uint32_t first = found[i].first + found[i].count - k;
      if (first < v.before || is_apart(v)) continue;
      const Record* const at = records_ + v.first + (first - v.before);
      ask_lines(at, at + std::min(k, 32u));
    }
    for (int i = 0; i < lanes; ++i) {
      const uint32_t k = q_.taken(found[i].count);
      if (k > 0) {
        const Vertex& v = vertex(root + i);
        if (is_apart(v)) {
          runs_.gather(v, q_.begin(root + i), q_.end(root + i));
          runs_.write(q_.positions[root + i], to_, place);
        } else if (drawn && is_drawn(found[i])) {
          const Record* const* const at = places_.data() + static_cast<std::size_t>(i) * q_.fanout;
          for (uint32_t c = 0; c < k; ++c) put(*at[c], q_.view.origin, to_, place + c);
        } else {
          copy(v, found[i].first + found[i].count - k, k, place);
        }
      }
      place += k;
      to_.offsets[root + i + 1] = place;
    }
    return place;
  }

 private:
  // The number of records of one vertex that are older than a key: of its block, once that is
  // known, and those before the block, which `position` holds meanwhile.
  struct Search {
    double key;
    const Fence* fence;   // fences before it are older; null once the block is known
    const Fence* fences;  // the oldest
    uint64_t first;       // place of the block's records
    uint32_t* position;
    uint32_t n;  // what is left to decide, fences first and then records
  };

  const Vertex& vertex(int64_t root) const { return q_.view.vertices[q_.nodes[root]]; }

  // Roots that are sampled one by one.
  bool is_apart(const Vertex& v) const {
    return q_.listed || v.dead > 0 || q_.view.deleted > 0;
  }

  bool is_drawn(const Range& range) const {
    return range.count > 0 && (q_.replace || range.count > q_.fanout);
  }

  void start(const Vertex& v, double key, uint32_t* position) {
    if (v.t_max < key) {
      *position = total(v);
      return;
    }
    Search& s = search_[searches_];
    s.position = position;
    s.key = key;
    if (v.t_min < key) {
      *position = v.before;
      enter(s, v.first, v.size);
    } else if (v.fences > 0) {
      s.fence = s.fences = q_.view.fences + v.fence;
      s.n = v.fences;
      if (kAhead) __builtin_prefetch(s.fence + s.n / 2 - (s.n > 1));
      waiting_[waiters_++] = searches_;
    } else {
      return;  // nothing is older
    }
    ++searches_;
  }

  // Goes on to the records of a block, which begins before the key.
  void enter(Search& s, uint64_t first, uint32_t size) {
    s.fence = nullptr;
    s.first = first;
    s.n = size;
    if (kAhead) __builtin_prefetch(records_ + first + size / 2 - (size > 1));
  }

  // A step of all searches over fences at a time, until each has its block.
  void search_fences() {
    while (waiters_ > 0) {
      int kept = 0;
      for (int i = 0; i < waiters_; ++i) {
        Search& s = search_[waiting_[i]];
        if (s.n > 1) {
          const uint32_t half = s.n / 2;
          s.fence += s.fence[half - 1].t_min < s.key ? half : 0;
          s.n -= half;
          if (kAhead) __builtin_prefetch(s.fence + s.n / 2 - (s.n > 1));
          waiting_[kept++] = waiting_[i];
          continue;
        }
        s.fence += s.fence->t_min < s.key ? 1 : 0;
        if (s.fence == s.fences) {
          s.n = 0;  // nothing is older
        } else {
          *s.position = s.fence[-1].before;
          enter(s, s.fence[-1].first, s.fence[-1].size);
        }
      }
      waiters_ = kept;
    }
  }

  // The same over records, the longest searches first, so that those in progress stand together and
  // no step asks whether it is one. The last steps lie within a line or two, which are asked for
  // together, with the newest records before them where these are what is wanted.
  void search_records() {
    int starts[34] = {};  // by number of steps, most first
    for (int i = 0; i < searches_; ++i) ++starts[33 - steps(search_[i].n)];
    for (int k = 1; k < 34; ++k) starts[k] += starts[k - 1];
    int active[33];  // searches with more than so many steps
    for (int k = 0; k < 33; ++k) active[k] = starts[32 - k];
    for (int i = searches_; i-- > 0;) {
      const Search& s = search_[i];
      const int to = --starts[33 - steps(s.n)];
      key_[to] = s.key;
      at_[to] = s.first;
      left_[to] = s.n;
      which_[to] = i;
    }
    const double origin = q_.view.origin;
    for (int step = 0; active[step] > 0; ++step) {
      const int here = active[step];
      for (int i = 0; i < here; ++i) halve(i, left_[i] / 2, origin);
      for (int i = 0; kAhead && i < active[step + 1]; ++i) {
        __builtin_prefetch(records_ + at_[i] + left_[i] / 2 - 1);
      }
    }
    if (kAhead) {
      const bool recent = q_.policy == Policy::Recent;
      const uint64_t newest = std::min(q_.fanout, 12u);
      for (int i = 0; i < searches_; ++i) {
        const Record* const at = records_ + at_[i];
        __builtin_prefetch(at);
        __builtin_prefetch(at + left_[i]);
        if (!recent) continue;
        const char* const first =
            reinterpret_cast<const char*>(records_ + at_[i] - std::min(at_[i], newest));
        __builtin_prefetch(first);
        __builtin_prefetch(first + 64);
        __builtin_prefetch(first + 128);
      }
    }
    for (int i = 0; i < searches_; ++i) {
      if (left_[i] == 0) continue;
      while (left_[i] > 1) halve(i, left_[i] / 2, origin);
      const Search& s = search_[which_[i]];
      at_[i] += time_of(records_[at_[i]], origin) < s.key ? 1 : 0;
      *s.position += static_cast<uint32_t>(at_[i] - s.first);
    }
  }

  // Steps of a search until at most four records are left.
  static int steps(uint32_t n) { return n > 4 ? 32 - __builtin_clz((n - 1) / 4) : 0; }

  void halve(int i, uint64_t half, double origin) {
    const bool older = time_of(records_[at_[i] + half - 1], origin) < key_[i];
    at_[i] += older ? half : 0;
    left_[i] -= half;
  }

  // Copies k records from a position on, block by block.
  void copy(const Vertex& v, uint32_t position, uint32_t k, int64_t place) {
    while (k > 0) {
      const Piece piece = piece_of_position(v, q_.view.fences, position);
      const uint32_t skipped = position - piece.before;
      const uint32_t here = std::min(k, piece.size - skipped);
      put_run(records_ + piece.first + skipped, here, q_.view.origin, to_, place);
      position += here;
      place += here;
      k -= here;
    }
  }

  // Draws for all lanes in step, finds the records and asks for them. False when no lane draws.
  bool draw(int64_t root, int lanes, const Range* found) {
    bool any = false;
    for (int i = 0; i < G; ++i) {
      const bool here = i < lanes && is_drawn(found[i]) && !is_apart(vertex(root + i));
      any |= here;
      candidates_[i] = here ? found[i].count : q_.fanout + 1;
      where_[i] = static_cast<uint64_t>(q_.positions[root + (i < lanes ? i : 0)]);
    }
    if (!any) return false;
    for (uint32_t c = 0; c < q_.fanout; c += 2) {
      for (int i = 0; i < G; ++i) {
        const Draws two = draws_of(q_.key, where_[i], c / 2);
        even_[i] = two.even;
        odd_[i] = two.odd;
      }
      choose(c, even_);
      if (c + 1 < q_.fanout) choose(c + 1, odd_);
    }
    for (int i = 0; i < lanes; ++i) {
      if (!is_drawn(found[i])) continue;
      const Vertex& v = vertex(root + i);
      if (!is_apart(v)) find(v, found[i].first, i);
    }
    return true;
  }

  // The c-th choice of every lane.
  void choose(uint32_t c, const uint64_t* draws) {
    uint32_t* const mine = chosen_.data() + static_cast<std::size_t>(c) * G;
    if (q_.replace) {
      for (int i = 0; i < G; ++i) mine[i] = static_cast<uint32_t>(below(draws[i], candidates_[i]));
      return;
    }
    for (int i = 0; i < G; ++i) {
      const uint64_t n = candidates_[i] - q_.fanout + c + 1;
      const uint64_t low = (draws[i] & 0xffffffffu) * n >> 32;  // below() for a short n
      mine[i] = static_cast<uint32_t>(((draws[i] >> 32) * n + low) >> 32);
    }
    constexpr int kWide = G % 16 == 0 ? 16 : 1;  // lanes of one register
    typedef uint32_t Lanes __attribute__((vector_size(4 * kWide), aligned(4), may_alias));
    for (int i = 0; i < G; i += kWide) {
      Lanes& r = *reinterpret_cast<Lanes*>(mine + i);
      const Lanes n = *reinterpret_cast<const Lanes*>(candidates_ + i);
      const Lanes one = r;
      Lanes there{};
      for (const uint32_t* e = chosen_.data() + i; e < mine; e += G) {
        there |= reinterpret_cast<Lanes>(*reinterpret_cast<const Lanes*>(e) == one);
      }
      r = there ? n - q_.fanout + c : one;
    }
  }

  // Where the choices of a lane lie, which counts from a position.
  void find(const Vertex& v, uint32_t first, int lane) {
    const Record** const at = places_.data() + static_cast<std::size_t>(lane) * q_.fanout;
    const Record* const last = records_ + v.first;
    for (uint32_t c = 0; c < q_.fanout; ++c) {
      const uint32_t position = first + chosen_[static_cast<std::size_t>(c) * G + lane];
      if (position >= v.before) {
        at[c] = last + (position - v.before);
      } else {
        const Piece piece = piece_of_position(v, q_.view.fences, position);
        at[c] = records_ + piece.first + (position - piece.before);
      }
      if (kAhead) __builtin_prefetch(at[c]);
    }
  }

  const Question& q_;
  const Answer& to_;
  const Record* const records_;
  Runs<Record> runs_;
  int64_t bad_ = std::numeric_limits<int64_t>::max();
  int searches_ = 0;
  int waiters_ = 0;
  Search search_[2 * G];
  int waiting_[2 * G];  // those that do not know their block yet
  double key_[2 * G];
  uint64_t at_[2 * G];
  uint64_t left_[2 * G];
  int which_[2 * G];
  uint32_t candidates_[G];
  uint64_t where_[G];
  uint64_t even_[G];
  uint64_t odd_[G];
  std::vector<uint32_t> chosen_;        // [fanout][G]
  std::vector<const Record*> places_;   // [G][fanout]
};

// Answers all of a question. One thread finds and writes group by group. Several find all, agree
// on where each writes, and then write; so does one when there may be fewer than roots x fanout
// places, and then nothing is written if they do not suffice.
//
// Returns the number of neighbours, or -1 less the first root that cannot be asked for.
template <class Sampler>
int64_t answer(const Question& q, const Answer& to, int64_t places, int threads) {
  constexpr int64_t kLanes = Sampler::kLanes;
  const int64_t groups = (q.roots + kLanes - 1) / kLanes;
  const auto lanes = [&](int64_t group) {
    return static_cast<int>(std::min(kLanes, q.roots - group * kLanes));
  };
  threads = static_cast<int>(std::min<int64_t>(threads, std::max<int64_t>(1, q.roots / 256)));
  to.offsets[0] = 0;
  if (threads == 1 && places / q.fanout >= q.roots) {
    Sampler sampler(q, to);
    Range found[kLanes];
    int64_t place = 0;
    for (int64_t g = 0; g < groups; ++g) {
      sampler.locate(g * kLanes, lanes(g), found);
      if (sampler.bad() < q.roots) return -1 - sampler.bad();
      place = sampler.collect(g * kLanes, lanes(g), found, place);
    }
    return place;
  }
  const std::unique_ptr<Range[]> found(new Range[q.roots]);
  std::vector<int64_t> begins(threads + 1, 0);
  int64_t bad = q.roots;
  int64_t count = 0;
#pragma omp parallel num_threads(threads)
  {
    const int64_t team = omp_get_num_threads();
    const int64_t me = omp_get_thread_num();
    const int64_t first = groups * me / team;
    const int64_t stop = groups * (me + 1) / team;
    Sampler sampler(q, to);
    int64_t mine = 0;
    for (int64_t g = first; g < stop; ++g) {
      sampler.locate(g * kLanes, lanes(g), found.get() + g * kLanes);
      for (int i = 0; i < lanes(g); ++i) mine += q.taken(found[g * kLanes + i].count);
    }
    begins[me + 1] = mine;
#pragma omp critical
    bad = std::min(bad, sampler.bad());
#pragma omp barrier
#pragma omp single
    {
      for (int64_t t = 0; t < team; ++t) begins[t + 1] += begins[t];
      count = begins[team];
    }
    if (bad == q.roots && count <= places) {
      int64_t place = begins[me];
      for (int64_t g = first; g < stop; ++g) {
        place = sampler.collect(g * kLanes, lanes(g), found.get() + g * kLanes, place);
      }
    }
  }
  return bad < q.roots ? -1 - bad : count;
}

}  // namespace dgbench::temporal

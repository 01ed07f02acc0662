// Samplers of a question's roots: in groups, asking for lines of memory ahead of their use, or one
// at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "temporal_sample/cpu_runs.hpp"
#include "temporal_sample/cpu_search.hpp"
#include "temporal_sample/functors.hpp"
#include "temporal_store/layout.hpp"

namespace dgbench::temporal {

// Whether a root can be asked for: its vertex is there, and its window is a number.
inline bool can_be_asked(const SampleRequest& request, int64_t root, double begin, double end) {
  const int64_t node = request.nodes[root];
  return node >= 0 && node < request.view.num_vertices && begin == begin && end == end;
}

// Roots that are sampled as runs: along the list, or where records must be left out.
inline bool is_apart(const SampleRequest& request, const Vertex& v) {
  return request.linear || v.dead > 0 || request.view.deleted > 0;
}

// One root at a time with no line asked for ahead: the plain way, for comparison, and where a root
// is work enough by itself.
template <class Record>
class Single {
 public:
  static constexpr int kLanes = 1;

  Single(const SampleRequest& request, const SampleOutput& output)
      : request_(request),
        output_(output),
        records_(static_cast<const Record*>(request.view.records)),
        runs_(request) {}

  int64_t bad() const { return bad_; }

  void locate(int64_t root, int, CandidateRange* found) {
    *found = {};
    const double begin = request_.begin(root);
    const double end = request_.end(root);
    if (!can_be_asked(request_, root, begin, end)) {
      bad_ = std::min(bad_, root);
      return;
    }
    const Vertex& v = request_.view.vertices[request_.nodes[root]];
    if (is_apart(request_, v)) {
      found->count = runs_.gather(v, begin, end);
      found->block = kNone;
    } else {
      const Range range =
          window_of(v, request_.view.fences, records_, begin, end, request_.view.origin);
      found->first = range.first;
      found->count = range.count;
    }
  }

  void ask(int64_t, int, const CandidateRange*) {}

  int64_t write(int64_t root, int, const CandidateRange* found, int64_t place) {
    const uint32_t k = request_.taken(found->count);
    if (k > 0) {
      const Vertex& v = request_.view.vertices[request_.nodes[root]];
      if (found->block == kNone) {
        runs_.gather(v, request_.begin(root), request_.end(root));
        runs_.write(request_.positions[root], output_, place);
      } else if (request_.draws(found->count)) {
        chosen_.resize(k);
        draw_uniform(found->count, request_.fanout, request_.replace, request_.key,
                     static_cast<uint64_t>(request_.positions[root]), chosen_.data());
        for (uint32_t c = 0; c < k; ++c) copy(v, found->first + chosen_[c], 1, place + c);
      } else {
        copy(v, found->first + found->count - k, k, place);
      }
    }
    output_.offsets[root + 1] = place + k;
    return place + k;
  }

 private:
  // Copies k records from a position on, block by block.
  void copy(const Vertex& v, uint32_t position, uint32_t k, int64_t place) {
    while (k > 0) {
      const Piece piece = piece_of_position(v, request_.view.fences, position);
      const uint32_t skipped = position - piece.before;
      const uint32_t here = std::min(k, piece.size - skipped);
      put_run(records_ + piece.first + skipped, here, request_.view.origin, output_, place);
      position += here;
      place += here;
      k -= here;
    }
  }

  const SampleRequest& request_;
  const SampleOutput& output_;
  const Record* const records_;
  Runs<Record> runs_;
  std::vector<uint32_t> chosen_;
  int64_t bad_ = std::numeric_limits<int64_t>::max();
};

// G roots at a time. Per root the lines are its vertex, fences, those of a search, and its records.
template <class Record, int G>
class Group {
 public:
  static constexpr int kLanes = G;

  Group(const SampleRequest& request, const SampleOutput& output)
      : request_(request),
        output_(output),
        records_(static_cast<const Record*>(request.view.records)),
        runs_(request),
        searches_(request_.view,
                  request.policy == Policy::Recent ? std::min(request.fanout, kMaxAsked) : 0),
        chosen_(request.policy == Policy::Uniform ? static_cast<std::size_t>(request.fanout) * G
                                                  : 0),
        position_(chosen_.size()),
        guess_(chosen_.size()),
        places_(chosen_.size()) {}

  // The first root that cannot be asked for; `roots` or more if all can.
  int64_t bad() const { return bad_; }

  // Finds the candidates of up to G roots from `root` on.
  void locate(int64_t root, int lanes, CandidateRange* found) {
    const int64_t stop = std::min(request_.roots, root + 2 * G);
    for (int64_t next = root + lanes; next < stop; ++next) {
      __builtin_prefetch(request_.view.vertices + request_.nodes[next]);
    }
    for (int i = 0; i < lanes; ++i) {
      found[i] = {};
      const double begin = request_.begin(root + i);
      const double end = request_.end(root + i);
      if (!can_be_asked(request_, root + i, begin, end)) {
        bad_ = std::min(bad_, root + i);
        continue;
      }
      const Vertex& v = vertex(root + i);
      if (is_apart(request_, v)) {
        found[i].count = runs_.gather(v, begin, end);
        found[i].block = kNone;
      } else if (total(v) > 0 && begin < end) {
        searches_.start(v, end, &found[i].count, &found[i]);
        if (begin > -std::numeric_limits<double>::infinity()) {
          searches_.start(v, begin, &found[i].first, nullptr);
        }
      }
    }
    searches_.finish();
    for (int i = 0; i < lanes; ++i) {
      if (found[i].first > 0) found[i].count -= found[i].first;
    }
  }

  // Draws, and asks for the records that will be written.
  void ask(int64_t root, int lanes, const CandidateRange* found) {
    if (request_.policy == Policy::Uniform) draw(root, lanes, found);
    for (int i = 0; i < lanes; ++i) {
      const CandidateRange& f = found[i];
      const uint32_t k = request_.taken(f.count);
      if (f.block == kNone || k == 0 || request_.draws(f.count)) continue;
      const Record* const stop = records_ + f.stop;
      ask_lines(stop - std::min({k, f.inside, kMaxAsked}), stop);
      if (k > f.inside) {
        const Fence& older = request_.view.fences[vertex(root + i).fence + f.block - 1];
        const Record* const end = records_ + older.first + older.size;
        ask_lines(end - std::min({k - f.inside, older.size, kMaxAsked}), end);
      }
    }
  }

  // Writes the neighbours of the roots that were asked for last from `place` on; returns the place
  // after them.
  int64_t write(int64_t root, int lanes, const CandidateRange* found, int64_t place) {
    for (int i = 0; i < lanes; ++i) {
      const CandidateRange& f = found[i];
      const uint32_t k = request_.taken(f.count);
      if (f.block == kNone) {
        if (k > 0) {
          runs_.gather(vertex(root + i), request_.begin(root + i), request_.end(root + i));
          runs_.write(request_.positions[root + i], output_, place);
        }
      } else if (request_.draws(f.count)) {
        const Record* const* const at =
            places_.data() + static_cast<std::size_t>(i) * request_.fanout;
        for (uint32_t c = 0; c < k; ++c) put(*at[c], request_.view.origin, output_, place + c);
      } else if (k <= f.inside) {
        put_run(records_ + f.stop - k, k, request_.view.origin, output_, place);
      } else {
        copy(vertex(root + i), f, k, place);
      }
      place += k;
      output_.offsets[root + i + 1] = place;
    }
    return place;
  }

 private:
  static constexpr uint32_t kMaxAsked = 32;  // records of a run that are asked for ahead

  const Vertex& vertex(int64_t root) const { return request_.view.vertices[request_.nodes[root]]; }

  // Copies the k newest candidates, the newest block first.
  void copy(const Vertex& v, const CandidateRange& f, uint32_t k, int64_t place) {
    const Fence* older = request_.view.fences + v.fence + f.block;
    put_run(records_ + f.stop - f.inside, f.inside, request_.view.origin, output_,
            place + k - f.inside);
    for (k -= f.inside; k > 0;) {
      --older;
      const uint32_t here = std::min(k, older->size);
      k -= here;
      put_run(records_ + older->first + older->size - here, here, request_.view.origin, output_,
              place + k);
    }
  }

  // Draws for all lanes in step, finds the records and asks for them.
  void draw(int64_t root, int lanes, const CandidateRange* found) {
    bool any = false;
    for (int i = 0; i < G; ++i) {
      const bool here = i < lanes && found[i].block != kNone && request_.draws(found[i].count);
      any |= here;
      candidates_[i] = here ? found[i].count : request_.fanout + 1;
      where_[i] = static_cast<uint64_t>(request_.positions[root + (i < lanes ? i : 0)]);
    }
    if (!any) return;
    for (uint32_t c = 0; c < request_.fanout; c += 2) {
      for (int i = 0; i < G; ++i) {
        const Draws two = draws_of(request_.key, where_[i], c / 2);
        even_[i] = two.even;
        odd_[i] = two.odd;
      }
      choose(c, even_);
      if (c + 1 < request_.fanout) choose(c + 1, odd_);
    }
    find(root, lanes, found);
  }

  // The c-th choice of every lane.
  void choose(uint32_t c, const uint64_t* draws) {
    uint32_t* const mine = chosen_.data() + static_cast<std::size_t>(c) * G;
    if (request_.replace) {
      for (int i = 0; i < G; ++i) mine[i] = static_cast<uint32_t>(below(draws[i], candidates_[i]));
      return;
    }
    for (int i = 0; i < G; ++i) {
      const uint64_t n = candidates_[i] - request_.fanout + c + 1;
      const uint64_t low = (draws[i] & 0xffffffffu) * n >> 32;  // below() for a short n
      mine[i] = static_cast<uint32_t>(((draws[i] >> 32) * n + low) >> 32);
    }
    static_assert(G % kWide == 0, "lanes fill registers");
    typedef uint32_t Lanes __attribute__((vector_size(4 * kWide), aligned(4), may_alias));
    for (int i = 0; i < G; i += kWide) {
      Lanes& r = *reinterpret_cast<Lanes*>(mine + i);
      const Lanes n = *reinterpret_cast<const Lanes*>(candidates_ + i);
      const Lanes one = r;
      Lanes there{};
      for (const uint32_t* e = chosen_.data() + i; e < mine; e += G) {
        there |= reinterpret_cast<Lanes>(*reinterpret_cast<const Lanes*>(e) == one);
      }
      r = there ? n - request_.fanout + c : one;
    }
  }
  static constexpr int kWide = 16;  // lanes of one register

  // Where the choices lie. Blocks are mostly of one size, so a position's is near a guess, whose
  // fence is asked for before any is read.
  void find(int64_t root, int lanes, const CandidateRange* found) {
    int drawing[G];
    int count = 0;
    for (int i = 0; i < lanes; ++i) {
      if (found[i].block == kNone || !request_.draws(found[i].count)) continue;
      const Vertex& v = vertex(root + i);
      uint32_t* const mine = position_.data() + static_cast<std::size_t>(i) * request_.fanout;
      for (uint32_t c = 0; c < request_.fanout; ++c) {
        mine[c] = found[i].first + chosen_[static_cast<std::size_t>(c) * G + i];
      }
      drawing[count++] = i;
      if (v.fences == 0) continue;
      const auto each = static_cast<float>(v.fences) / static_cast<float>(v.before);
      const auto last = static_cast<float>(std::min(v.fences - 1, 1u << 24));  // is exact
      uint32_t* const guess = guess_.data() + static_cast<std::size_t>(i) * request_.fanout;
      for (uint32_t c = 0; c < request_.fanout; ++c) {
        guess[c] = static_cast<uint32_t>(std::min(static_cast<float>(mine[c]) * each, last));
      }
      const Fence* const fences = request_.view.fences + v.fence;
      for (uint32_t c = 0; c < request_.fanout; ++c) __builtin_prefetch(&fences[guess[c]].before);
    }
    for (int d = 0; d < count; ++d) {
      const Vertex& v = vertex(root + drawing[d]);
      const std::size_t row = static_cast<std::size_t>(drawing[d]) * request_.fanout;
      const uint32_t* const mine = position_.data() + row;
      const uint32_t* const guess = guess_.data() + row;
      const Record** const at = places_.data() + row;
      const Record* const last = records_ + v.first - v.before;
      const Fence* const fences = request_.view.fences + v.fence;
      for (uint32_t c = 0; c < request_.fanout; ++c) {
        at[c] = last + mine[c];
        if (mine[c] < v.before) {
          const Fence& fence = holding(fences, v.fences, guess[c], mine[c]);
          at[c] = records_ + fence.first + (mine[c] - fence.before);
        }
        __builtin_prefetch(at[c]);
      }
    }
  }

  // The fence of the block that holds a position: blocks are mostly of one size, so near a guess.
  static const Fence& holding(const Fence* fences, uint32_t n, uint32_t at, uint32_t position) {
    for (int tries = 0; tries < 4; ++tries) {
      if (position < fences[at].before) {
        --at;
      } else if (position - fences[at].before >= fences[at].size) {
        ++at;
      } else {
        return fences[at];
      }
    }
    uint32_t low = 0;  // the last fence with before <= position
    while (n > 1) {
      const uint32_t half = n / 2;
      low = fences[low + half].before <= position ? low + half : low;
      n -= half;
    }
    return fences[low];
  }

  const SampleRequest request_;
  const SampleOutput output_;
  const Record* const records_;
  Runs<Record> runs_;
  Searches<Record, 2 * G> searches_;
  int64_t bad_ = std::numeric_limits<int64_t>::max();
  uint32_t candidates_[G];
  uint64_t where_[G];
  uint64_t even_[G];
  uint64_t odd_[G];
  std::vector<uint32_t> chosen_;       // [fanout][G]
  std::vector<uint32_t> position_;     // [G][fanout], like those that follow
  std::vector<uint32_t> guess_;        // fences
  std::vector<const Record*> places_;  // [G][fanout]
};

}  // namespace dgbench::temporal

// The rank-copy generator of synthetic twins, on the CPU.
//
// An event stream is made in blocks. Stage 1 turns every event of a block into a plan (a vertex,
// or the earlier event to take it from); it is pure in the event number and runs on any number of
// threads. Stage 2 resolves the plans in order. So the edges depend on seed and parameters alone,
// not on the threads or on how the caller cuts the stream. Where pairs must be distinct, stage 2
// first guesses the block without looking at the pair set and prefetches the slots it will probe.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "common/require.hpp"
#include "twins/rank_copy.hpp"

namespace nb = nanobind;

namespace dgbench {
namespace {

using namespace twins;

struct Edge {
  int32_t src, dst;
};

// The pairs seen so far: open addressing over a power of two, sized once for the whole stream.
class PairSet {
 public:
  PairSet() = default;
  explicit PairSet(int64_t events) {
    size_t slots = 64;
    while (slots < static_cast<size_t>(events) + static_cast<size_t>(events) / 2) slots *= 2;
    bytes_ = slots * sizeof(uint64_t);
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    // Probes are random: with small pages each would also miss the translation buffer.
    madvise(at, bytes_, MADV_HUGEPAGE);
    table_ = static_cast<uint64_t*>(at);
    mask_ = slots - 1;
  }
  ~PairSet() {
    if (table_ != nullptr) munmap(table_, bytes_);
  }
  PairSet(const PairSet&) = delete;
  PairSet& operator=(const PairSet&) = delete;
  PairSet(PairSet&& other) noexcept { swap(other); }
  PairSet& operator=(PairSet&& other) noexcept {
    swap(other);
    return *this;
  }

  void prefetch(Edge pair) const { __builtin_prefetch(table_ + slot(key(pair)), 1, 2); }
  bool contains(Edge pair) const {
    const uint64_t wanted = key(pair);
    for (size_t at = slot(wanted); table_[at] != 0; at = (at + 1) & mask_)
      if (table_[at] == wanted) return true;
    return false;
  }
  void insert(Edge pair) {
    const uint64_t wanted = key(pair);
    size_t at = slot(wanted);
    while (table_[at] != 0 && table_[at] != wanted) at = (at + 1) & mask_;
    table_[at] = wanted;
  }

 private:
  static uint64_t key(Edge pair) {  // never 0, which marks an empty slot
    return ((static_cast<uint64_t>(static_cast<uint32_t>(pair.src)) << 32) |
            static_cast<uint32_t>(pair.dst)) + 1;
  }
  size_t slot(uint64_t key) const { return mix64(key) & mask_; }
  void swap(PairSet& other) {
    std::swap(table_, other.table_);
    std::swap(mask_, other.mask_);
    std::swap(bytes_, other.bytes_);
  }
  uint64_t* table_ = nullptr;
  size_t mask_ = 0, bytes_ = 0;
};

struct Spec {
  int64_t events, num_src, num_dst;  // num_dst = 0: one pool of num_src vertices
  bool simple;
  int redraws;
  double repeat, reply, loop, mem_src, mem_dst, phi, p_src, beta_src, beta_dst;
  int64_t reach_pair, reach_src, reach_dst;  // events
  double s_src, q_src, s_dst, q_dst;
  int blocks;
  double mixing;
};

constexpr int64_t kBlock = 2048;

class RankCopy {
 public:
  RankCopy(const Spec& spec, uint64_t seed, int threads)
      : spec_(spec),
        one_pool_(spec.num_dst == 0),
        threads_(threads),
        seed_(seed_key(seed)),
        law_src_(RankLaw::make(spec.s_src, spec.q_src)),
        law_dst_(RankLaw::make(spec.s_dst, spec.q_dst)),
        plans_(kBlock) {
    src_in_.start(spec.num_src, spec.events, spec.beta_src, one_pool_ ? 2 : 1);
    if (!one_pool_) dst_in_.start(spec.num_dst, spec.events, spec.beta_dst, 1);
    log2_pair_ = log2_exact(static_cast<double>(spec.reach_pair));
    log2_src_ = log2_exact(static_cast<double>(spec.reach_src));
    log2_dst_ = log2_exact(static_cast<double>(spec.reach_dst));
    // Without draws from the whole past the last few events are all the history there is.
    int64_t keep = spec.events;
    if (spec.phi == 0.0)
      keep = std::min(keep, std::max({spec.reach_pair, spec.reach_src, spec.reach_dst}) + kBlock);
    int64_t slots = 1;
    while (slots < keep) slots *= 2;
    if (slots >= spec.events) {
      past_.resize(static_cast<size_t>(spec.events));
      past_mask_ = -1;
    } else {
      past_.resize(static_cast<size_t>(slots));
      past_mask_ = slots - 1;
    }
    if (spec.simple) pairs_ = PairSet(spec.events);
  }

  int64_t position() const { return next_; }
  int64_t left() const { return spec_.events - next_; }

  void take(int64_t* src, int64_t* dst, int64_t count) {
    while (count > 0) {
      const int64_t n = std::min(count, kBlock);
      arrive(n);
      plan(n);
      if (spec_.simple)
        resolve<true>(n);
      else
        resolve<false>(n);
      for (int64_t i = 0; i < n; ++i) {
        const Edge& e = past(next_ + i);
        src[i] = e.src;
        dst[i] = static_cast<int64_t>(e.dst) + (one_pool_ ? 0 : spec_.num_src);
      }
      next_ += n;
      src += n;
      dst += n;
      count -= n;
    }
  }

 private:
  enum Kind : uint8_t { kFresh, kCopy, kReplyTo, kSelf };

  // src and dst: a vertex if >= 0, otherwise ~(event whose endpoint is taken).
  struct Plan {
    int64_t src, dst;
    int32_t pool_src, pool_dst;  // vertices that existed before the event
    bool new_src, new_dst;
    Kind kind;
  };

  // The spans of both laws for the vertex counts of the event before: they rarely change.
  struct Spans {
    int64_t src_for = -1, dst_for = -1;
    double src = 0, dst = 0;
  };

  Edge& past(int64_t k) { return past_[static_cast<size_t>(k & past_mask_)]; }
  const Edge& past(int64_t k) const { return past_[static_cast<size_t>(k & past_mask_)]; }

  void arrive(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t k = next_ + i;
      Plan& p = plans_[static_cast<size_t>(i)];
      if (one_pool_) {
        p.pool_src = p.pool_dst = static_cast<int32_t>(src_in_.count);
        p.new_src = p.new_dst = false;
        if (k == 0) {  // introduces vertices 0 and 1
          p.pool_src = p.pool_dst = 0;
          p.new_src = p.new_dst = true;
          src_in_.advance();
        } else if (src_in_.arrives(k)) {
          p.new_src = uniform(event_key(seed_, static_cast<uint64_t>(k)), kSide) < spec_.p_src;
          p.new_dst = !p.new_src;
          src_in_.advance();
        }
      } else {
        p.pool_src = static_cast<int32_t>(src_in_.count);
        p.pool_dst = static_cast<int32_t>(dst_in_.count);
        p.new_src = src_in_.arrives(k);
        p.new_dst = dst_in_.arrives(k);
        if (p.new_src) src_in_.advance();
        if (p.new_dst) dst_in_.advance();
      }
    }
  }

  int64_t look_back(uint64_t key, uint32_t slot, int64_t k, int64_t reach, double log2_reach,
                    double log2_k) const {
    return k - lag(uniform(key, slot), uniform(key, slot + 1), spec_.phi, k, reach,
                   reach <= k ? log2_reach : log2_k);
  }

  int64_t draw_source(uint64_t key, int64_t k, double log2_k, const Plan& p, Spans& spans) const {
    if (uniform(key, kSource) < spec_.mem_src)
      return ~look_back(key, kSource + 1, k, spec_.reach_src, log2_src_, log2_k);
    if (spans.src_for != p.pool_src) {
      spans.src = law_src_.span(p.pool_src);
      spans.src_for = p.pool_src;
    }
    return law_src_.draw(uniform(key, kSource + 3), p.pool_src, spans.src);
  }

  int64_t rank_target(uint64_t key, uint32_t slot, const Plan& p, Spans& spans) const {
    if (spans.dst_for != p.pool_dst) {
      spans.dst = law_dst_.span(p.pool_dst);
      spans.dst_for = p.pool_dst;
    }
    return law_dst_.draw(uniform(key, slot), p.pool_dst, spans.dst);
  }

  // The later half of the redraws goes by rank alone: short memories hold few other vertices.
  int64_t draw_target(uint64_t key, int64_t k, double log2_k, const Plan& p, Spans& spans,
                      int attempt) const {
    const uint32_t slot = kTarget + kTargetStride * static_cast<uint32_t>(attempt);
    if (2 * attempt <= spec_.redraws && uniform(key, slot) < spec_.mem_dst)
      return ~look_back(key, slot + 1, k, spec_.reach_dst, log2_dst_, log2_k);
    return rank_target(key, slot + 3, p, spans);
  }

  // The same, kept to the block of `src` (blocks are residues, the first of each are exempt).
  int32_t draw_in_block(uint64_t key, int64_t k, double log2_k, const Plan& p, Spans& spans,
                        int attempt, int32_t src) const {
    const uint32_t slot = kTarget + kTargetStride * static_cast<uint32_t>(attempt);
    const int32_t blocks = spec_.blocks, block = src % blocks;
    if (2 * attempt <= spec_.redraws && uniform(key, slot) < spec_.mem_dst) {
      for (uint32_t t = 0; t < kBlockTries; ++t) {
        const int64_t from =
            look_back(key, slot + 8 + 2 * t, k, spec_.reach_dst, log2_dst_, log2_k);
        const int32_t v = past(from).dst;
        if (v < blocks || v % blocks == block) return v;
      }
    }
    int32_t v = static_cast<int32_t>(rank_target(key, slot + 3, p, spans));
    if (v >= blocks) {
      v = v - v % blocks + block;
      if (v >= p.pool_dst) v -= blocks;
    }
    return v;
  }

  void plan_fresh(uint64_t key, int64_t k, double log2_k, Plan& p, Spans& spans) const {
    p.kind = kFresh;
    p.src = p.new_src ? p.pool_src : draw_source(key, k, log2_k, p, spans);
    if (p.new_dst)
      p.dst = p.pool_dst + (one_pool_ && p.new_src ? 1 : 0);
    else if (spec_.loop > 0 && uniform(key, kLoop) < spec_.loop)
      p.kind = kSelf;
    else
      p.dst = draw_target(key, k, log2_k, p, spans, 0);
  }

  void plan(int64_t n) {
    const bool parallel = threads_ > 1 && n >= 256;
#pragma omp parallel num_threads(threads_) if (parallel)
    {
      Spans spans;
#pragma omp for schedule(static)
      for (int64_t i = 0; i < n; ++i) {
        const int64_t k = next_ + i;
        const uint64_t key = event_key(seed_, static_cast<uint64_t>(k));
        const double log2_k = k > 0 ? log2_exact(static_cast<double>(k)) : 0.0;
        Plan& p = plans_[static_cast<size_t>(i)];
        if (!p.new_src && !p.new_dst) {
          if (spec_.repeat > 0 && uniform(key, kRepeat) < spec_.repeat) {
            p.kind = kCopy;
            p.src = look_back(key, kRepeatLag, k, spec_.reach_pair, log2_pair_, log2_k);
            continue;
          }
          if (spec_.reply > 0 && uniform(key, kReply) < spec_.reply) {
            p.kind = kReplyTo;
            p.src = look_back(key, kReplyLag, k, spec_.reach_pair, log2_pair_, log2_k);
            continue;
          }
        }
        plan_fresh(key, k, log2_k, p, spans);
      }
    }
  }

  int32_t source_of(const Plan& p) const {
    return p.src >= 0 ? static_cast<int32_t>(p.src) : past(~p.src).src;
  }
  int32_t target_of(int64_t plan) const {
    return plan >= 0 ? static_cast<int32_t>(plan) : past(~plan).dst;
  }

  // The edge that a plan means if no pair is refused.
  Edge guess(const Plan& p) const {
    switch (p.kind) {
      case kCopy:
        return past(p.src);
      case kReplyTo:
        return {past(p.src).dst, past(p.src).src};
      case kSelf: {
        const int32_t v = source_of(p);
        return {v, v};
      }
      default:
        return {source_of(p), target_of(p.dst)};
    }
  }

  template <bool kSimple>
  void resolve(int64_t n) {
    // A short run at a time, so that what was prefetched is still there when it is needed.
    constexpr int64_t kAhead = 128;
    for (int64_t begin = 0; begin < n; begin += kAhead) {
      const int64_t end = std::min(n, begin + kAhead);
      if constexpr (kSimple) {
        for (int64_t i = begin; i < end; ++i) {
          const Edge e = guess(plans_[static_cast<size_t>(i)]);
          past(next_ + i) = e;
          pairs_.prefetch(e);
        }
      }
      for (int64_t i = begin; i < end; ++i) {
        const Edge e = settle<kSimple>(next_ + i, plans_[static_cast<size_t>(i)]);
        if constexpr (kSimple) pairs_.insert(e);
        past(next_ + i) = e;
      }
    }
  }

  template <bool kSimple>
  bool refused(Edge e) const {
    return (one_pool_ && e.src == e.dst) || (kSimple && pairs_.contains(e));
  }

  template <bool kSimple>
  Edge settle(int64_t k, Plan& p) {
    if (p.kind == kReplyTo && kSimple) {
      Edge answer = guess(p);
      if (!pairs_.contains(answer)) return answer;
      const uint64_t key = event_key(seed_, static_cast<uint64_t>(k));
      const double log2_k = log2_exact(static_cast<double>(k));
      for (uint32_t t = 1; t < kReplyTries; ++t) {
        const Edge& asked = past(
            look_back(key, kReplyLag + 2 * t, k, spec_.reach_pair, log2_pair_, log2_k));
        answer = {asked.dst, asked.src};
        if (!pairs_.contains(answer)) return answer;
      }
      Spans spans;
      plan_fresh(key, k, log2_k, p, spans);
    }
    if (p.kind != kFresh) return guess(p);
    Edge e{source_of(p), 0};
    const bool settled = p.new_dst;
    if (spec_.blocks > 1 && !settled) {
      const uint64_t key = event_key(seed_, static_cast<uint64_t>(k));
      if (uniform(key, kMix) >= spec_.mixing) return settle_in_block<kSimple>(k, p, key, e.src);
    }
    e.dst = target_of(p.dst);
    if (settled || !refused<kSimple>(e)) return e;
    const uint64_t key = event_key(seed_, static_cast<uint64_t>(k));
    const double log2_k = log2_exact(static_cast<double>(k));
    Spans spans;
    for (int attempt = 1; attempt <= spec_.redraws; ++attempt) {
      e.dst = target_of(draw_target(key, k, log2_k, p, spans, attempt));
      if (!refused<kSimple>(e)) return e;
    }
    return without_loop(e);
  }

  template <bool kSimple>
  Edge settle_in_block(int64_t k, const Plan& p, uint64_t key, int32_t src) const {
    const double log2_k = log2_exact(static_cast<double>(k));
    Spans spans;
    Edge e{src, 0};
    for (int attempt = 0; attempt <= spec_.redraws; ++attempt) {
      e.dst = draw_in_block(key, k, log2_k, p, spans, attempt, src);
      if (!refused<kSimple>(e)) return e;
    }
    return without_loop(e);
  }

  // A repeated pair is let through when the redraws are used up, a loop never.
  Edge without_loop(Edge e) const {
    if (one_pool_ && e.src == e.dst) e.dst = e.src == 0 ? 1 : e.src - 1;
    return e;
  }

  Spec spec_;
  bool one_pool_;
  int threads_;
  uint64_t seed_;
  RankLaw law_src_, law_dst_;
  Arrivals src_in_, dst_in_;
  double log2_pair_, log2_src_, log2_dst_;
  std::vector<Plan> plans_;
  std::vector<Edge> past_;
  int64_t past_mask_ = -1;
  PairSet pairs_;
  int64_t next_ = 0;
};

using Ids = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Reals = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void take(RankCopy& stream, Ids src, Ids dst) {
  const int64_t n = static_cast<int64_t>(src.shape(0));
  require_length("dst", static_cast<int64_t>(dst.shape(0)), n);
  require(n <= stream.left(), "more events asked for than the stream has left");
  nb::gil_scoped_release release;
  stream.take(src.data(), dst.data(), n);
}

void uniforms(uint64_t seed, int64_t first, uint32_t slot, Reals out) {
  const int64_t n = static_cast<int64_t>(out.shape(0));
  double* to = out.data();
  nb::gil_scoped_release release;
  const uint64_t key = seed_key(seed);
  for (int64_t i = 0; i < n; ++i)
    to[i] = uniform(event_key(key, static_cast<uint64_t>(first + i)), slot);
}

// The closed inverse is exact for laws a stream may have; far outside it numbers have no rank.
void ranks(double s, double q, int64_t vertices, Reals u, Ids out) {
  require(s >= 0.0 && s <= 16.0, "s must be 0 .. 16");
  require(q > 0.0 && q < std::numeric_limits<double>::infinity(), "q must be finite and above 0");
  require_length("out", static_cast<int64_t>(out.shape(0)), static_cast<int64_t>(u.shape(0)));
  const RankLaw law = RankLaw::make(s, q);
  const double span = law.span(vertices);
  for (size_t i = 0; i < u.shape(0); ++i) out.data()[i] = law.draw(u.data()[i], vertices, span);
}

void lags(double phi, int64_t reach, int64_t k, Reals old, Reals u, Ids out) {
  require_length("old", static_cast<int64_t>(old.shape(0)), static_cast<int64_t>(u.shape(0)));
  require_length("out", static_cast<int64_t>(out.shape(0)), static_cast<int64_t>(u.shape(0)));
  const double l = log2_exact(static_cast<double>(std::min(reach, k)));
  for (size_t i = 0; i < u.shape(0); ++i)
    out.data()[i] = lag(old.data()[i], u.data()[i], phi, k, reach, l);
}

template <double (*kFunction)(double)>
void each(Reals in, Reals out) {
  require_length("out", static_cast<int64_t>(out.shape(0)), static_cast<int64_t>(in.shape(0)));
  for (size_t i = 0; i < in.shape(0); ++i) out.data()[i] = kFunction(in.data()[i]);
}

}  // namespace

void bind_twins(nb::module_& m) {
  nb::class_<RankCopy>(m, "RankCopy")
      .def(
          "__init__",
          [](RankCopy* self, int64_t events, int64_t num_src, int64_t num_dst, bool simple,
             int redraws, double repeat, double reply, double loop, double mem_src, double mem_dst,
             double phi, double p_src, double beta_src, double beta_dst, int64_t reach_pair,
             int64_t reach_src, int64_t reach_dst, double s_src, double q_src, double s_dst,
             double q_dst, int blocks, double mixing, uint64_t seed, int threads) {
            new (self) RankCopy(
                Spec{events,    num_src,   num_dst,  simple,   redraws,    repeat,    reply,
                     loop,      mem_src,   mem_dst,  phi,      p_src,      beta_src,  beta_dst,
                     reach_pair, reach_src, reach_dst, s_src,  q_src,      s_dst,     q_dst,
                     blocks,    mixing},
                seed, threads);
          },
          nb::kw_only(), nb::arg("events"), nb::arg("num_src"), nb::arg("num_dst"),
          nb::arg("simple"), nb::arg("redraws"), nb::arg("repeat"), nb::arg("reply"),
          nb::arg("loop"), nb::arg("mem_src"), nb::arg("mem_dst"), nb::arg("phi"),
          nb::arg("p_src"), nb::arg("beta_src"), nb::arg("beta_dst"), nb::arg("reach_pair"),
          nb::arg("reach_src"), nb::arg("reach_dst"), nb::arg("s_src"), nb::arg("q_src"),
          nb::arg("s_dst"), nb::arg("q_dst"), nb::arg("blocks"), nb::arg("mixing"),
          nb::arg("seed"), nb::arg("threads"))
      .def("position", &RankCopy::position)
      .def("take", &take, nb::arg("src").noconvert(), nb::arg("dst").noconvert());
  m.def("twin_uniforms", &uniforms, nb::arg("seed"), nb::arg("first"), nb::arg("slot"),
        nb::arg("out").noconvert());
  m.def("twin_log2", &each<log2_exact>, nb::arg("x").noconvert(), nb::arg("out").noconvert());
  m.def("twin_exp2", &each<exp2_exact>, nb::arg("x").noconvert(), nb::arg("out").noconvert());
  m.def("twin_ranks", &ranks, nb::arg("s"), nb::arg("q"), nb::arg("vertices"),
        nb::arg("u").noconvert(), nb::arg("out").noconvert());
  m.def("twin_lags", &lags, nb::arg("phi"), nb::arg("reach"), nb::arg("k"),
        nb::arg("old").noconvert(), nb::arg("u").noconvert(), nb::arg("out").noconvert());
}

}  // namespace dgbench

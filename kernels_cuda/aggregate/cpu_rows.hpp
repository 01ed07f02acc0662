// Y = R (A [+ I]) X for a range of rows, S snapshots wide.
//
// A row of X and Y is d = S * F scalars, snapshot after snapshot. The matrix comes in two lists per
// row. `over` holds the neighbours that all snapshots share: one entry adds d scalars. `ex` holds
// the neighbours of single snapshots, all snapshots in one list: an entry is `column << shift |
// snapshot` and adds F scalars. One list instead of S keeps short rows from ending S loops, each of
// which costs a branch miss. A plain product is S = 1 with no `ex`.
//
// The row's owner keeps its d sums in registers, so Y is written once and no thread adds to
// another's row: the result does not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "aggregate/cpu_lanes.hpp"

namespace dgbench {

template <class T>
struct RowJob {
  const std::int64_t* over_ptr = nullptr;   // [rows + 1]
  const std::int32_t* over_ids = nullptr;   // [over_ptr[rows]]
  const T* over_values = nullptr;           // [over, S] or null
  const std::int64_t* ex_ptr = nullptr;     // [rows + 1] or null
  const std::uint32_t* ex_ids = nullptr;    // [ex_ptr[rows]]
  const T* ex_values = nullptr;             // [ex] or null
  int shift = 0;                            // bits of the snapshot in an entry of ex
  const std::int32_t* order = nullptr;      // [rows] or null: row of y that stored row k is
  const T* x = nullptr;                     // [columns, stride], d used
  T* y = nullptr;                           // [rows, stride], d used
  std::int64_t stride = 0;
  int snapshots = 1;                        // S
  int features = 1;                         // F (or the width of a column tile when S = 1)
  const T* row_scale = nullptr;             // [rows, S] or null
  bool self_loop = false;
  std::int64_t entries = 0;                 // over_ptr[rows]
  int ahead = 0;                            // entries ahead at which rows of x are asked for, or 0
  const std::int32_t* lane_snapshot = nullptr;  // [d]: which snapshot a scalar of a row belongs to

  int width() const { return snapshots * features; }
  // A matrix alone: no entries of single snapshots, no scale, no self loop.
  bool plain() const { return !ex_ptr && !row_scale && !self_loop; }
  // Whether entries before `end` may ask for the rows of those `ahead` entries later.
  bool goes_on(std::int64_t end) const { return ahead > 0 && end + ahead <= entries; }
};

// What a caller picks once per call: whole rows, and a piece of one row without self loop or scale.
template <class T>
struct RowKernels {
  void (*rows)(const RowJob<T>&, std::int64_t begin, std::int64_t end, T* scratch) = nullptr;
  void (*piece)(const RowJob<T>&, std::int64_t over_begin, std::int64_t over_end,
                std::int64_t ex_begin, std::int64_t ex_end, T* out, T* scratch) = nullptr;
};

enum class Weights { none, one, per_snapshot };

// Scratch scalars a thread needs for `rows` and `piece`.
template <class T>
std::int64_t scratch_size(const RowJob<T>& job) {
  return job.width();
}

constexpr std::int64_t kStream = 512;  // entries ahead at which the lists are asked for
constexpr std::int64_t kLine = 16;     // entries of a list in a line of cache
constexpr std::int64_t kSection = 64;  // entries asked for at once, a multiple of any number of chains
constexpr std::int64_t kRowsAhead = 8;  // rows ahead at which rows of y are asked for

// Whether the last of N registers holds the last lanes of a row rather than what the others leave:
// lanes that two registers hold are the same sums, and no load needs a mask.
template <int N, Weights W, bool Full>
constexpr bool kOverlap = !Full && N > 1 && W != Weights::per_snapshot;

// First scalar of register v of a row of `width`.
template <class V, int N, Weights W, bool Full>
inline __attribute__((always_inline)) int lanes_at(int v, int width) {
  return kOverlap<N, W, Full> && v + 1 == N ? width - V::lanes : v * V::lanes;
}

// Adds entries [begin, end) of one list to N registers. With `Ahead` the list goes on for at least
// `job.ahead` entries behind `end`: the rows of x that follow are on their way before the branch
// miss at the end of this row. With `Dense` rows of x lie one behind the other and fill their registers.
template <class V, int N, Weights W, bool Full, bool Ahead, bool Dense = false>
inline __attribute__((always_inline)) void add_shared(
    typename V::Reg (&sum)[N], const RowJob<typename V::Scalar>& job, std::int64_t begin,
    std::int64_t end, int offset, typename V::Mask tail) {
  using T = typename V::Scalar;
  using Reg = typename V::Reg;
  constexpr int kChains = N <= 2 ? 4 : N <= 4 ? 2 : 1;  // independent sums hide the adder's latency
  const std::int32_t* ids = job.over_ids;
  const T* x = job.x + offset;
  const std::int64_t stride = Dense ? N * V::lanes : job.stride;
  const int width = job.width() - offset;
  const auto at = [width](int v) { return lanes_at<V, N, W, Full>(v, width); };
  Reg chain[kChains][N];
  for (int c = 1; c < kChains; ++c) {
    for (int v = 0; v < N; ++v) chain[c][v] = V::zero();
  }
  for (int v = 0; v < N; ++v) chain[0][v] = sum[v];

  const auto one = [&](std::int64_t e, std::int64_t id, Reg(&into)[N])
      __attribute__((always_inline)) {
    const T* row = x + id * stride;
    Reg weight;
    if constexpr (W == Weights::one) weight = V::broadcast(job.over_values[e]);
    for (int v = 0; v < N; ++v) {
      const Reg value = Full || kOverlap<N, W, Full> || v + 1 < N ? V::load(row + at(v))
                                                                  : V::load(row + at(v), tail);
      if constexpr (W == Weights::per_snapshot) {
        weight = V::spread(job.over_values + e * job.snapshots, job.snapshots,
                           job.lane_snapshot + offset + v * V::lanes,
                           v + 1 < N ? V::mask(0, V::lanes) : tail);
      }
      into[v] = W == Weights::none ? V::add(into[v], value) : V::fma(weight, value, into[v]);
    }
  };
  [[maybe_unused]] const int reach = std::min(V::lanes, width) - 1;
  const auto ahead = [&]([[maybe_unused]] std::int64_t e) __attribute__((always_inline)) {
    if constexpr (!Ahead) return;
    const T* row = x + ids[e + job.ahead] * stride;
    for (int v = 0; v < N; ++v) __builtin_prefetch(row + at(v));
    // A row that does not fill its registers may begin in one line and end in the next.
    if constexpr (!Full && N == 1 && V::lanes >= 8) __builtin_prefetch(row + reach);
  };

  // The lists are read once, mostly from memory, in one stream that the hardware follows only a
  // short way; asked for this early a line is there when it is needed. Section by section: what a hub
  // asks for at once would drive the rows of x out of the nearest cache.
  std::int64_t e = begin;
  while (e < end) {
    const std::int64_t stop = std::min(e + kSection, end);
    for (std::int64_t at = e; at < stop; at += kLine) {
      __builtin_prefetch(ids + at + kStream);
      if constexpr (W == Weights::one) __builtin_prefetch(job.over_values + at + kStream);
    }
    for (; e + kChains <= stop; e += kChains) {
      for (int c = 0; c < kChains; ++c) ahead(e + c);
      if constexpr (N == 1 && sizeof(T) == 4) {
        // Rows of one register take as long as their loads: two ids come in one.
        for (int c = 0; c < kChains; c += 2) {
          std::int64_t two;
          std::memcpy(&two, ids + e + c, sizeof two);
          asm("" : "+r"(two));  // or the compiler would load each of them again
          one(e + c, static_cast<std::int32_t>(two), chain[c]);
          one(e + c + 1, two >> 32, chain[c + 1]);
        }
      } else {
        for (int c = 0; c < kChains; ++c) one(e + c, ids[e + c], chain[c]);
      }
    }
    if (stop == end) break;
  }
  for (; e < end; ++e) {
    ahead(e);
    one(e, ids[e], chain[0]);
  }
  for (int c = 1; c < kChains; ++c) {
    for (int v = 0; v < N; ++v) chain[0][v] = V::add(chain[0][v], chain[c][v]);
  }
  for (int v = 0; v < N; ++v) sum[v] = chain[0][v];
}

// Adds entries of single snapshots to a row that fits one register: the lanes of the snapshot are
// loaded where they stand, so they need no shift.
template <class V>
inline void add_single(typename V::Reg& sum, const RowJob<typename V::Scalar>& job,
                       std::int64_t begin, std::int64_t end, std::int64_t last,
                       const typename V::Mask* lanes_of) {
  using T = typename V::Scalar;
  constexpr std::int64_t kAhead = 24;
  const std::uint32_t low = (1u << job.shift) - 1u;
  typename V::Reg other = V::zero();
  __builtin_prefetch(job.ex_ids + begin + kStream);
  for (std::int64_t e = begin; e < end; ++e) {
    const std::uint32_t entry = job.ex_ids[e];
    const std::uint32_t next = job.ex_ids[e + kAhead < last ? e + kAhead : last];
    __builtin_prefetch(job.x + static_cast<std::int64_t>(next >> job.shift) * job.stride);
    const T* row = job.x + static_cast<std::int64_t>(entry >> job.shift) * job.stride;
    const auto value = V::load(row, lanes_of[entry & low]);
    other = job.ex_values ? V::fma(V::broadcast(job.ex_values[e]), value, other)
                          : V::add(other, value);
  }
  sum = V::add(sum, other);
}

// Adds entries of single snapshots to a row of sums in memory. F is taken apart into whole registers
// of 16, 8, 4, 2 and 1 scalars: a sum is then read back exactly as it was written last, which a
// processor forwards from the store; a masked or overlapping access would wait for the cache.
// `V` tells the register families' instances apart, which are compiled for different machines. One
// call a row: within each form it would be most of the compiler's time.
template <class V>
__attribute__((noinline)) void add_singles(const RowJob<typename V::Scalar>& job,
                                           std::int64_t begin, std::int64_t end, std::int64_t last,
                                           typename V::Scalar* sums) {
  using T = typename V::Scalar;
  constexpr std::int64_t kAhead = 32;
  const std::uint32_t low = (1u << job.shift) - 1u;
  const int features = job.features;
  const auto place = [&](std::uint32_t entry) {
    return job.x + static_cast<std::int64_t>(entry >> job.shift) * job.stride +
           static_cast<std::int64_t>(entry & low) * features;
  };
  __builtin_prefetch(job.ex_ids + begin + kStream);
  for (std::int64_t e = begin; e < end; ++e) {
    const T* then = place(job.ex_ids[e + kAhead < last ? e + kAhead : last]);
    __builtin_prefetch(then);
    __builtin_prefetch(then + features - 1);  // most often the same line
    const T* from = place(job.ex_ids[e]);
    T* to = sums + static_cast<std::int64_t>(job.ex_ids[e] & low) * features;
    const T weight = job.ex_values ? job.ex_values[e] : T(1);
    const auto step = [&](auto lanes) __attribute__((always_inline)) {
      typedef T Some __attribute__((vector_size(sizeof(T) * decltype(lanes)::value)));
      Some value, sum;
      std::memcpy(&value, from, sizeof(Some));
      std::memcpy(&sum, to, sizeof(Some));
      sum += weight * value;
      std::memcpy(to, &sum, sizeof(Some));
      from += decltype(lanes)::value;
      to += decltype(lanes)::value;
    };
    int left = features;
    for (; left >= 16; left -= 16) step(std::integral_constant<int, 16>{});
    if (left & 8) step(std::integral_constant<int, 8>{});
    if (left & 4) step(std::integral_constant<int, 4>{});
    if (left & 2) step(std::integral_constant<int, 2>{});
    if (left & 1) *to += weight * *from;
  }
}

// All kernels of one register family. `V1` and `V2` hold as many scalars and know no masks; `V4`,
// `V8` and `V16` hold up to 4, 8 and 16. A row keeps its sums in up to `Max` of `V16`, or in more of
// `Wide` where that is wider; wider rows go tile by tile. Without `Tuned` there is one form a width:
// it asks for no row ahead and masks rows that fill their registers too.
template <class V1, class V2, class V4, class V8, class V16, class Wide = V16, int Max = 8,
          bool Tuned = true>
struct Family {
  using T = typename V16::Scalar;

  // The lanes of register v that exist.
  template <class V, int N, Weights W, bool Full>
  static inline __attribute__((always_inline)) auto masks(typename V::Mask tail) {
    const auto all = V::mask(0, V::lanes);
    return [=](int v) { return v + 1 < N || kOverlap<N, W, Full> ? all : tail; };
  }

  // The sums of one row's pieces, without self loop and scale.
  template <class V, int N, Weights W, bool Full, bool Ahead>
  static inline __attribute__((always_inline)) void sums(
      typename V::Reg (&sum)[N], const RowJob<T>& job, std::int64_t ob, std::int64_t oe,
      std::int64_t eb, std::int64_t ee, std::int64_t ex_last, typename V::Mask tail,
      const typename V::Mask* lanes_of, T* scratch) {
    add_shared<V, N, W, Full, Ahead>(sum, job, ob, oe, 0, tail);
    if (eb == ee) return;
    if constexpr (N == 1) {
      add_single<V>(sum[0], job, eb, ee, ex_last, lanes_of);
    } else {
      const auto mask = masks<V, N, W, Full>(tail);
      const auto at = [&job](int v) { return lanes_at<V, N, W, Full>(v, job.width()); };
      for (int v = 0; v < N; ++v) V::store(scratch + at(v), sum[v], mask(v));
      add_singles<V16>(job, eb, ee, ex_last, scratch);
      for (int v = 0; v < N; ++v) sum[v] = V::load(scratch + at(v), mask(v));
    }
  }

  template <class V>
  static void snapshot_lanes(const RowJob<T>& job, typename V::Mask* lanes_of) {
    // One register holds at most V::lanes snapshots, so the table is small.
    for (int s = 0; s < job.snapshots && s < V::lanes; ++s) {
      lanes_of[s] = V::mask(s * job.features, (s + 1) * job.features);
    }
  }

  // Rows [begin, end) of which the lists go on behind the last one, where `Ahead`. With `Plain` the
  // job is, and its rows lie one behind the other where they fill their registers: what is asked at
  // every row, and read again after each row that is written, is a quarter of a short row's time.
  template <class V, int N, Weights W, bool Full, bool Ahead, bool Plain>
  static void span(const RowJob<T>& given, std::int64_t begin, std::int64_t end,
                   std::int64_t ex_last, T* scratch) {
    constexpr bool kDense = Plain && Full;
    const std::conditional_t<Plain, RowJob<T>, const RowJob<T>&> job = given;
    const std::int64_t stride = kDense ? N * V::lanes : job.stride;
    const int d = job.width();
    const auto tail = V::mask(0, d - (N - 1) * V::lanes);
    const auto mask = masks<V, N, W, Full>(tail);
    const auto at = [d](int v) { return lanes_at<V, N, W, Full>(v, d); };
    typename V::Mask lanes_of[V::lanes];
    snapshot_lanes<V>(job, lanes_of);
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int64_t r = job.order ? job.order[k] : k;
      if (Ahead && job.order) {
        // Rows of y are written in no order that the hardware could follow.
        const T* next = job.y + job.order[std::min(k + kRowsAhead, end - 1)] * stride;
        for (int v = 0; v < N; ++v) __builtin_prefetch(next + at(v), 1);
      }
      typename V::Reg sum[N];
      for (int v = 0; v < N; ++v) sum[v] = V::zero();
      if constexpr (Plain) {
        add_shared<V, N, W, Full, Ahead, kDense>(sum, job, job.over_ptr[k], job.over_ptr[k + 1], 0,
                                                 tail);
      } else {
        sums<V, N, W, Full, Ahead>(sum, job, job.over_ptr[k], job.over_ptr[k + 1],
                                   job.ex_ptr ? job.ex_ptr[k] : 0,
                                   job.ex_ptr ? job.ex_ptr[k + 1] : 0, ex_last, tail, lanes_of,
                                   scratch);
      }
      const T* own = job.x + r * stride;
      T* out = job.y + r * stride;
      for (int v = 0; v < N; ++v) {
        auto value = sum[v];
        if (!Plain && job.self_loop) value = V::add(value, V::load(own + at(v), mask(v)));
        if (!Plain && job.row_scale) {
          value = V::mul(value, job.snapshots == 1
                                    ? V::broadcast(job.row_scale[r])
                                    : V::spread(job.row_scale + r * job.snapshots, job.snapshots,
                                                job.lane_snapshot + at(v), mask(v)));
        }
        V::store(out + at(v), value, mask(v));
      }
    }
  }

  template <class V, int N, Weights W, bool Full>
  static void rows(const RowJob<T>& job, std::int64_t begin, std::int64_t end, T* scratch) {
    // Rows of more registers take too long for it to matter.
    constexpr bool kPlain = Tuned && N <= 3 && W != Weights::per_snapshot;
    if (kPlain && job.plain() && (!Full || job.stride == N * V::lanes)) {
      spans<V, N, W, Full, kPlain>(job, begin, end, scratch);
    } else {
      spans<V, N, W, Full, false>(job, begin, end, scratch);
    }
  }

  template <class V, int N, Weights W, bool Full, bool Plain>
  static void spans(const RowJob<T>& job, std::int64_t begin, std::int64_t end, T* scratch) {
    const std::int64_t ex_last = job.ex_ptr ? job.ex_ptr[end] - 1 : 0;
    std::int64_t split = Tuned && job.ahead > 0 ? end : begin;
    while (split > begin && !job.goes_on(job.over_ptr[split])) --split;
    if (begin < split) span<V, N, W, Full, Tuned, Plain>(job, begin, split, ex_last, scratch);
    if (split < end) span<V, N, W, Full, false, Plain>(job, split, end, ex_last, scratch);
  }

  template <class V, int N, Weights W, bool Full>
  static void piece(const RowJob<T>& job, std::int64_t ob, std::int64_t oe, std::int64_t eb,
                    std::int64_t ee, T* out, T* scratch) {
    const auto tail = V::mask(0, job.width() - (N - 1) * V::lanes);
    typename V::Mask lanes_of[V::lanes];
    snapshot_lanes<V>(job, lanes_of);
    typename V::Reg sum[N];
    for (int v = 0; v < N; ++v) sum[v] = V::zero();
    RowJob<T> here = job;
    if (!job.goes_on(oe)) here.ahead = 0;  // asks for the row that it reads
    sums<V, N, W, Full, Tuned>(sum, here, ob, oe, eb, ee, ee - 1, tail, lanes_of, scratch);
    const auto mask = masks<V, N, W, Full>(tail);
    for (int v = 0; v < N; ++v) {
      V::store(out + lanes_at<V, N, W, Full>(v, job.width()), sum[v], mask(v));
    }
  }

  // Rows wider than `Max` registers: the shared list once per tile, into a row held in scratch.
  template <Weights W, bool Ahead>
  static void wide_shared(const RowJob<T>& job, std::int64_t ob, std::int64_t oe, T* out) {
    constexpr int kTile = 4 * V16::lanes;
    const int d = job.width();
    const auto all = V16::mask(0, V16::lanes);
    int at = 0;
    for (; at + kTile <= d; at += kTile) {
      typename V16::Reg sum[4] = {V16::zero(), V16::zero(), V16::zero(), V16::zero()};
      add_shared<V16, 4, W, true, Ahead>(sum, job, ob, oe, at, all);
      for (int v = 0; v < 4; ++v) V16::store(out + at + v * V16::lanes, sum[v], all);
    }
    for (; at < d; at += V16::lanes) {
      typename V16::Reg sum[1] = {V16::zero()};
      const auto m = V16::mask(0, d - at);
      add_shared<V16, 1, W, false, Ahead>(sum, job, ob, oe, at, m);
      V16::store(out + at, sum[0], m);
    }
  }

  template <Weights W>
  static void wide_piece(const RowJob<T>& job, std::int64_t ob, std::int64_t oe, std::int64_t eb,
                         std::int64_t ee, T* out, T*) {
    if (Tuned && job.goes_on(oe)) {
      wide_shared<W, Tuned>(job, ob, oe, out);
    } else {
      wide_shared<W, false>(job, ob, oe, out);
    }
    add_singles<V16>(job, eb, ee, ee - 1, out);
  }

  template <Weights W>
  static void wide_rows(const RowJob<T>& job, std::int64_t begin, std::int64_t end, T*) {
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int64_t r = job.order ? job.order[k] : k;
      T* out = job.y + r * job.stride;
      wide_piece<W>(job, job.over_ptr[k], job.over_ptr[k + 1], job.ex_ptr ? job.ex_ptr[k] : 0,
                    job.ex_ptr ? job.ex_ptr[k + 1] : 0, out, nullptr);
      const T* own = job.x + r * job.stride;
      for (int s = 0; s < job.snapshots; ++s) {
        const T scale = job.row_scale ? job.row_scale[r * job.snapshots + s] : T(1);
        for (int j = s * job.features; j < (s + 1) * job.features; ++j) {
          out[j] = (job.self_loop ? out[j] + own[j] : out[j]) * scale;
        }
      }
    }
  }

  template <class V, int N, bool Full>
  static RowKernels<T> weighted(Weights w) {
    switch (w) {
      case Weights::none:
        return {rows<V, N, Weights::none, Full>, piece<V, N, Weights::none, Full>};
      case Weights::one:
        return {rows<V, N, Weights::one, Full>, piece<V, N, Weights::one, Full>};
      default:
        return {rows<V, N, Weights::per_snapshot, Full>,
                piece<V, N, Weights::per_snapshot, Full>};
    }
  }

  // Rows that fill their registers need no masks in the inner loop.
  template <class V, int N>
  static RowKernels<T> filled(int d, Weights w) {
    return Tuned && d == N * V::lanes ? weighted<V, N, Tuned>(w) : weighted<V, N, false>(w);
  }

  // Kernels with N to Last registers of V; none where a row needs more.
  template <class V, int N, int Last>
  static RowKernels<T> by_registers(int d, Weights w) {
    if constexpr (N > Last) {
      return {};
    } else {
      if (d <= N * V::lanes) return filled<V, N>(d, w);
      return by_registers<V, N + 1, Last>(d, w);
    }
  }

  // `single`: one snapshot and no entries of its own.
  static RowKernels<T> pick(int d, Weights w, bool single) {
    if (d == 1 && single) return weighted<V1, 1, true>(w);
    if (d == 2 && single) return weighted<V2, 1, true>(w);
    if (d <= 4) return filled<V4, 1>(d, w);
    if (d <= 8) return filled<V8, 1>(d, w);
    const RowKernels<T> found = by_registers<V16, 1, Max>(d, w);
    if (found.rows) return found;
    if constexpr (Wide::lanes > V16::lanes) {
      const RowKernels<T> wider = by_registers<Wide, Max / 2 + 1, Max>(d, w);
      if (wider.rows) return wider;
    }
    switch (w) {
      case Weights::none:
        return {wide_rows<Weights::none>, wide_piece<Weights::none>};
      case Weights::one:
        return {wide_rows<Weights::one>, wide_piece<Weights::one>};
      default:
        return {wide_rows<Weights::per_snapshot>, wide_piece<Weights::per_snapshot>};
    }
  }
};

// Compiled in their own files. Where the compiler has no such registers, the next narrower ones.
RowKernels<float> pick_avx512(int width, Weights weights, bool single);
RowKernels<float> pick_avx2(int width, Weights weights, bool single);
RowKernels<float> pick_portable(int width, Weights weights, bool single);
RowKernels<double> pick_portable_double(int width, Weights weights, bool single);

}  // namespace dgbench

// The events of a stream as rows by source, each in time order, and the share of every row that a
// training set keeps (T-GCN 3.1, section 6.1.2).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/caught.hpp"
#include "common/check.hpp"
#include "common/counting.hpp"
#include "common/work_division.hpp"
#include "edge_sampling/cpu_philox_words.hpp"
#include "edge_sampling/cpu_table.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {

EdgeTable::EdgeTable(Array<const std::int64_t> indptr_, Array<const std::int32_t> dst_,
                     Array<const std::int32_t> eid_, Array<const double> t_, std::int64_t edges_,
                     bool undirected_)
    : vertices(static_cast<std::int64_t>(indptr_.size()) - 1),
      records(static_cast<std::int64_t>(t_.size())),
      edges(edges_),
      undirected(undirected_),
      indptr(indptr_.data()),
      dst(dst_.data()),
      eid(eid_.data()),
      t(t_.data()),
      indptr_(indptr_),
      dst_(dst_),
      eid_(eid_),
      t_(t_) {
  check_offsets(indptr, indptr_.size(), t_.size(), "indptr");
  check_size(dst_, t_.size(), "dst");
  check_size(eid_, t_.size(), "eid");
  if (!ids_in_range(dst, dst_.size(), vertices)) reject("dst holds ids outside [0, N)");
  if (!ids_in_range(eid, eid_.size(), edges)) reject("eid holds ids outside [0, E)");
  for (std::int64_t v = 0; v < vertices; ++v) {
    if (indptr[v] < indptr[v + 1]) occupied.push_back(static_cast<std::int32_t>(v));
    if (!std::is_sorted(t + indptr[v], t + indptr[v + 1])) reject("t decreases inside a row");
  }
}

namespace {

constexpr std::int64_t kLargest = 0x7fffffff;
constexpr std::int64_t kBuckets = 256;       // streams that a core writes to at once
constexpr std::int64_t kBucket = 1 << 15;    // records below which another bucket does not pay
constexpr std::int64_t kShortRow = 1 << 16;  // edges of a row that 32 random bits each are drawn for

constexpr std::uint32_t kPurpose = 0x4b454550u;  // apart from the numbers of other operators
enum Use : std::uint32_t { kKeep, kRound };

// Random words of a row.
PhiloxStream words_of(std::uint64_t seed, std::int64_t row, Use use) {
  const auto id = static_cast<std::uint64_t>(row);
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32) ^ kPurpose,
          static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32), use};
}

struct Record {
  std::int32_t source;
  std::int32_t neighbour;
  std::int32_t eid;
  double time;
};

// Rows of E events, or of 2E half edges: event i at its source, then at its destination, so that
// equal times keep the order of arrival. Events come in time order; `eid` names them, or their place.
//
// Sorting straight into the rows would miss the cache three times for a record. Records first go to
// a few buckets of neighbouring sources, each of which is then sorted where it fits a cache.
void build_edge_table(Array<const std::int64_t> src, Array<const std::int64_t> dst,
                      Array<const double> t, Maybe<const std::int64_t> eid, bool undirected,
                      Array<std::int64_t> indptr, Array<std::int32_t> neighbours,
                      Array<std::int32_t> eids, Array<double> times, int threads) {
  const std::size_t events = src.size();
  const auto records = static_cast<std::int64_t>(undirected ? 2 * events : events);
  const auto vertices = static_cast<std::int64_t>(indptr.size()) - 1;
  if (vertices < 0 || vertices > kLargest) reject("num_nodes out of its range");
  if (static_cast<std::int64_t>(events) > kLargest) reject("too many events for 32-bit ids");
  check_size(dst, events, "dst");
  check_size(t, events, "t");
  check_optional(eid, events, "eid");
  check_size(neighbours, static_cast<std::size_t>(records), "neighbours");
  check_size(eids, static_cast<std::size_t>(records), "eids");
  check_size(times, static_cast<std::size_t>(records), "times");
  if (!ids_in_range(src.data(), events, vertices)) reject("src holds ids outside [0, N)");
  if (!ids_in_range(dst.data(), events, vertices)) reject("dst holds ids outside [0, N)");
  const std::int64_t* const names = pointer(eid);
  if (names && !ids_in_range(names, events, static_cast<std::int64_t>(events))) {
    reject("eid holds ids outside [0, E)");
  }
  nb::gil_scoped_release release;
  threads = std::max(1, threads);
  const std::int64_t* ends[2] = {src.data(), dst.data()};
  int shift = 0;
  const std::int64_t wanted = std::clamp<std::int64_t>(records / kBucket, 1, kBuckets);
  while ((std::max<std::int64_t>(vertices, 1) - 1) >> shift >= wanted) ++shift;
  const std::int64_t buckets = ((std::max<std::int64_t>(vertices, 1) - 1) >> shift) + 1;
  std::vector<Record> parted(static_cast<std::size_t>(records));
  std::vector<std::int64_t> starts(static_cast<std::size_t>(buckets) + 1);
  const auto bucket = [&](std::int64_t i) {
    return (undirected ? ends[i & 1][i >> 1] : ends[0][i]) >> shift;
  };
  const auto place = [&](std::int64_t i, std::int64_t at) {
    const std::int64_t e = undirected ? i >> 1 : i;
    const int side = undirected ? static_cast<int>(i & 1) : 0;
    parted[at] = {static_cast<std::int32_t>(ends[side][e]),
                  static_cast<std::int32_t>(ends[1 - side][e]),
                  static_cast<std::int32_t>(names ? names[e] : e), t.data()[e]};
  };
  group_by(records, buckets, threads, starts.data(), bucket, place);
  indptr.data()[0] = 0;
  Caught caught;
#pragma omp parallel num_threads(threads)
  {
    std::vector<std::int64_t> next;
    caught.run([&] { next.resize(std::size_t{1} << shift); });
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t b = 0; b < buckets; ++b) {
      const std::int64_t first = b << shift;
      const std::int64_t count = std::min<std::int64_t>(vertices - first, std::int64_t{1} << shift);
      if (count <= 0 || caught.any()) continue;
      std::fill(next.begin(), next.begin() + count, 0);
      for (std::int64_t i = starts[b]; i < starts[b + 1]; ++i) ++next[parted[i].source - first];
      std::int64_t at = starts[b];
      for (std::int64_t v = 0; v < count; ++v) {
        const std::int64_t mine = next[v];
        next[v] = at;
        at += mine;
        indptr.data()[first + v + 1] = at;
      }
      for (std::int64_t i = starts[b]; i < starts[b + 1]; ++i) {
        const Record& one = parted[i];
        const std::int64_t to = next[one.source - first]++;
        neighbours.data()[to] = one.neighbour;
        eids.data()[to] = one.eid;
        times.data()[to] = one.time;
      }
    }
  }
  caught.rethrow();
}

// Marks which of a row's edges are kept: the next one with probability needed / left, so that every
// choice of `needed` among them is as likely as any other. One pass, no memory and no branches. A
// probability is rounded up to the next multiple of 2^-32, or 2^-64 in long rows.
template <class Word>
void keep_row(const std::int32_t* eids, std::int64_t degree, std::int64_t needed,
              const PhiloxStream& numbers, bool* keep) {
  constexpr std::int64_t kAtOnce = 512;
  constexpr int kPerBlock = 16 / sizeof(Word);
  alignas(64) Word words[kAtOnce];
  std::int64_t left = degree;
  for (std::int64_t from = 0; from < degree; from += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, degree - from);
    philox_words(numbers, static_cast<std::uint32_t>(from / kPerBlock), count, words);
    for (std::int64_t i = 0; i < count; ++i, --left) {
      bool taken;
      if constexpr (sizeof(Word) == 4) {
        taken = std::uint64_t{words[i]} * static_cast<std::uint64_t>(left) <
                static_cast<std::uint64_t>(needed) << 32;
      } else {
        taken = mul_high(words[i], static_cast<std::uint64_t>(left)) <
                static_cast<std::uint64_t>(needed);
      }
      keep[eids[from + i]] = taken;
      needed -= taken;
    }
  }
}

// keep[e] for every edge of a directed table. `needed`: how many each row keeps.
void keep_share(const EdgeTable& table, Array<const std::int64_t> needed, std::uint64_t seed,
                Array<bool> keep, int threads) {
  const std::int64_t vertices = table.vertices;
  check_size(needed, static_cast<std::size_t>(vertices), "needed");
  check_size(keep, static_cast<std::size_t>(table.edges), "keep");
  if (table.undirected || table.records != table.edges) reject("every edge must be in one row");
  nb::gil_scoped_release release;
  const std::int64_t* const rows = table.indptr;
  const auto cost = [&](std::int64_t v) { return rows[v] + 8 * v; };
  const std::int64_t work = cost(vertices);
  threads = work < kSerialWork ? 1 : std::max(1, threads);
  const std::int64_t chunks = count_chunks(work, threads);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t last = chunk_start(vertices, work, c + 1, chunks, cost);
    for (std::int64_t v = chunk_start(vertices, work, c, chunks, cost); v < last; ++v) {
      const std::int64_t degree = rows[v + 1] - rows[v];
      const PhiloxStream numbers = words_of(seed, v, kKeep);
      const std::int32_t* const mine = table.eid + rows[v];
      if (degree < kShortRow) {
        keep_row<std::uint32_t>(mine, degree, needed.data()[v], numbers, keep.data());
      } else {
        keep_row<std::uint64_t>(mine, degree, needed.data()[v], numbers, keep.data());
      }
    }
  }
}

// A number in [0, 1) for every row.
void row_uniforms(std::uint64_t seed, Array<double> out, int threads) {
  const auto rows = static_cast<std::int64_t>(out.size());
  nb::gil_scoped_release release;
#pragma omp parallel for num_threads(std::max(1, threads)) if (rows > kSerialWork)
  for (std::int64_t v = 0; v < rows; ++v) {
    const PhiloxStream of = words_of(seed, v, kRound);
    const Draws drawn = philox(0, of.c1, of.c2, of.c3, of.k0, of.k1);
    out.data()[v] = static_cast<double>(drawn.even >> 11) * 0x1p-53;
  }
}

}  // namespace

void bind_edge_table(nb::module_& m) {
  m.def("build_edge_table", &build_edge_table, "src"_a.noconvert(), "dst"_a.noconvert(),
        "t"_a.noconvert(), "eid"_a.noconvert().none(), "undirected"_a, "indptr"_a.noconvert(),
        "neighbours"_a.noconvert(), "eids"_a.noconvert(), "times"_a.noconvert(), "threads"_a);
  m.def("row_uniforms", &row_uniforms, "seed"_a, "out"_a.noconvert(), "threads"_a);
  m.def("keep_share", &keep_share, "table"_a, "needed"_a.noconvert(), "seed"_a,
        "keep"_a.noconvert(), "threads"_a);
  nb::class_<EdgeTable>(m, "EdgeRows")
      .def(nb::init<Array<const std::int64_t>, Array<const std::int32_t>,
                    Array<const std::int32_t>, Array<const double>, std::int64_t, bool>(),
           "indptr"_a.noconvert(), "dst"_a.noconvert(), "eid"_a.noconvert(), "t"_a.noconvert(),
           "edges"_a, "undirected"_a);
}

}  // namespace dgbench

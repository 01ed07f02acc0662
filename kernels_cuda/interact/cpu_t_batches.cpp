// t-batches (JODIE, KDD 2019, section 4.2): events cut into batches in which no vertex occurs twice,
// such that going batch by batch is going event by event. One pass.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>

#include "common/check.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

// batch int64[B] of each event; returns how many batches there are. An event comes after every earlier
// one that wrote a vertex it names, and not before one that read a vertex it writes: within a batch
// all read before any writes. With times, float64[B] and not falling, events of one time read before
// any of them writes, so they share a batch. wrote, read int32[N] are all -1 before and after.
std::int64_t t_batches(Array<const std::int64_t> src, Array<const std::int64_t> dst,
                       Array<const std::int64_t> neg, Array<const double> times,
                       Array<std::int32_t> wrote, Array<std::int32_t> read,
                       Array<std::int64_t> batch, int) {
  const std::size_t events = src.size();
  check_size(dst, events, "dst");
  if (neg.size() != 0) check_size(neg, events, "neg");
  if (times.size() != 0) check_size(times, events, "times");
  check_size(batch, events, "batch");
  check_size(read, wrote.size(), "read");
  const auto limit = static_cast<std::int64_t>(wrote.size());
  if (!ids_in_range(src.data(), events, limit) || !ids_in_range(dst.data(), events, limit) ||
      !ids_in_range(neg.data(), neg.size(), limit)) {
    reject("src, dst and neg must lie in [0, N)");
  }
  nb::gil_scoped_release release;
  std::int32_t most = -1;
  for (std::size_t first = 0, last = 0; first < events; first = last) {
    std::int32_t at = 0;
    do {  // events of one time
      const std::int64_t u = src.data()[last];
      const std::int64_t v = dst.data()[last];
      at = std::max({at, wrote.data()[u] + 1, wrote.data()[v] + 1});
      at = std::max({at, read.data()[u], read.data()[v]});
      if (neg.size() != 0) at = std::max(at, wrote.data()[neg.data()[last]] + 1);
      ++last;
    } while (last < events && times.size() != 0 && times.data()[last] == times.data()[first]);
    for (std::size_t k = first; k < last; ++k) {
      if (neg.size() != 0) read.data()[neg.data()[k]] = std::max(read.data()[neg.data()[k]], at);
      wrote.data()[src.data()[k]] = wrote.data()[dst.data()[k]] = at;
      batch.data()[k] = at;
    }
    most = std::max(most, at);
  }
  for (std::size_t k = 0; k < events; ++k) {
    wrote.data()[src.data()[k]] = wrote.data()[dst.data()[k]] = -1;
    if (neg.size() != 0) read.data()[neg.data()[k]] = -1;
  }
  return most + 1;
}

}  // namespace

void bind_t_batches(nb::module_& m) {
  m.def("t_batches", &t_batches, "src"_a.noconvert(), "dst"_a.noconvert(), "neg"_a.noconvert(),
        "times"_a.noconvert(), "wrote"_a.noconvert(), "read"_a.noconvert(),
        "batch"_a.noconvert(), "threads"_a);
}

}  // namespace dgbench

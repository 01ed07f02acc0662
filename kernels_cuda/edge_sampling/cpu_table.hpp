// The edges of a graph as rows by source, checked once: samplers follow what stands in them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/check.hpp"

namespace dgbench {

struct EdgeTable {
  EdgeTable(Array<const std::int64_t> indptr_, Array<const std::int32_t> dst_,
            Array<const std::int32_t> eid_, Array<const double> t_, std::int64_t edges_,
            bool undirected_);

  std::int64_t degree(std::int32_t v) const { return indptr[v + 1] - indptr[v]; }

  // How many of v's edges are before `bound`: rows are in time order.
  std::int64_t count_before(std::int32_t v, double bound) const {
    const double* const row = t + indptr[v];
    return std::lower_bound(row, t + indptr[v + 1], bound) - row;
  }

  std::int64_t vertices, records, edges;
  bool undirected;
  const std::int64_t* indptr;
  const std::int32_t* dst;
  const std::int32_t* eid;
  const double* t;
  std::vector<std::int32_t> occupied;  // vertices with an edge, ascending

 private:
  Array<const std::int64_t> indptr_;  // what the pointers point into
  Array<const std::int32_t> dst_, eid_;
  Array<const double> t_;
};

}  // namespace dgbench

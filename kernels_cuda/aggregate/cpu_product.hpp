// The product of `spmm` and `aggregate_parts` for other operators of _cpu.
#pragma once

#include "aggregate/cpu_rows.hpp"

namespace dgbench {

// y = R (A [+ I]) C x for one matrix or the snapshots of a partition. The job names lists, order, x,
// y, snapshots, features, row_scale and self_loop; its other fields are found here. Columns are
// scaled where col_scale [columns, S] is not null. May be called in a parallel region.
template <class T>
void multiply_rows(const RowJob<T>& job, std::int64_t rows, std::int64_t columns,
                   const T* col_scale, int threads);

}  // namespace dgbench

// Overlaps and unions of snapshots as plain functions, in the manner of common/launchers.h.
#pragma once

#include <cstdint>

#include "overlap/functors.hpp"

namespace dgbench {

extern "C" {
// `long_rows`: null, or int32[dgb_long_rows_size] for both passes, by which rows that are long in
// all snapshots together are cut into tiles. `entries` are those of all snapshots.
int64_t dgb_long_rows_size(int64_t entries, int64_t snapshots);
int dgb_count_shared(const CountShared* functor, int64_t rows, int64_t entries, int32_t* long_rows,
                     void* stream);
int dgb_split(const FillSplit* functor, int64_t rows, int64_t entries, int32_t* long_rows,
              void* stream);
int dgb_count_union(const CountUnion* functor, int64_t rows, void* stream);
int dgb_unite(const FillUnion* functor, int64_t rows, void* stream);
}

}  // namespace dgbench

// Aggregation and its transpose as plain functions, in the manner of common/launchers.h.
#pragma once

#include <cstdint>

namespace dgbench {

struct AggregateArgs {
  const int64_t* over_indptr;   // [rows + 1]
  const int32_t* over_indices;  // [over]
  const float* over_values;     // [over] or [over, S] or null
  int32_t per_snapshot;         // over_values has S columns
  const int64_t* ex_indptr;     // [rows + 1] or null
  const uint32_t* ex_entries;   // column << shift | snapshot
  const float* ex_values;       // [ex] or null
  int32_t shift;
  const float* x;          // aggregate [columns, S F]; scatter [rows, S F]
  float* y;                // aggregate [rows, S F]; scatter [columns, S F]
  const float* row_scale;  // [rows, S] or null
  const float* col_scale;  // [columns, S] or null
  int64_t rows, columns;
  int32_t snapshots, features;
  int32_t self_loop;
  int64_t entries;       // of both lists
  const int32_t* heavy;  // table of long rows (aggregate/heavy_rows.hpp), or null
  float* partials;       // [dgb_heavy_slots(entries), S F], with `heavy`; not for scatter
  int32_t owner_alone;   // no segments: every row by its owner or the owner's block
};

extern "C" {
// Long rows of a topology into `table`, int32[dgb_heavy_size(entries)].
int64_t dgb_heavy_size(int64_t entries);
int64_t dgb_heavy_slots(int64_t entries);
int dgb_list_heavy(const int64_t* over_indptr, const int64_t* ex_indptr, int64_t rows,
                   int64_t entries, int32_t* table, void* stream);
int dgb_aggregate(const AggregateArgs* args, void* stream);
int dgb_scatter(const AggregateArgs* args, void* stream);
}

}  // namespace dgbench

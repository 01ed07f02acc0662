// Aggregation and its transpose as plain functions, in the manner of common/launchers.h.
#pragma once

#include <cstdint>

namespace dgbench {

// How long rows are shared out: by a rule (`takes_tiles`), every row to its owner or the owner's
// block, long rows in segments, or all rows and entries in equal tiles.
enum AggregateForm { kChosen, kOwnerAlone, kBySegments, kByTiles };

struct AggregateArgs {
  const int64_t* over_indptr;   // [rows + 1]
  const int32_t* over_indices;  // [over]
  const float* over_values;     // [over] or [over, S] or null
  int32_t per_snapshot;         // over_values has S columns
  const uint32_t* over_bits;    // [over] which snapshots hold the entry, or null: all do
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
  const int32_t* tiles;  // of the same table: where tiles begin (aggregate/tiles.hpp)
  float* partials;       // [dgb_heavy_slots(rows, entries), S F], with `heavy`; not for scatter
  int32_t form;          // AggregateForm
};

extern "C" {
// Long rows of a topology into `table`, int32[dgb_heavy_size(rows, entries)], and behind them, from
// dgb_tiles_at(entries) on, where its tiles begin. Tiles are of the first list alone.
int64_t dgb_heavy_size(int64_t rows, int64_t entries);
int64_t dgb_heavy_slots(int64_t rows, int64_t entries);
int64_t dgb_tiles_at(int64_t entries);
int dgb_list_heavy(const int64_t* over_indptr, const int64_t* ex_indptr, int64_t rows,
                   int64_t entries, int32_t* table, void* stream);
int dgb_aggregate(const AggregateArgs* args, void* stream);
int dgb_aggregate_tiles(const AggregateArgs* args, void* stream);  // at most kNarrow columns, one list
int dgb_scatter(const AggregateArgs* args, void* stream);
}

}  // namespace dgbench

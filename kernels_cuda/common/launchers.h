// The device operators as plain functions: pointers, sizes and a stream (a cudaStream_t), no Python.
//
// Each returns 0 or a cudaError_t of the launch; dgb_error_text explains it. None waits for the
// device, allocates, or touches the default stream. Arrays are float32, int32 ids and int64 offsets;
// what the arguments mean is said beside the CPU functions of the same names.
#pragma once

#include <cstdint>

#include "overlap/functors.hpp"
#include "slices/unpack_functors.hpp"
#include "variants/slice_coalescing.hpp"

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

struct ScanArgs {
  int64_t steps, vertices;
  int32_t features, hidden, gates;
  const float* x;  // [T, N, F] with strides x_step and x_row
  int64_t x_step, x_row;
  const float *w_in, *w_hid, *bias;
  const float *h0, *c0;                       // [N, H] or null
  float *h_all, *h_last, *c_last, *record;    // h_all, record may be null
  // Packed rows, as on the CPU; each may be null.
  const int32_t* begins;             // [T, N]: -1 goes on, -2 from zero, k from row k of the starts
  const float *h_starts, *c_starts;  // [S, H]
  float* c_all;                      // [T, N, H]
};

struct ScanGradArgs {
  ScanArgs in;  // record is read; h_all, h_last, c_last are not used
  const float *grad_h_all, *grad_h_last, *grad_c_last;  // each may be null
  float* grad_x;                                        // strides below; may be null
  int64_t grad_x_step, grad_x_row;
  float *grad_w_in, *grad_w_hid, *grad_bias, *grad_h0, *grad_c0;  // each may be null
  float* workspace;
  const float* grad_c_all;
  float *grad_h_starts, *grad_c_starts;
};

extern "C" {
const char* dgb_error_text(int code);
const char* dgb_architectures();
// Launches an empty kernel and waits; the answer says whether this build runs on this device.
int dgb_probe();

int dgb_check_csr(const int64_t* indptr, const int32_t* indices, int64_t rows, int64_t nnz,
                  int64_t num_cols, int64_t* found, void* stream);
int dgb_count_slices(const int64_t* indptr, int64_t rows, int64_t cap, int64_t* counts,
                     void* stream);
int dgb_fill_slices(const int64_t* indptr, const int64_t* first, int64_t rows, int64_t cap,
                    int64_t slices, int32_t* row_indices, int64_t* slice_offsets, void* stream);
// `long_rows`: null, or int32[dgb_long_rows_size] for both passes, by which rows that are long in all
// snapshots together are cut into tiles. `entries` are those of all snapshots.
int64_t dgb_long_rows_size(int64_t entries, int64_t snapshots);
int dgb_count_shared(const CountShared* functor, int64_t rows, int64_t entries, int32_t* long_rows,
                     void* stream);
int dgb_split(const FillSplit* functor, int64_t rows, int64_t entries, int32_t* long_rows,
              void* stream);
int dgb_count_union(const CountUnion* functor, int64_t rows, void* stream);
int dgb_unite(const FillUnion* functor, int64_t rows, void* stream);

// Long rows of a topology into `table`, int32[dgb_heavy_size(entries)].
int64_t dgb_heavy_size(int64_t entries);
int64_t dgb_heavy_slots(int64_t entries);
int dgb_list_heavy(const int64_t* over_indptr, const int64_t* ex_indptr, int64_t rows,
                   int64_t entries, int32_t* table, void* stream);
int dgb_aggregate(const AggregateArgs* args, void* stream);
int dgb_scatter(const AggregateArgs* args, void* stream);

// `vector` is the most floats a lane may load at once; where addresses are not aligned it takes
// fewer. `clocks` is null or int64[warps, 3]: begin, end, multiprocessor of every warp.
int64_t dgb_sliced_warp_count(const SliceWarp* warp, int vector);
int dgb_aggregate_sliced(const SliceWarp* warp, int vector, int64_t* clocks, void* stream);
int dgb_scatter_sliced(const SliceWarp* warp, int vector, void* stream);
int64_t dgb_gespmm_warp_count(int64_t rows, int features, int64_t entries);
int dgb_spmm_gespmm(const int64_t* indptr, const int32_t* indices, const float* values,
                    int64_t rows, int64_t entries, int features, const float* x, float* y,
                    int64_t* clocks, void* stream);

// The device that launches of this thread go to.
int dgb_current_device(int* number);
int dgb_use_device(int number);

// What arrives over the link is put together on the device.
int dgb_unpack_offsets(const UnpackOffsets* functor, void* stream);
int dgb_merge_exclusive(const MergeExclusive* functor, void* stream);

// Elements of float32 that the scans need beside their results.
int64_t dgb_scan_record_size(int64_t steps, int64_t vertices, int64_t features, int64_t hidden,
                             int64_t gates);
int64_t dgb_scan_workspace_size(int64_t steps, int64_t vertices, int64_t features, int64_t hidden,
                                int64_t gates);
int dgb_scan_forward(const ScanArgs* args, void* stream);
int dgb_scan_backward(const ScanGradArgs* args, void* stream);
}

}  // namespace dgbench

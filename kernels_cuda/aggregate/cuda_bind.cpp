// Bindings of the aggregation and of its transposed form; see aggregate/cpu.cpp for the arguments.
// Where the CPU takes an order of rows, a device takes the table of long rows (aggregate/heavy_rows.hpp).
#include "aggregate/cuda_launchers.h"
#include "aggregate/tiles.hpp"
#include "common/operator_definition.hpp"

using namespace nb::literals;

namespace dgbench {
namespace {

using In = MaybeDevice<const float>;
using Offsets = DeviceArray<const int64_t>;
using MaybeOffsets = MaybeDevice<const int64_t>;
using Ids = DeviceArray<const int32_t>;
using MaybeIds = MaybeDevice<const int32_t>;
using Plane = nb::ndarray<float, nb::ndim<2>, nb::c_contig, Device>;
using ConstPlane = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, Device>;
using Block = nb::ndarray<float, nb::ndim<3>, nb::c_contig, Device>;
using ConstBlock = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, Device>;

// The table and the room for partial sums that belongs to it.
void take_heavy(AggregateArgs& a, const MaybeIds& heavy, const MaybeDevice<float>& partials,
                int form) {
  if (form < kChosen || form > kByTiles) reject("form is none of 0 to 3");
  a.form = form;
  if (form == kByTiles && (!heavy || !partials || a.ex_indptr != nullptr)) {
    reject("tiles need order and partials, and take no ex_indptr");
  }
  if (form == kByTiles && a.snapshots * a.features > kNarrow) reject("x is too wide for tiles");
  if (!heavy) return;
  check_size(*heavy, static_cast<std::size_t>(dgb_heavy_size(a.rows, a.entries)), "order");
  a.heavy = heavy->data();
  a.tiles = a.heavy + dgb_tiles_at(a.entries);
  const int64_t wanted = dgb_heavy_slots(a.rows, a.entries) * a.snapshots * a.features;
  if (partials && static_cast<int64_t>(partials->size()) < wanted) reject("partials is too small");
  a.partials = address(partials);
}

void spmm(Offsets indptr, Ids indices, In values, MaybeIds heavy, ConstPlane x, Plane y,
          In row_scale, In col_scale, bool self_loop, std::uintptr_t stream,
          MaybeDevice<float> partials, int form) {
  const std::size_t rows = y.shape(0);
  check_size(indptr, rows + 1, "indptr");
  check_optional(values, indices.size(), "values");
  check_optional(row_scale, rows, "row_scale");
  check_optional(col_scale, x.shape(0), "col_scale");
  if (x.shape(1) != y.shape(1)) reject("x and y differ in features");
  if (self_loop && rows > x.shape(0)) reject("self_loop needs a column for every row");
  AggregateArgs a{};
  a.over_indptr = indptr.data();
  a.over_indices = indices.data();
  a.over_values = address(values);
  a.x = x.data();
  a.y = y.data();
  a.row_scale = address(row_scale);
  a.col_scale = address(col_scale);
  a.rows = static_cast<int64_t>(rows);
  a.columns = static_cast<int64_t>(x.shape(0));
  a.snapshots = 1;
  a.features = static_cast<int32_t>(x.shape(1));
  a.self_loop = self_loop;
  a.entries = static_cast<int64_t>(indices.size());
  take_heavy(a, heavy, partials, form);
  if (a.heavy && !a.partials && dgb_heavy_slots(a.rows, a.entries) > 0) reject("partials is missing");
  check_launch(dgb_aggregate(&a, stream_of(stream)), "spmm");
}

// Transposed: x has a row per row of A and y one per column; otherwise the other way round.
template <bool TRANSPOSED>
void aggregate_parts(Offsets over_indptr, Ids over_indices, In over_values, MaybeOffsets ex_indptr,
                     MaybeIds ex_entries, In ex_values, MaybeIds heavy, ConstBlock x, Block y,
                     In row_scale, In col_scale, bool self_loop, std::uintptr_t stream,
                     MaybeDevice<float> partials, int form, MaybeIds bits) {
  const std::size_t rows = TRANSPOSED ? x.shape(0) : y.shape(0);
  const std::size_t columns = TRANSPOSED ? y.shape(0) : x.shape(0);
  const std::size_t S = x.shape(1);
  check_size(over_indptr, rows + 1, "over_indptr");
  check_optional(over_values, over_indices.size() * S, "over_values");
  if (bits && (TRANSPOSED || over_values || S > 32)) {
    reject("bits are of at most 32 snapshots without over_values, and not for scatter");
  }
  check_optional(bits, over_indices.size(), "bits");
  if (ex_indptr.has_value() != ex_entries.has_value()) {
    reject("ex_indptr and ex_entries belong together");
  }
  check_optional(ex_indptr, rows + 1, "ex_indptr");
  if (ex_entries) check_optional(ex_values, ex_entries->size(), "ex_values");
  check_optional(row_scale, rows * S, "row_scale");
  check_optional(col_scale, columns * S, "col_scale");
  if (y.shape(1) != S || y.shape(2) != x.shape(2)) {
    reject("x and y differ in their last two sizes");
  }
  if (self_loop && rows > columns) reject("self_loop needs a column for every row");
  AggregateArgs a{};
  a.over_indptr = over_indptr.data();
  a.over_indices = over_indices.data();
  // An empty array may have no address and so count as absent; it has no entry to weight.
  a.over_values = address(over_values);
  a.over_bits = reinterpret_cast<const uint32_t*>(address(bits));
  a.per_snapshot = a.over_values != nullptr && S > 1;
  a.ex_indptr = address(ex_indptr);
  a.ex_entries = ex_entries ? reinterpret_cast<const uint32_t*>(ex_entries->data()) : nullptr;
  a.ex_values = address(ex_values);
  while ((std::size_t{1} << a.shift) < S) ++a.shift;
  a.x = x.data();
  a.y = y.data();
  a.row_scale = address(row_scale);
  a.col_scale = address(col_scale);
  a.rows = static_cast<int64_t>(rows);
  a.columns = static_cast<int64_t>(columns);
  a.snapshots = static_cast<int32_t>(S);
  a.features = static_cast<int32_t>(x.shape(2));
  a.self_loop = self_loop;
  a.entries = static_cast<int64_t>(over_indices.size() + (ex_entries ? ex_entries->size() : 0));
  take_heavy(a, heavy, partials, form);
  if (TRANSPOSED) {
    check_launch(dgb_scatter(&a, stream_of(stream)), "aggregate_parts_scatter");
  } else {
    if (a.heavy && !a.partials && dgb_heavy_slots(a.rows, a.entries) > 0) reject("partials is missing");
    check_launch(dgb_aggregate(&a, stream_of(stream)), "aggregate_parts");
  }
}

template <class Function>
void define(nb::module_& m, const char* name, Function function) {
  add_operator(m, name, function, "over_indptr"_a.noconvert(), "over_indices"_a.noconvert(),
        "over_values"_a.noconvert().none(), "ex_indptr"_a.noconvert().none(),
        "ex_entries"_a.noconvert().none(), "ex_values"_a.noconvert().none(),
        "order"_a.noconvert().none(), "x"_a.noconvert(), "y"_a.noconvert(),
        "row_scale"_a.noconvert().none(), "col_scale"_a.noconvert().none(), "self_loop"_a,
        "stream"_a, "partials"_a.noconvert().none() = nb::none(), "form"_a = 0,
        "bits"_a.noconvert().none() = nb::none());
}

void list_heavy(Offsets over_indptr, MaybeOffsets ex_indptr, int64_t entries,
                DeviceArray<int32_t> table, std::uintptr_t stream) {
  check_optional(ex_indptr, over_indptr.size(), "ex_indptr");
  const auto rows = static_cast<int64_t>(over_indptr.size()) - 1;
  check_size(table, static_cast<std::size_t>(dgb_heavy_size(rows, entries)), "table");
  check_launch(dgb_list_heavy(over_indptr.data(), address(ex_indptr), rows, entries, table.data(),
                              stream_of(stream)),
               "list_heavy");
}

}  // namespace

void bind_aggregate(nb::module_& m) {
  add_operator(m, "spmm", &spmm, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "values"_a.noconvert().none(), "order"_a.noconvert().none(), "x"_a.noconvert(),
        "y"_a.noconvert(), "row_scale"_a.noconvert().none(), "col_scale"_a.noconvert().none(),
        "self_loop"_a, "stream"_a, "partials"_a.noconvert().none() = nb::none(),
        "form"_a = 0);
  add_operator(m, "heavy_size", &dgb_heavy_size, "rows"_a, "entries"_a);
  add_operator(m, "heavy_slots", &dgb_heavy_slots, "rows"_a, "entries"_a);
  add_operator(m, "list_heavy", &list_heavy, "over_indptr"_a.noconvert(), "ex_indptr"_a.noconvert().none(),
        "entries"_a, "table"_a.noconvert(), "stream"_a);
  define(m, "aggregate_parts", &aggregate_parts<false>);
  define(m, "aggregate_parts_scatter", &aggregate_parts<true>);
}

}  // namespace dgbench

// The warp of algorithm 1 played through on the host, lane by lane. It exists to test the mapping
// of lanes to slices and columns without a device; as an operator it would be slow.
#include <nanobind/nanobind.h>

#include "common/partition_arguments.hpp"
#include "variants/slice_coalescing.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using Cpu = nb::device::cpu;

template <int VEC>
void play(const SliceWarp& warp) {
  const int tile_width = warp.groups > 1 ? warp.d : kWarp * VEC;
  const int tiles = (warp.d + tile_width - 1) / tile_width;
  const auto load = [](const float* from, float(&to)[VEC]) {
    for (int e = 0; e < VEC; ++e) to[e] = from[e];
  };
  for (int64_t unit = 0; unit < warp.units(); ++unit) {
    for (int tile = 0; tile < tiles; ++tile) {
      float sum[kWarp][VEC] = {};
      StagedEntry shared[kPieceEntries * kMaxGroups] = {};
      int index = 0;
      int column = 0;
      for (int64_t piece = 0; warp.has_piece(unit, piece); ++piece) {
        for (int lane = 0; lane < kWarp; ++lane) warp.stage(unit, piece, lane, shared);
        for (int lane = 0; lane < kWarp; ++lane) {
          if (!warp.place<VEC>(unit, tile, lane, &index, &column)) continue;
          warp.accumulate<VEC>(unit, piece, index, column, shared, load, sum[lane]);
        }
      }
      for (int lane = 0; lane < kWarp; ++lane) {
        if (!warp.place<VEC>(unit, tile, lane, &index, &column)) continue;
        float* to = warp.target(unit, index, column);
        for (int e = 0; e < VEC; ++e) to[e] += sum[lane][e];
      }
    }
  }
}

template <int VEC>
void play_scatter(const SliceWarp& warp) {
  const int tile_width = warp.groups > 1 ? warp.d : kWarp * VEC;
  const int tiles = (warp.d + tile_width - 1) / tile_width;
  const auto add = [](float* to, const float(&from)[VEC]) {
    for (int e = 0; e < VEC; ++e) to[e] += from[e];
  };
  for (int64_t unit = 0; unit < warp.units(); ++unit) {
    for (int tile = 0; tile < tiles; ++tile) {
      StagedEntry shared[kPieceEntries * kMaxGroups] = {};
      int index = 0;
      int column = 0;
      for (int64_t piece = 0; warp.has_piece(unit, piece); ++piece) {
        for (int lane = 0; lane < kWarp; ++lane) warp.stage(unit, piece, lane, shared);
        for (int lane = 0; lane < kWarp; ++lane) {
          if (!warp.place<VEC>(unit, tile, lane, &index, &column)) continue;
          const float* from = warp.source(unit, index, column);
          float own[VEC];
          for (int e = 0; e < VEC; ++e) own[e] = from[e];
          warp.scatter<VEC>(unit, piece, index, column, shared, add, own);
        }
      }
    }
  }
}

template <bool TRANSPOSED>
void run_sliced(VectorOn<const int32_t, Cpu> row_indices,
                VectorOn<const int64_t, Cpu> slice_offsets, VectorOn<const int32_t, Cpu> indices,
                std::optional<VectorOn<const float, Cpu>> values,
                nb::ndarray<const float, nb::ndim<2>, Cpu> x,
                nb::ndarray<float, nb::ndim<2>, Cpu> y, int groups, int vector) {
  const SliceWarp warp =
      slice_warp(row_indices, slice_offsets, indices, values, x, y, groups, vector);
  // Played on the host lane by lane, which costs far more than looking at every id first.
  const auto rows = static_cast<int64_t>(TRANSPOSED ? x.shape(0) : y.shape(0));
  const auto columns = static_cast<int64_t>(TRANSPOSED ? y.shape(0) : x.shape(0));
  check_offsets(slice_offsets.data(), slice_offsets.size(), indices.size(), "slice_offsets");
  require(ids_in_range(row_indices.data(), row_indices.size(), rows),
          "row_indices must lie in the rows of the matrix");
  require(ids_in_range(indices.data(), indices.size(), columns),
          "indices must lie in the columns of the matrix");
  nb::gil_scoped_release release;
  if (vector == 4) {
    TRANSPOSED ? play_scatter<4>(warp) : play<4>(warp);
  } else if (vector == 2) {
    TRANSPOSED ? play_scatter<2>(warp) : play<2>(warp);
  } else {
    TRANSPOSED ? play_scatter<1>(warp) : play<1>(warp);
  }
}

}  // namespace

void bind_slice_coalescing(nb::module_& m) {
  const auto define = [&](const char* name, auto function) {
    m.def(name, function, "row_indices"_a.noconvert(), "slice_offsets"_a.noconvert(),
          "indices"_a.noconvert(), "values"_a.noconvert().none(), "x"_a.noconvert(),
          "y"_a.noconvert(), "groups"_a, "vector"_a);
  };
  define("aggregate_sliced", &run_sliced<false>);
  define("scatter_sliced", &run_sliced<true>);
}

}  // namespace dgbench

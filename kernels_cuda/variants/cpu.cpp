// PiPAD's aggregation over slices on the CPU, as the paper's algorithm 1 has it: a slice is the unit of
// work, all columns of the coalescent features are summed for it at once, and the sum is added to the
// slice's row. Vector registers take the place of a warp's lanes; a thread owns rows, so that nothing
// is added atomically and the result does not depend on the number of threads.
//
// Beside it the warp itself is played through on the host, lane by lane, to test the mapping of lanes
// to slices and columns without a device; as an operator that would be slow.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "common/partition_arguments.hpp"
#include "variants/slice_coalescing.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using Cpu = nb::device::cpu;

enum class Weights { kNone, kOne, kBlocks };

constexpr int kWidest = 64;                // columns of a tile: four registers of 512 bits
constexpr int64_t kSerialEntries = 1 << 14;  // below it starting threads costs more than it saves
constexpr int64_t kBlockFloats = 1 << 15;  // of y that a thread works on at a time
constexpr int kMostParts = kMaxSnapshots + 1;  // what snapshots share, and each one's own

// One entry's weights for W columns.
template <int W, Weights KIND>
inline void weigh(const SliceWarp& a, int64_t entry, int column, float (&value)[W]) {
  if constexpr (KIND == Weights::kOne) {
    const float weight = a.values[entry];
    for (int e = 0; e < W; ++e) value[e] *= weight;
  } else if constexpr (KIND == Weights::kBlocks) {
    a.weigh<W>(entry, column, value);
  }
}

// y of the slice's row += the sum over the slice, for W columns.
template <int W, Weights KIND>
void gather_tile(const SliceWarp& a, int64_t slice, int column) {
  float sum[W] = {};
  for (int64_t p = a.slice_offsets[slice]; p < a.slice_offsets[slice + 1]; ++p) {
    const float* from = a.x + a.indices[p] * a.x_pitch + column;
    float row[W];
    for (int e = 0; e < W; ++e) row[e] = from[e];
    weigh<W, KIND>(a, p, column, row);
    for (int e = 0; e < W; ++e) sum[e] += row[e];
  }
  float* to = a.y + a.row_indices[slice] * a.y_pitch + column;
  for (int e = 0; e < W; ++e) to[e] += sum[e];
}

struct Range {
  int64_t first, stop;
};

// Rows of y in `rows` that the slice's entries name += the slice's own row of x, for W columns.
template <int W, Weights KIND>
void scatter_tile(const SliceWarp& a, int64_t slice, int column, Range rows) {
  const float* from = a.x + a.row_indices[slice] * a.x_pitch + column;
  float own[W];
  for (int e = 0; e < W; ++e) own[e] = from[e];
  for (int64_t p = a.slice_offsets[slice]; p < a.slice_offsets[slice + 1]; ++p) {
    if (a.indices[p] < rows.first || a.indices[p] >= rows.stop) continue;
    float value[W];
    for (int e = 0; e < W; ++e) value[e] = own[e];
    weigh<W, KIND>(a, p, column, value);
    float* to = a.y + a.indices[p] * a.y_pitch + column;
    for (int e = 0; e < W; ++e) to[e] += value[e];
  }
}

// go(column, std::integral_constant<int, W>) for tiles that cover d columns, widest first.
template <class Go>
inline void each_tile(int d, const Go& go) {
  int column = 0;
  const auto take = [&](auto width) {
    for (; column + width() <= d; column += width()) go(column, width);
  };
  take(std::integral_constant<int, kWidest>());
  take(std::integral_constant<int, 32>());
  take(std::integral_constant<int, 16>());
  take(std::integral_constant<int, 8>());
  take(std::integral_constant<int, 4>());
  take(std::integral_constant<int, 2>());
  take(std::integral_constant<int, 1>());
}

// go(integral_constant<Weights, ...>) for what the values of `a` are.
template <class Go>
void by_weights(const SliceWarp& a, const Go& go) {
  if (a.values == nullptr) {
    go(std::integral_constant<Weights, Weights::kNone>());
  } else if (a.weights == 1) {
    go(std::integral_constant<Weights, Weights::kOne>());
  } else {
    go(std::integral_constant<Weights, Weights::kBlocks>());
  }
}

// Adds the slices from `slice` on whose rows lie before `stop`; returns the first beyond.
int64_t gather_rows(const SliceWarp& a, int64_t slice, int64_t stop) {
  by_weights(a, [&](auto kind) {
    for (; slice < a.slices && a.row_indices[slice] < stop; ++slice) {
      each_tile(a.d, [&](int column, auto width) {
        gather_tile<width(), kind()>(a, slice, column);
      });
    }
  });
  return slice;
}

// y += A x for matrices that add to columns of one y. A thread takes its rows block by block, each
// block through all matrices, while it lies in the cache.
void gather(const std::vector<SliceWarp>& parts, int64_t rows, int threads) {
  int64_t widest = 1;
  for (const SliceWarp& a : parts) widest = std::max(widest, a.y_pitch);
  const int64_t block = std::max<int64_t>(1, kBlockFloats / widest);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
  for (int part = 0; part < threads; ++part) {
    const Range mine{rows * part / threads, rows * (part + 1) / threads};
    int64_t at[kMostParts];
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const int32_t* ids = parts[i].row_indices;
      at[i] = std::lower_bound(ids, ids + parts[i].slices, mine.first) - ids;
    }
    for (int64_t first = mine.first; first < mine.stop; first += block) {
      const int64_t stop = std::min(first + block, mine.stop);
      for (std::size_t i = 0; i < parts.size(); ++i) at[i] = gather_rows(parts[i], at[i], stop);
    }
  }
}

// y += A^T x for matrices that add to columns of one y of `rows` rows.
void scatter(const std::vector<SliceWarp>& parts, int64_t rows, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
  for (int part = 0; part < threads; ++part) {
    const Range mine{rows * part / threads, rows * (part + 1) / threads};
    for (const SliceWarp& a : parts) {
      by_weights(a, [&](auto kind) {
        for (int64_t slice = 0; slice < a.slices; ++slice) {
          each_tile(a.d, [&](int column, auto width) {
            scatter_tile<width(), kind()>(a, slice, column, mine);
          });
        }
      });
    }
  }
}

int threads_for(std::size_t entries, int threads) {
  return static_cast<int64_t>(entries) < kSerialEntries ? 1 : std::clamp(threads, 1, 4096);
}

template <class Array>
void check_slices(const Array& row_indices, const VectorOn<const int64_t, Cpu>& slice_offsets,
                  const VectorOn<const int32_t, Cpu>& indices, int64_t rows, int64_t columns) {
  check_offsets(slice_offsets.data(), slice_offsets.size(), indices.size(), "slice_offsets");
  require(ids_in_range(row_indices.data(), row_indices.size(), rows),
          "row_indices must lie in the rows of the matrix");
  require(ids_in_range(indices.data(), indices.size(), columns),
          "indices must lie in the columns of the matrix");
  require(std::is_sorted(row_indices.data(), row_indices.data() + row_indices.size()),
          "row_indices must not descend");
}

// A partition of S snapshots in slices, looked through once and multiplied with often: first what they
// share, which works on the columns of all, then what is each one's own. Holds the arrays.
class SlicedGroup {
 public:
  SlicedGroup(int64_t rows, int64_t columns, int64_t snapshots)
      : rows_(rows), columns_(columns), snapshots_(snapshots) {
    require(rows >= 0 && columns >= 0, "rows and columns must not be negative");
    require(snapshots >= 1 && snapshots < kMostParts,
            "snapshots is " + std::to_string(snapshots) + ", allowed are 1 to " +
                std::to_string(kMostParts - 1));
    parts_.reserve(static_cast<std::size_t>(snapshots) + 1);
  }

  void add(VectorOn<const int32_t, Cpu> row_indices, VectorOn<const int64_t, Cpu> slice_offsets,
           VectorOn<const int32_t, Cpu> indices,
           std::optional<VectorOn<const float, Cpu>> values) {
    require(static_cast<int64_t>(parts_.size()) <= snapshots_, "there is a part too many");
    require_length("slice_offsets", static_cast<int64_t>(slice_offsets.size()),
                   static_cast<int64_t>(row_indices.size()) + 1);
    check_slices(row_indices, slice_offsets, indices, rows_, columns_);
    const int64_t weights = parts_.empty() ? snapshots_ : 1;
    if (values) {
      require_length("values", static_cast<int64_t>(values->size()),
                     weights * static_cast<int64_t>(indices.size()));
    }
    entries_ += indices.size();
    parts_.push_back({row_indices, slice_offsets, indices, values, static_cast<int>(weights)});
  }

  template <bool TRANSPOSED>
  void multiply(MatrixOn<const float, Cpu> x, MatrixOn<float, Cpu> y, int threads) const {
    require(static_cast<int64_t>(parts_.size()) == snapshots_ + 1, "parts are missing");
    require_length("x", static_cast<int64_t>(x.shape(0)), TRANSPOSED ? rows_ : columns_);
    require_length("y", static_cast<int64_t>(y.shape(0)), TRANSPOSED ? columns_ : rows_);
    require(x.shape(1) == y.shape(1) && x.shape(1) % static_cast<std::size_t>(snapshots_) == 0,
            "x and y must have as many columns, a multiple of the snapshots");
    const auto d = static_cast<int64_t>(x.shape(1));
    const int64_t width = d / snapshots_;
    nb::gil_scoped_release release;
    std::vector<SliceWarp> warps;
    warps.reserve(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      const int64_t first = i == 0 ? 0 : (static_cast<int64_t>(i) - 1) * width;
      SliceWarp a{};
      a.row_indices = part.row_indices.data();
      a.slice_offsets = part.slice_offsets.data();
      a.indices = part.indices.data();
      a.values = part.values ? part.values->data() : nullptr;
      a.weights = part.weights;
      a.slices = static_cast<int64_t>(part.row_indices.size());
      a.x = x.data() + first;
      a.x_pitch = d;
      a.y = y.data() + first;
      a.y_pitch = d;
      a.d = static_cast<int>(i == 0 ? d : width);
      a.groups = 1;
      warps.push_back(a);
    }
    const int used = threads_for(entries_, threads);
    TRANSPOSED ? scatter(warps, columns_, used) : gather(warps, rows_, used);
  }

 private:
  struct Part {
    VectorOn<const int32_t, Cpu> row_indices;
    VectorOn<const int64_t, Cpu> slice_offsets;
    VectorOn<const int32_t, Cpu> indices;
    std::optional<VectorOn<const float, Cpu>> values;
    int weights;
  };

  int64_t rows_, columns_, snapshots_;
  std::size_t entries_ = 0;
  std::vector<Part> parts_;
};

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

template <bool TRANSPOSED, bool LANES>
void run_sliced(VectorOn<const int32_t, Cpu> row_indices,
                VectorOn<const int64_t, Cpu> slice_offsets, VectorOn<const int32_t, Cpu> indices,
                std::optional<VectorOn<const float, Cpu>> values,
                nb::ndarray<const float, nb::ndim<2>, Cpu> x,
                nb::ndarray<float, nb::ndim<2>, Cpu> y, int groups, int vector, int threads) {
  const SliceWarp warp =
      slice_warp(row_indices, slice_offsets, indices, values, x, y, groups, vector);
  const auto rows = static_cast<int64_t>(TRANSPOSED ? x.shape(0) : y.shape(0));
  const auto columns = static_cast<int64_t>(TRANSPOSED ? y.shape(0) : x.shape(0));
  check_slices(row_indices, slice_offsets, indices, rows, columns);
  nb::gil_scoped_release release;
  if constexpr (LANES) {
    if (vector == 4) {
      TRANSPOSED ? play_scatter<4>(warp) : play<4>(warp);
    } else if (vector == 2) {
      TRANSPOSED ? play_scatter<2>(warp) : play<2>(warp);
    } else {
      TRANSPOSED ? play_scatter<1>(warp) : play<1>(warp);
    }
  } else {
    const int used = threads_for(indices.size(), threads);
    TRANSPOSED ? scatter({warp}, columns, used) : gather({warp}, rows, used);
  }
}

}  // namespace

void bind_slice_coalescing(nb::module_& m) {
  const auto define = [&](const char* name, auto function) {
    m.def(name, function, "row_indices"_a.noconvert(), "slice_offsets"_a.noconvert(),
          "indices"_a.noconvert(), "values"_a.noconvert().none(), "x"_a.noconvert(),
          "y"_a.noconvert(), "groups"_a, "vector"_a, "threads"_a);
  };
  define("aggregate_sliced", &run_sliced<false, false>);
  define("scatter_sliced", &run_sliced<true, false>);
  define("play_aggregate_sliced", &run_sliced<false, true>);
  define("play_scatter_sliced", &run_sliced<true, true>);
  nb::class_<SlicedGroup>(m, "SlicedGroup")
      .def(nb::init<int64_t, int64_t, int64_t>(), "rows"_a, "columns"_a, "snapshots"_a)
      .def("add", &SlicedGroup::add, "row_indices"_a.noconvert(), "slice_offsets"_a.noconvert(),
           "indices"_a.noconvert(), "values"_a.noconvert().none())
      .def("aggregate", &SlicedGroup::multiply<false>, "x"_a.noconvert(), "y"_a.noconvert(),
           "threads"_a)
      .def("scatter", &SlicedGroup::multiply<true>, "x"_a.noconvert(), "y"_a.noconvert(),
           "threads"_a);
}

}  // namespace dgbench

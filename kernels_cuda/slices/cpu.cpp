// Bindings of the row slicing (slices/functors.hpp), and the packing of a partition's pieces into one
// array to send.
#include <nanobind/nanobind.h>

#include <algorithm>

#include "common/for_each.hpp"
#include "common/lists.hpp"
#include "common/partition_arguments.hpp"
#include "slices/functors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

using Cpu = nb::device::cpu;

void count_slices(VectorOn<const int64_t, Cpu> indptr, int64_t cap, VectorOn<int64_t, Cpu> counts) {
  require(cap >= 1, "cap is " + std::to_string(cap) + ", allowed are values from 1");
  const auto rows = static_cast<int64_t>(counts.size());
  require_length("indptr", static_cast<int64_t>(indptr.size()), rows + 1);
  const CountSlices functor{indptr.data(), cap, counts.data()};
  nb::gil_scoped_release release;
  for_each(rows, functor);
}

void fill_slices(VectorOn<const int64_t, Cpu> indptr, VectorOn<const int64_t, Cpu> first, int64_t cap,
                 VectorOn<int32_t, Cpu> row_indices, VectorOn<int64_t, Cpu> slice_offsets) {
  require(cap >= 1, "cap is " + std::to_string(cap) + ", allowed are values from 1");
  const auto rows = static_cast<int64_t>(indptr.size()) - 1;
  const auto slices = static_cast<int64_t>(row_indices.size());
  require_length("first", static_cast<int64_t>(first.size()), rows + 1);
  require_length("slice_offsets", static_cast<int64_t>(slice_offsets.size()), slices + 1);
  const FillSlice functor{indptr.data(), first.data(),       rows,
                          cap,           row_indices.data(), slice_offsets.data()};
  nb::gil_scoped_release release;
  for_each(slices, functor);
}

int64_t slices_of(const VectorOn<const int64_t, Cpu>& offsets, int64_t cap) {
  int64_t n = 0;
  for (size_t row = 0; row + 1 < offsets.size(); ++row) {
    const int64_t length = offsets.data()[row + 1] - offsets.data()[row];
    n += length <= cap ? static_cast<int64_t>(length > 0) : (length - 1) / cap + 1;
  }
  return n;
}

// Slices of every piece of a partition.
std::vector<int64_t> count_pieces(std::vector<VectorOn<const int64_t, Cpu>> indptr, int64_t cap) {
  require(cap >= 1, "cap is " + std::to_string(cap) + ", allowed are values from 1");
  std::vector<int64_t> counts;
  nb::gil_scoped_release release;
  for (const auto& offsets : indptr) {
    require(offsets.size() >= 1, "indptr[i] is empty, expected rows + 1 offsets");
    counts.push_back(slices_of(offsets, cap));
  }
  return counts;
}

// All pieces in one int32 array: rows of the slices of every piece, then the offsets of every
// piece, then the columns of every piece. Entries of a piece are fewer than 2^31.
void pack_pieces(std::vector<VectorOn<const int64_t, Cpu>> indptr,
                 std::vector<VectorOn<const int32_t, Cpu>> indices, std::vector<int64_t> slices,
                 int64_t cap, VectorOn<int32_t, Cpu> out) {
  require(cap >= 1, "cap is " + std::to_string(cap) + ", allowed are values from 1");
  require_length("indices", static_cast<int64_t>(indices.size()), static_cast<int64_t>(indptr.size()));
  require_length("slices", static_cast<int64_t>(slices.size()), static_cast<int64_t>(indptr.size()));
  int64_t all = 0;
  int64_t entries = 0;
  for (size_t i = 0; i < indptr.size(); ++i) {
    require(indptr[i].size() >= 1, "indptr[i] is empty, expected rows + 1 offsets");
    check_offsets(indptr[i].data(), indptr[i].size(), indices[i].size(), "indptr[i]");
    require_length("slices[i]", slices[i], slices_of(indptr[i], cap));
    all += slices[i];
    entries += static_cast<int64_t>(indices[i].size());
  }
  const auto pieces = static_cast<int64_t>(indptr.size());
  require_length("out", static_cast<int64_t>(out.size()), 2 * all + pieces + entries);
  nb::gil_scoped_release release;
  int32_t* row_to = out.data();
  int32_t* offset_to = row_to + all;
  int32_t* column_to = offset_to + all + pieces;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t* offsets = indptr[i].data();
    const auto rows = static_cast<int64_t>(indptr[i].size()) - 1;
    int64_t n = 0;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t at = offsets[row]; at < offsets[row + 1]; at += std::min(cap, offsets[row + 1] - at)) {
        row_to[n] = static_cast<int32_t>(row);
        offset_to[n++] = static_cast<int32_t>(at);
      }
    }
    offset_to[n] = static_cast<int32_t>(offsets[rows]);
    row_to += n;
    offset_to += n + 1;
    column_to = std::copy(indices[i].data(), indices[i].data() + indices[i].size(), column_to);
  }
}

// Row offsets out int64[pieces, rows + 1] from rows and offsets of the slices of every piece.
void unpack_offsets(std::vector<VectorOn<const int32_t, Cpu>> row_indices,
                    std::vector<VectorOn<const int32_t, Cpu>> slice_offsets,
                    MatrixOn<int64_t, Cpu> out) {
  const auto pieces = static_cast<int64_t>(row_indices.size());
  require(out.shape(1) >= 1, "out has no columns, expected rows + 1");
  require_length("slice_offsets", static_cast<int64_t>(slice_offsets.size()), pieces);
  require_length("out", static_cast<int64_t>(out.shape(0)), pieces);
  const auto rows = static_cast<int64_t>(out.shape(1)) - 1;
  for (int64_t i = 0; i < pieces; ++i) {
    require_length("slice_offsets[i]", static_cast<int64_t>(slice_offsets[i].size()),
                   static_cast<int64_t>(row_indices[i].size()) + 1);
  }
  nb::gil_scoped_release release;
  for (int64_t i = 0; i < pieces; ++i) {
    int64_t least = 0;
    for (size_t s = 0; s < row_indices[i].size(); ++s) {
      const int64_t row = row_indices[i].data()[s];
      require(row >= least && row < rows, "rows of slices must ascend, below the rows");
      least = row;
    }
  }
  for (int64_t i = 0; i < pieces; ++i) {
    const int32_t* row = row_indices[i].data();
    const int32_t* offset = slice_offsets[i].data();
    const auto slices = static_cast<int64_t>(row_indices[i].size());
    int64_t* to = out.data() + i * (rows + 1);
    int64_t next = 0;  // first row whose offset is not written
    for (int64_t s = 0; s < slices; ++s) {
      if (row[s] < next) continue;
      std::fill(to + next, to + row[s] + 1, static_cast<int64_t>(offset[s]));
      next = row[s] + 1;
    }
    std::fill(to + next, to + rows + 1, static_cast<int64_t>(offset[slices]));
  }
}

}  // namespace

void bind_slices(nb::module_& m) {
  m.def("count_slices", &count_slices, "indptr"_a.noconvert(), "cap"_a, "counts"_a.noconvert());
  m.def("fill_slices", &fill_slices, "indptr"_a.noconvert(), "first"_a.noconvert(), "cap"_a,
        "row_indices"_a.noconvert(), "slice_offsets"_a.noconvert());
  m.def("count_pieces", &count_pieces, "indptr"_a.noconvert(), "cap"_a);
  m.def("pack_pieces", &pack_pieces, "indptr"_a.noconvert(), "indices"_a.noconvert(), "slices"_a,
        "cap"_a, "out"_a.noconvert());
  m.def("unpack_offsets", &unpack_offsets, "row_indices"_a.noconvert(),
        "slice_offsets"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace dgbench

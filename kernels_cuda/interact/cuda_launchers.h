// Sums over partners and products of rows as plain functions; see common/launchers.h for what holds of all.
#pragma once

#include <cstdint>

namespace dgbench {

// Edges of a row that one group of lanes adds up; a longer row is cut into pieces of so many places.
constexpr int kPieceEdges = 64;

template <class T>
struct InteractSums {
  const int64_t* offsets;  // [rows + 1]
  const int64_t* order;    // [edges]
  const int64_t* other;    // [edges]
  const T* weight;         // [edges] or null
  const T* x;              // [.., width]
  T* out;                  // [rows, width]
  T* partial;              // [ceil(edges / kPieceEdges), 2, width]
  int64_t rows, edges, width;
  bool last;
};

template <class T>
struct InteractDots {
  const int64_t *src, *dst;  // [edges]
  const T *left, *right;     // [.., width]
  T* out;                    // [edges]
  int64_t edges, width;
};

extern "C" {
int dgb_interact_sums_float(const InteractSums<float>* args, void* stream);
int dgb_interact_sums_double(const InteractSums<double>* args, void* stream);
int dgb_interact_dots_float(const InteractDots<float>* args, void* stream);
int dgb_interact_dots_double(const InteractDots<double>* args, void* stream);
}

}  // namespace dgbench

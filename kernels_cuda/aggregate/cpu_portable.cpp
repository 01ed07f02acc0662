// The aggregation kernels on the compiler's generic vectors: any machine, and doubles for gradient
// checks.
#include "aggregate/cpu_rows.hpp"

namespace dgbench {

RowKernels<float> pick_portable(int width, Weights weights) {
  return Family<Portable<float, 4>, Portable<float, 8>, Portable<float, 8>>::pick(width, weights);
}

RowKernels<double> pick_portable_double(int width, Weights weights) {
  return Family<Portable<double, 4>, Portable<double, 8>, Portable<double, 8>>::pick(width,
                                                                                     weights);
}

}  // namespace dgbench

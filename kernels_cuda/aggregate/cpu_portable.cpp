// The aggregation kernels on the compiler's generic vectors: any machine, and doubles for gradient
// checks.
#include "aggregate/cpu_rows.hpp"

namespace dgbench {
namespace {

// Few registers and one form a width: every form takes the compiler a while, and these are not for
// speed.
template <class T, int Max>
using Generic = Family<Portable<T, 1>, Portable<T, 2>, Portable<T, 4>, Portable<T, 8>,
                       Portable<T, 8>, Portable<T, 8>, Max, false>;

}  // namespace

RowKernels<float> pick_portable(int width, Weights weights, bool single) {
  return Generic<float, 4>::pick(width, weights, single);
}

RowKernels<double> pick_portable_double(int width, Weights weights, bool single) {
  return Generic<double, 1>::pick(width, weights, single);
}

}  // namespace dgbench

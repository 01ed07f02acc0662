// The aggregation kernels on 256-bit registers. Compiled without wider ones even where the machine
// has them, so that forcing this form there shows what a machine without them does.
#include "aggregate/cpu_rows.hpp"

namespace dgbench {

#if defined(DGBENCH_AVX2)
RowKernels<float> pick_avx2(int width, Weights weights, bool single) {
  return Family<Few<1>, Few<2>, Avx2<4>, Avx2<8>, Avx2<8>, Avx2Pair>::pick(
      width, weights, single);
}
#else
RowKernels<float> pick_avx2(int width, Weights weights, bool single) {
  return pick_portable(width, weights, single);
}
#endif

}  // namespace dgbench

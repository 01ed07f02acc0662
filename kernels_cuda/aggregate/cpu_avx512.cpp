// The aggregation kernels on 512-bit registers.
#include "aggregate/cpu_rows.hpp"

namespace dgbench {

#if defined(DGBENCH_AVX512)
RowKernels<float> pick_avx512(int width, Weights weights, bool single) {
  return Family<Few<1>, Few<2>, Avx512<4>, Avx512<8>, Avx512<16>>::pick(width, weights, single);
}
#else
RowKernels<float> pick_avx512(int width, Weights weights, bool single) {
  return pick_avx2(width, weights, single);
}
#endif

}  // namespace dgbench

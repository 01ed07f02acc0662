// The aggregation kernels on 512-bit registers.
#include "cpu/aggregate_rows.hpp"

namespace dgbench {

#if defined(DGBENCH_AVX512)
RowKernels<float> pick_avx512(int width, Weights weights) {
  return Family<Avx512<4>, Avx512<8>, Avx512<16>>::pick(width, weights);
}
#else
RowKernels<float> pick_avx512(int width, Weights weights) { return pick_portable(width, weights); }
#endif

}  // namespace dgbench

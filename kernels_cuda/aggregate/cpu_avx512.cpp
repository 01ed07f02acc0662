// The aggregation kernels on 512-bit registers.
#include "aggregate/cpu_rows.hpp"

namespace dgbench {

#if defined(DGBENCH_AVX512)
RowKernels<float> pick_avx512(int width, Weights weights, bool single) {
  using Kernels = Family<Avx512<4>, Avx512<8>, Avx512<16>>;
  // Without snapshots to tell apart, rows of one or two scalars need no masks at all.
  if (weights != Weights::per_snapshot && single) {
    if (width == 1) return Kernels::weighted<Few<1>, 1, true>(weights);
    if (width == 2) return Kernels::weighted<Few<2>, 1, true>(weights);
  }
  return Kernels::pick(width, weights);
}
#else
RowKernels<float> pick_avx512(int width, Weights weights, bool) {
  return pick_portable(width, weights);
}
#endif

}  // namespace dgbench

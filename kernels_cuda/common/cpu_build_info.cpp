// What this extension was compiled with; `dgbench doctor` shows it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <omp.h>

#include <string>

#include "common/sanitizers.hpp"

namespace nb = nanobind;

namespace dgbench {

void bind_build_info(nb::module_& m) {
  m.def("build_info", [] {
    nb::dict info;
    info["compiler"] = std::string(__VERSION__);
#if defined(__AVX512F__)
    info["vector"] = "avx512";
#elif defined(__AVX2__)
    info["vector"] = "avx2";
#else
    info["vector"] = "baseline";
#endif
    info["openmp"] = _OPENMP;
    info["max_threads"] = omp_get_max_threads();
    info["sanitizer"] = kSanitizer;  // "" in a build to measure with
    return info;
  });
}

}  // namespace dgbench

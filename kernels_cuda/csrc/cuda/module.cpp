// The CUDA extension module. It imports without a device or a driver; calls then say what is missing.
#include "cuda/arrays.hpp"

#ifndef DGBENCH_MODULE
#define DGBENCH_MODULE _cuda
#endif

namespace dgbench {
void bind_partition(nb::module_& m);
void bind_aggregate(nb::module_& m);
void bind_scan(nb::module_& m);
void bind_difference(nb::module_& m);
void bind_wire(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_label_propagation(nb::module_& m);
void bind_temporal(nb::module_& m);
void bind_weighted(nb::module_& m);
}  // namespace dgbench

NB_MODULE(DGBENCH_MODULE, m) {
  m.doc() = "dgbench operators on CUDA devices";
  m.def("build_info", [] {
    nb::dict info;
    info["architectures"] = std::string(dgbench::dgb_architectures());
    return info;
  });
  m.def("probe",
        [] {
          const int status = dgbench::dgb_probe();
          return status == 0 ? std::string() : std::string(dgbench::dgb_error_text(status));
        },
        "Run an empty kernel; '' or why this build does not run on the current device.");
  dgbench::bind_partition(m);
  dgbench::bind_aggregate(m);
  dgbench::bind_scan(m);
  dgbench::bind_difference(m);
  dgbench::bind_wire(m);
  dgbench::bind_attention(m);
  dgbench::bind_label_propagation(m);
  dgbench::bind_temporal(m);
  dgbench::bind_weighted(m);
}

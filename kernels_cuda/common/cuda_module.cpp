// The CUDA extension module. It imports without a device or a driver; calls then say what is missing.
#include "common/arrays.hpp"

#ifndef DGBENCH_MODULE
#define DGBENCH_MODULE _cuda
#endif

namespace dgbench {
void bind_csr_check(nb::module_& m);
void bind_slices(nb::module_& m);
void bind_unpack(nb::module_& m);
void bind_overlap(nb::module_& m);
void bind_variants(nb::module_& m);
void bind_aggregate(nb::module_& m);
void bind_scan(nb::module_& m);
void bind_evolve(nb::module_& m);
void bind_difference(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_label_propagation(nb::module_& m);
void bind_temporal(nb::module_& m);
void bind_resident(nb::module_& m);
void bind_row_cache(nb::module_& m);
void bind_batch_rows(nb::module_& m);
void bind_weighted(nb::module_& m);
void bind_weighted_tree(nb::module_& m);
void bind_edge_sampling(nb::module_& m);
void bind_interact(nb::module_& m);
void bind_ranking(nb::module_& m);
void bind_time_encoding(nb::module_& m);
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
  dgbench::bind_csr_check(m);
  dgbench::bind_slices(m);
  dgbench::bind_unpack(m);
  dgbench::bind_overlap(m);
  dgbench::bind_variants(m);
  dgbench::bind_aggregate(m);
  dgbench::bind_scan(m);
  dgbench::bind_evolve(m);
  dgbench::bind_difference(m);
  dgbench::bind_attention(m);
  dgbench::bind_label_propagation(m);
  dgbench::bind_temporal(m);
  dgbench::bind_resident(m);
  dgbench::bind_row_cache(m);
  dgbench::bind_batch_rows(m);
  dgbench::bind_weighted(m);
  dgbench::bind_weighted_tree(m);
  dgbench::bind_edge_sampling(m);
  dgbench::bind_interact(m);
  dgbench::bind_ranking(m);
  dgbench::bind_time_encoding(m);
}

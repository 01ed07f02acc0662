// The CPU extension module. Each group of operators binds itself in its own file.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace dgbench {
void bind_build_info(nb::module_& m);
void bind_csr_check(nb::module_& m);
void bind_slices(nb::module_& m);
void bind_overlap(nb::module_& m);
void bind_twins(nb::module_& m);
void bind_scan(nb::module_& m);
void bind_evolve(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_aggregate(nb::module_& m);
void bind_aggregate_scatter(nb::module_& m);
void bind_transpose(nb::module_& m);
void bind_row_order(nb::module_& m);
void bind_snapshots(nb::module_& m);
void bind_slice_coalescing(nb::module_& m);
void bind_difference(nb::module_& m);
void bind_trace(nb::module_& m);
void bind_work_items(nb::module_& m);
void bind_copy_thread(nb::module_& m);
void bind_label_propagation(nb::module_& m);
void bind_supergraph(nb::module_& m);
void bind_supergraph_chunks(nb::module_& m);
void bind_hypergraph(nb::module_& m);
void bind_worker_refinement(nb::module_& m);
void bind_attend_rows(nb::module_& m);
void bind_packed_attention(nb::module_& m);
void bind_temporal_attention(nb::module_& m);
void bind_fuse_units(nb::module_& m);
void bind_temporal_store(nb::module_& m);
void bind_temporal_sample(nb::module_& m);
void bind_row_cache(nb::module_& m);
void bind_tcsr(nb::module_& m);
void bind_weighted(nb::module_& m);
void bind_weighted_tree(nb::module_& m);
void bind_edge_table(nb::module_& m);
void bind_edge_sampling_roots(nb::module_& m);
void bind_edge_sampling_subgraph(nb::module_& m);
void bind_grids(nb::module_& m);
void bind_interact(nb::module_& m);
void bind_t_batches(nb::module_& m);
void bind_time_lstm(nb::module_& m);
void bind_ranking(nb::module_& m);
void bind_time_encoding(nb::module_& m);
void bind_frame_product(nb::module_& m);
void bind_tgcn_model_step(nb::module_& m);
void bind_evolvegcn_step(nb::module_& m);
void bind_mpnn_lstm_step(nb::module_& m);
void bind_planted_faults(nb::module_& m);

namespace {

constexpr int kLiving = 1024;

// nanobind keeps a table of all living objects and ends the process where that cannot grow. It never
// shrinks, so it is made to hold as many as a run ever has when there is memory for an import.
void make_room_for_objects(nb::handle type) {
  nb::list living;
  for (int i = 0; i < kLiving; ++i) living.append(nb::inst_alloc(type));
}

}  // namespace
}  // namespace dgbench

NB_MODULE(_cpu, m) {
  m.doc() = "dgbench operators on the CPU (OpenMP)";
  dgbench::bind_build_info(m);
  dgbench::bind_csr_check(m);
  dgbench::bind_slices(m);
  dgbench::bind_overlap(m);
  dgbench::bind_twins(m);
  dgbench::bind_scan(m);
  dgbench::bind_evolve(m);
  dgbench::bind_layers(m);
  dgbench::bind_aggregate(m);
  dgbench::bind_aggregate_scatter(m);
  dgbench::bind_transpose(m);
  dgbench::bind_row_order(m);
  dgbench::bind_snapshots(m);
  dgbench::bind_slice_coalescing(m);
  dgbench::bind_difference(m);
  dgbench::bind_trace(m);
  dgbench::bind_work_items(m);
  dgbench::bind_copy_thread(m);
  dgbench::bind_label_propagation(m);
  dgbench::bind_supergraph(m);
  dgbench::bind_supergraph_chunks(m);
  dgbench::bind_hypergraph(m);
  dgbench::bind_worker_refinement(m);
  dgbench::bind_attend_rows(m);
  dgbench::bind_packed_attention(m);
  dgbench::bind_temporal_attention(m);
  dgbench::bind_fuse_units(m);
  dgbench::bind_temporal_store(m);
  dgbench::bind_temporal_sample(m);
  dgbench::bind_row_cache(m);
  dgbench::bind_tcsr(m);
  dgbench::bind_weighted(m);
  dgbench::bind_weighted_tree(m);
  dgbench::bind_edge_table(m);
  dgbench::bind_edge_sampling_roots(m);
  dgbench::bind_edge_sampling_subgraph(m);
  dgbench::bind_grids(m);
  dgbench::bind_interact(m);
  dgbench::bind_t_batches(m);
  dgbench::bind_time_lstm(m);
  dgbench::bind_ranking(m);
  dgbench::bind_time_encoding(m);
  dgbench::bind_frame_product(m);
  dgbench::bind_tgcn_model_step(m);
  dgbench::bind_evolvegcn_step(m);
  dgbench::bind_mpnn_lstm_step(m);
  dgbench::bind_planted_faults(m);
  dgbench::make_room_for_objects(m.attr("Shelf"));
}

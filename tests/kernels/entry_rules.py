"""Exceptions of the entry points of `_cpu`: accepted arguments besides right ones, with reasons.

Everything that is not named here has to be refused, so an operator that joins is checked in full.
"""

from __future__ import annotations

from typing import Final

LOOKED_THROUGH: Final = {
    "a matrix is looked through once when its product is prepared, not at every product": (
        "FrameProduct.add.over_indptr FrameProduct.add.over_indices "
        "FrameProduct.add.ex_indptr FrameProduct.add.ex_entries FrameProduct.add.order "
        "FrameProductDouble.add.over_indptr FrameProductDouble.add.over_indices "
        "FrameProductDouble.add.ex_indptr FrameProductDouble.add.ex_entries "
        "FrameProductDouble.add.order "
        "spmm.indptr spmm.indices spmm.order "
        "KeptProduct.__init__.indptr KeptProduct.__init__.indices KeptProduct.__init__.order "
        "aggregate_parts.over_indptr aggregate_parts.over_indices aggregate_parts.ex_indptr "
        "aggregate_parts.ex_entries aggregate_parts.order aggregate_parts_scatter.over_indptr "
        "aggregate_parts_scatter.over_indices aggregate_parts_scatter.ex_indptr "
        "aggregate_parts_scatter.ex_entries attend_rows_forward.indptr attend_rows_forward.indices "
        "attend_rows_backward.indptr attend_rows_backward.indices attend_rows_backward.place "
        "attend_rows_backward.receivers attend_rows_backward.receivers_ptr"
    ),
    "propagate_labels looks through a matrix before its first sweep": "label_sweep.indices",
    "columns were found ascending, and counted with the same cap, before anything is filled": (
        "split.indices split.slice_cap unite.indices"
    ),
}
"""Contents that a direct call takes on trust: public functions refuse them before the first call
(`test_entry_points.test_public_functions_refuse_a_broken_matrix`). Lengths are checked here too."""

AMOUNTS: Final = frozenset({"sample_subgraphs.draws", "time_items.repeats"})
"""Numbers for which a huge one is only long work."""

HELD: Final = frozenset({"EdgeSnapshots.fill.indptr"})
"""Arrays that have to be the very ones of an earlier call, so no copies in guarded memory."""

READ_ONLY: Final = frozenset({"InducedEdges", "SampledRoots", "SampledSubgraphs", "Shelf"})
"""Classes whose methods change nothing, so that one call after another may be taken."""

NOT_IN_A_FORK: Final = frozenset({"CopyThread.wait"})
"""Entry points that need a thread that a fork does not have; tests/runtime tries them."""

ANY_LENGTH: Final = {
    "its length says how many there are": (
        "SegmentTreeFloat.__init__.weights SegmentTreeInt.__init__.weights SegmentTreeInt.draw.out "
        "SegmentTreeFloat.draw.out TemporalStore.delete_edges.eids "
        "TemporalStore.delete_vertices.ids check_csr.indptr check_csr.indices count_pieces.indptr "
        "evolve_gru_forward.weights gru_scan_forward.x hand_out.seconds read_lines.order "
        "row_uniforms.out twin_uniforms.out weighted_check.weights weighted_draw.weights "
        "weighted_keys.weights weighted_time.weights rebuild.out_indptr RowCache.__init__.rows"
    ),
    "a table, of which ids name rows: it may have more than they name": (
        "RowCache.gather.source aggregate_sliced.x aggregate_sliced.y scatter_sliced.x "
        "scatter_sliced.y play_aggregate_sliced.x play_aggregate_sliced.y play_scatter_sliced.x "
        "play_scatter_sliced.y build_edge_table.indptr interact_dots.left interact_dots.right "
        "interact_group.offsets interact_local_rows.scratch interact_sums.x order_by_chunk.first "
        "read_lines.table sample_tcsr.indptr time_items.x time_items.y "
        "connectivity.net_weight refine_workers.net_weight attend_rows_forward.positive "
        "attend_rows_backward.positive unpack_offsets.out rank_columns.scores"
    ),
    "empty means that there are none": "t_batches.neg t_batches.times",
}

ANY_NUMBER: Final = {
    "what it says is answered, not followed": (
        "check_csr.indptr check_csr.indices weighted_check.weights sample_tcsr.indptr "
        "sample_tcsr.nodes temporal_sample.nodes"
    ),
    "columns that are compared and copied, and never followed": (
        "DifferenceMerge.__init__.indices DifferenceMerge.__init__.second_indices "
        "count_changes.indices count_changes.second_indices count_shared.indices "
        "count_union.indices matrix_pairs.indices merge_exclusive.indices pack_pieces.indices "
        "rebuild.indices split_traced.indices take_rows.indices trace_rows.indices"
    ),
    "numbers that are counted with, and never followed": (
        "count_pieces.indptr count_slices.indptr fill_slices.indptr fill_slices.first "
        "unpack_offsets.slice_offsets"
    ),
    "any whole number is a weight, a load, a score or a label": (
        "RowCache.assign.last RowCache.assign.score SegmentTreeInt.__init__.weights "
        "SegmentTreeInt.modify.weights SegmentTreeInt.search.numbers assign_greedy.weight "
        "chunk_traffic.edge_weight connectivity.edge_weight connectivity.load "
        "connectivity.net_weight contract_hypergraph.edge_weight contract_hypergraph.load "
        "contract_hypergraph.net_weight keep_share.needed label_sweep.edge_weight "
        "label_sweep.vertex_weight read_lines.table refine_workers.edge_weight "
        "refine_workers.load refine_workers.net_weight weight_apart.part weight_apart.weight "
        "weighted_draw.weights weighted_keys.weights weighted_time.weights"
    ),
    "ids that are handed back as they are, or count random numbers": (
        "TemporalStore.insert.eid build_tcsr.eid sample_tcsr.eids "
        "sample_tcsr.neighbours sample_tcsr.positions temporal_sample.positions"
    ),
    "without `positive` nothing is kept for a backward pass and no place is looked at": (
        "attend_rows_forward.place"
    ),
    "one more than the largest of a small example is still in range": (
        "RowCache.gather.place TemporalStore.delete_edges.eids TemporalStore.reload.capacity "
        "connectivity.part count_grids.bounds place_grids.bounds sort_grids.bounds "
        "sort_rows.indptr sort_rows.second"
    ),
}


def names(table: dict[str, str]) -> frozenset[str]:
    """All `entry.argument` of a table."""
    return frozenset(name for text in table.values() for name in text.split())

// A large tree of sums on a device; see common/launchers.h for what holds of all of them.
#pragma once

#include <cstdint>

namespace dgbench {

constexpr int kTreeLevels = 17;  // of four children

// Sums level by level, the weights first, each level filled up with zeros to a multiple of four; the
// last level is four sums at most, whose sum is the total. As in weighted/functors.hpp with
// A = 4, but for the order of levels and what is not there.
template <class W>
struct SumTree {
  W* sums;
  int32_t levels;
  int64_t level_at[kTreeLevels];
  int64_t n;
};

extern "C" {
int dgb_tree_build_int(const SumTree<int64_t>* tree, void* stream);
int dgb_tree_build_float(const SumTree<double>* tree, void* stream);
// items[i] holds g[i] in [0, total).
int dgb_tree_search_int(const SumTree<int64_t>* tree, const int64_t* g, int64_t count,
                        int64_t* items, void* stream);
int dgb_tree_search_float(const SumTree<double>* tree, const double* g, int64_t count,
                          int64_t* items, void* stream);
// As many independent draws: number first + i of the stream, whose answer is items[i].
int dgb_tree_draw_int(const SumTree<int64_t>* tree, uint64_t seed, uint64_t stream_id,
                      int64_t first, int64_t count, int64_t* items, void* stream);
int dgb_tree_draw_float(const SumTree<double>* tree, uint64_t seed, uint64_t stream_id,
                        int64_t first, int64_t count, int64_t* items, void* stream);
// before[i]: sum of the weights of all items before items[i] in [0, n].
int dgb_tree_before(const SumTree<int64_t>* tree, const int64_t* items, int64_t count,
                    int64_t* before, void* stream);
// Draw i is of range owner[i], whose weights begin at the running sum base and sum up to mass > 0;
// its draws are numbers made, made + 1, .. of stream stream_id + owner[i], first at offsets.
int dgb_tree_draw_ranges(const SumTree<int64_t>* tree, uint64_t seed, uint64_t stream_id,
                         const int64_t* owner, const int64_t* offsets, const int64_t* made,
                         const int64_t* base, const int64_t* mass, int64_t count, int64_t* items,
                         void* stream);
// Sets sums[items[i]] = weights[i], no item twice, and adds up all levels above anew.
int dgb_tree_modify_int(const SumTree<int64_t>* tree, const int64_t* items, const int64_t* weights,
                        int64_t count, void* stream);
int dgb_tree_modify_float(const SumTree<double>* tree, const int64_t* items, const double* weights,
                          int64_t count, void* stream);
}

}  // namespace dgbench

// The tree of sums as an object of its own: SegmentTreeFloat (float64) and SegmentTreeInt (int64).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/check.hpp"
#include "weighted/cpu_search.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace dgbench {
namespace {

// Hides the number of children from what is bound.
template <class W>
struct Tree {
  virtual ~Tree() = default;
  virtual void build(const W* weights, int64_t n) = 0;
  virtual W total() const = 0;
  virtual W weight(int64_t i) const = 0;
  virtual int64_t height() const = 0;
  virtual void search(const W* numbers, int64_t count, int64_t* out) const = 0;
  virtual void modify(int64_t i, W weight) = 0;
  // Draws until `count` answers or nothing is left; returns how many. Removes what it draws.
  virtual int64_t draw_out(DrawNumbers& numbers, int64_t count, int64_t* out) = 0;
};

template <class W, int A>
struct TreeOf final : Tree<W> {
  SegmentHeap<W, A> heap;

  void build(const W* weights, int64_t n) override { heap.build(weights, n); }
  W total() const override { return heap.total(); }
  W weight(int64_t i) const override { return heap.weight(i); }
  int64_t height() const override { return heap.height(); }
  void search(const W* numbers, int64_t count, int64_t* out) const override {
    heap.search(numbers, count, out);
  }
  void modify(int64_t i, W weight) override { heap.modify(i, weight); }
  int64_t draw_out(DrawNumbers& numbers, int64_t count, int64_t* out) override {
    int64_t j = 0;
    for (; j < count && heap.total() > W(0); ++j) {
      out[j] = heap.search(scale_bits(numbers(), heap.total()));
      heap.modify(out[j], W(0));
    }
    return j;
  }
};

template <class W>
class BoundTree {
 public:
  BoundTree(Array<const W> weights, int arity) : n_(static_cast<int64_t>(weights.size())) {
    if (arity == 2) tree_ = std::make_unique<TreeOf<W, 2>>();
    if (arity == 4) tree_ = std::make_unique<TreeOf<W, 4>>();
    if (arity == 8) tree_ = std::make_unique<TreeOf<W, 8>>();
    if (arity == 16) tree_ = std::make_unique<TreeOf<W, 16>>();
    if (!tree_) reject("arity must be 2, 4, 8 or 16");
    tree_->build(weights.data(), n_);
  }

  W total() const { return tree_->total(); }
  int64_t height() const { return tree_->height(); }
  int64_t nodes_visited() const { return nodes_; }

  void weights(Array<W> out) const {
    check_size(out, static_cast<std::size_t>(n_), "out");
    for (int64_t i = 0; i < n_; ++i) out.data()[i] = tree_->weight(i);
  }
  void search(Array<const W> numbers, Array<int64_t> out) {
    check_size(out, numbers.size(), "out");
    const auto count = static_cast<int64_t>(numbers.size());
    for (int64_t j = 0; j < count; ++j) {
      if (!(numbers.data()[j] >= W(0) && numbers.data()[j] < total())) {
        reject("g must lie in [0, total)");
      }
    }
    tree_->search(numbers.data(), count, out.data());
    nodes_ += count * height();
  }
  void modify(Array<const int64_t> indices, Array<const W> weights) {
    check_size(weights, indices.size(), "weights");
    if (!ids_in_range(indices.data(), indices.size(), n_)) reject("indices must lie in [0, n)");
    for (std::size_t j = 0; j < indices.size(); ++j) {
      tree_->modify(indices.data()[j], weights.data()[j]);
      nodes_ += height();
    }
  }
  int64_t draw(uint64_t seed, uint64_t stream, bool remove, Array<int64_t> out) {
    const auto count = static_cast<int64_t>(out.size());
    DrawNumbers numbers(seed, stream);
    nb::gil_scoped_release release;
    if (remove) {
      const int64_t found = tree_->draw_out(numbers, count, out.data());
      nodes_ += 2 * found * height();
      return found;
    }
    if (!(total() > W(0))) return 0;
    std::vector<W> g(static_cast<std::size_t>(count));
    for (W& one : g) one = scale_bits(numbers(), total());
    tree_->search(g.data(), count, out.data());
    nodes_ += count * height();
    return count;
  }

 private:
  int64_t n_;
  int64_t nodes_ = 0;
  std::unique_ptr<Tree<W>> tree_;
};

template <class W>
void bind(nb::module_& m, const char* name) {
  using T = BoundTree<W>;
  nb::class_<T>(m, name)
      .def(nb::init<Array<const W>, int>(), "weights"_a.noconvert(), "arity"_a)
      .def_prop_ro("total", &T::total)
      .def_prop_ro("height", &T::height)
      .def_prop_ro("nodes_visited", &T::nodes_visited)
      .def("weights", &T::weights, "out"_a.noconvert())
      .def("search", &T::search, "numbers"_a.noconvert(), "out"_a.noconvert())
      .def("modify", &T::modify, "indices"_a.noconvert(), "weights"_a.noconvert())
      .def("draw", &T::draw, "seed"_a, "stream"_a, "remove"_a, "out"_a.noconvert());
}

}  // namespace

void bind_weighted_tree(nb::module_& m) {
  bind<double>(m, "SegmentTreeFloat");
  bind<int64_t>(m, "SegmentTreeInt");
}

}  // namespace dgbench

// The normalised adjacency of a frame's snapshots, partition by partition, as steps multiply with it.
#pragma once

#include <vector>

#include "aggregate/cpu_product.hpp"
#include "common/caught.hpp"
#include "common/check.hpp"
#include "common/work_division.hpp"

namespace dgbench::steps {

// y_t = R_t (A_t + I) C_t x_t for consecutive snapshots t, in partitions of S of them each. A
// partition's rows of x and y are coalescent (PiPAD 4.2): [N, S, F], one partition behind the other;
// one snapshot by itself is a partition of one. Holds the arrays it was given.
template <class R>
class FrameProduct {
 public:
  explicit FrameProduct(int64_t vertices) : vertices_(vertices) {
    if (vertices < 1) reject("vertices must be at least 1");
  }

  void add(int64_t snapshots, Array<const int64_t> over_ptr, Array<const int32_t> over_ids,
           Maybe<const R> over_values, Maybe<const int64_t> ex_ptr, Maybe<const int32_t> ex_ids,
           Maybe<const R> ex_values, Maybe<const int32_t> order, Array<const R> row_scale,
           Array<const R> col_scale) {
    const std::size_t rows = std::size_t(vertices_);
    if (snapshots < 1 || snapshots > 32) reject("snapshots must be in 1..32");
    check_size(over_ptr, rows + 1, "over_indptr");
    check_end(over_ptr.data(), rows, over_ids.size(), "over_indptr");
    check_optional(over_values, over_ids.size() * std::size_t(snapshots), "over_values");
    if (ex_ptr.has_value() != ex_ids.has_value()) {
      reject("ex_indptr and ex_entries belong together");
    }
    check_optional(ex_ptr, rows + 1, "ex_indptr");
    if (ex_ids) check_end(ex_ptr->data(), rows, ex_ids->size(), "ex_indptr");
    if (ex_values && !ex_ids) reject("ex_values needs ex_entries");
    if (ex_ids) check_optional(ex_values, ex_ids->size(), "ex_values");
    check_optional(order, rows, "order");
    check_size(row_scale, rows * std::size_t(snapshots), "row_scale");
    check_size(col_scale, rows * std::size_t(snapshots), "col_scale");
    Partition p{steps_, snapshots, over_ptr, over_ids, over_values, ex_ptr, ex_ids, ex_values,
                order, row_scale, col_scale};
    of_.reserve(of_.size() + std::size_t(snapshots));  // what follows it cannot fail half-way
    partitions_.push_back(std::move(p));
    of_.insert(of_.end(), std::size_t(snapshots), partitions_.size() - 1);
    entries_ += int64_t(over_ids.size()) + (ex_ids ? int64_t(ex_ids->size()) : 0) + vertices_;
    steps_ += snapshots;
  }

  int64_t steps() const { return steps_; }
  int64_t vertices() const { return vertices_; }

  // Row of snapshot t's first vertex in a frame of rows, and the distance between its vertices.
  int64_t first(int64_t t) const {
    const Partition& p = partitions_[of_[std::size_t(t)]];
    return p.first * vertices_ + t - p.first;
  }
  int64_t apart(int64_t t) const { return partitions_[of_[std::size_t(t)]].snapshots; }

  bool same_layout(const FrameProduct& other) const {
    return vertices_ == other.vertices_ && of_ == other.of_;
  }

  // Partitions side by side where each is small, else one after another with all threads.
  void multiply(const R* x, R* y, int64_t features, int64_t threads) const {
    const auto count = int64_t(partitions_.size());
    const bool small = entries_ / std::max<int64_t>(1, count) < kSerialWork;
    const int outer = small ? int(std::clamp<int64_t>(std::min(threads, count), 1, 4096)) : 1;
    Caught caught;
#pragma omp parallel for schedule(dynamic, 1) num_threads(outer) if (outer > 1)
    for (int64_t i = 0; i < count; ++i) {
      caught.run([&] { multiply(i, x, y, features, small ? 1 : threads); });
    }
    caught.rethrow();
  }

 private:
  struct Partition {
    int64_t first, snapshots;
    Array<const int64_t> over_ptr;
    Array<const int32_t> over_ids;
    Maybe<const R> over_values;
    Maybe<const int64_t> ex_ptr;
    Maybe<const int32_t> ex_ids;
    Maybe<const R> ex_values;
    Maybe<const int32_t> order;
    Array<const R> row_scale, col_scale;
  };

  void multiply(int64_t i, const R* x, R* y, int64_t features, int64_t threads) const {
    const Partition& p = partitions_[std::size_t(i)];
    const int64_t at = p.first * vertices_ * features;
    RowJob<R> job;
    job.over_ptr = p.over_ptr.data();
    job.over_ids = p.over_ids.data();
    job.over_values = pointer(p.over_values);
    job.ex_ptr = pointer(p.ex_ptr);
    job.ex_ids = p.ex_ids ? reinterpret_cast<const std::uint32_t*>(p.ex_ids->data()) : nullptr;
    job.ex_values = pointer(p.ex_values);
    job.order = pointer(p.order);
    job.x = x + at;
    job.y = y + at;
    job.snapshots = int(p.snapshots);
    job.features = int(features);
    job.row_scale = p.row_scale.data();
    job.self_loop = true;
    multiply_rows(job, vertices_, vertices_, p.col_scale.data(), int(threads));
  }

  int64_t vertices_, steps_ = 0, entries_ = 0;
  std::vector<std::size_t> of_;  // partition of every snapshot
  std::vector<Partition> partitions_;
};

}  // namespace dgbench::steps

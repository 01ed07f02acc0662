// Sets drawn without replacement by every method of weighted/cpu_search.hpp behind one call.
#include "common/smallest.hpp"
#include "edge_sampling/cpu_draws.hpp"
#include "edge_sampling/cpu_philox_words.hpp"

namespace dgbench::sampling {
namespace {

void mark(uint64_t* bits, int64_t i) { bits[i >> 6] |= uint64_t{1} << (i & 63); }

// As the paper's Sample(V, n): build, then one draw after the other.
template <class Search>
class Drawn : public PoolMethod<typename Search::Weight> {
 public:
  using W = typename Search::Weight;
  explicit Drawn(Search search) : search_(std::move(search)) {}
  void draw(const W* weights, int64_t n, int64_t k, DrawNumbers& rng, uint64_t* bits) override {
    search_.begin(weights, n);
    for (int64_t i = 0; i < k; ++i) {
      const int64_t index = search_.draw(rng);
      if (index < 0) break;
      search_.take(index);
      mark(bits, index);
    }
  }
  DrawCounts counts() const override { return search_.counts(); }

 private:
  Search search_;
};

// keys: an exponential time for every item, then the k earliest; one pass each and no tree. Ties of
// 32-bit keys go to the first.
template <class W>
class Earliest : public PoolMethod<W> {
 public:
  void draw(const W* weights, int64_t n, int64_t k, DrawNumbers& rng, uint64_t* bits) override {
    const uint64_t one = rng();
    const uint64_t two = rng();
    const PhiloxStream numbers{static_cast<uint32_t>(one), static_cast<uint32_t>(one >> 32),
                               static_cast<uint32_t>(two), static_cast<uint32_t>(two >> 32), 0};
    keys_.resize(static_cast<std::size_t>(n));
    philox_words(numbers, 0, n, keys_.data());
    int64_t positive = 0;
    bool equal = true;
    for (int64_t i = 0; i < n; ++i) {
      positive += weights[i] > W(0);
      equal &= weights[i] == weights[0];
    }
    counts_.elements_scanned += n;
    k = std::min(k, positive);
    if (!equal) {
      for (int64_t i = 0; i < n; ++i) {
        float time = exponential_of(keys_[i]);
        if (is_coarse(keys_[i])) {
          const auto more = philox(static_cast<uint32_t>(i), numbers.c1, numbers.c2, 1, numbers.k0,
                                   numbers.k1);
          time = fine_exponential(keys_[i], static_cast<uint32_t>(more.even));
        }
        const float key = key_of(time, static_cast<float>(weights[i]));
        std::memcpy(&keys_[i], &key, 4);  // floats above 0 are in the order of their bits
      }
    }
    if (n <= kFew) {
      pairs_.resize(keys_.size());
      for (int64_t i = 0; i < n; ++i) pairs_[i] = uint64_t{keys_[i]} << 32 | static_cast<uint64_t>(i);
      if (k < n) std::nth_element(pairs_.begin(), pairs_.begin() + k, pairs_.end());
      for (int64_t i = 0; i < k; ++i) mark(bits, static_cast<int64_t>(pairs_[i] & 0xffffffffu));
    } else {
      taken_.clear();
      smallest(n, k, [&](int64_t i) { return std::min(keys_[i], kNoKey - 1); }, taken_);
      for (const int32_t i : taken_) mark(bits, i);
    }
    counts_.draws += k;
  }
  DrawCounts counts() const override { return counts_; }

 private:
  static constexpr int64_t kFew = 8192;  // items below which a histogram costs more than it finds

  std::vector<uint32_t> keys_;
  std::vector<uint64_t> pairs_;
  std::vector<int32_t> taken_;
  DrawCounts counts_;
};

}  // namespace

template <class W>
std::unique_ptr<PoolMethod<W>> make_pool_method(const std::string& name, int arity) {
  if (name == "keys") return std::make_unique<Earliest<W>>();
  std::unique_ptr<PoolMethod<W>> made;
  with_search<W>(name, arity, [&](auto& search) {
    made = std::make_unique<Drawn<std::decay_t<decltype(search)>>>(std::move(search));
  });
  return made;
}

template std::unique_ptr<PoolMethod<int64_t>> make_pool_method(const std::string&, int);
template std::unique_ptr<PoolMethod<double>> make_pool_method(const std::string&, int);

}  // namespace dgbench::sampling

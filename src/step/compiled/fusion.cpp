#include "step/compiled/fusion.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "step/compiled/kernel_groups.h"

namespace headroom::step {

using op::KernelWork;

namespace {

constexpr uint32_t kNone = UINT32_MAX;
// An elementwise result of more inputs than these is put in memory where several kernels read it
// (torch._inductor.config.realize_reads_threshold).
constexpr size_t kReadsAgainMax = 4;

// How far is looked for kernels to fuse alongside: readers of one value beside one another
// (torch._inductor.config.max_fusion_buffer_group_pairwise_attempts), and kernels between two.
// Beyond that they stay apart.
constexpr size_t kNeighboursMax = 64;
constexpr size_t kBetweenMax = 256;

// So many instances at the most: from there on cheap kernels put what they make in memory, too.
constexpr size_t kInstancesMax = size_t{1} << 20;

// A kernel, at the stage at which it runs: cheap ones run again within each that reads them.
struct Instance {
  uint32_t kernel = 0;
  uint32_t stage = 0;
  uint32_t within = kNone;  // of a cheap one, the instance that it is computed in
};

bool is_elementwise(const JointKernel& kernel) {
  return kernel.is_fusible && !kernel.is_random &&
         std::ranges::all_of(kernel.work, [](const KernelWork& work) {
           const bool reduces = work.kind == op::OpKind::sum || work.kind == op::OpKind::mean ||
                                work.kind == op::OpKind::amax ||
                                work.kind == op::OpKind::vector_norm ||
                                work.kind == op::OpKind::cumsum;
           const op::OpGroup group = op::group_of(work.kind);
           return !reduces && (group == op::OpGroup::elementwise ||
                               group == op::OpGroup::activation || group == op::OpGroup::memory);
         });
}

// How often a kernel's loop runs, and how many sums come of it, where it has sums.
struct Loop {
  int64_t length = 0;
  int64_t sums = 0;
};

Loop joined(const Loop& a, const Loop& b) {
  return {std::max(a.length, b.length), std::max(a.sums, b.sums)};
}

// One loop makes sums over rows and over columns where both are long enough: of tokens, and of what
// a norm's weight gets (MixOrderReduction in scheduler.py, on a GPU).
bool sums_both_ways(const Loop& a, const Loop& b) {
  constexpr int64_t kRowsMin = 4096;
  constexpr int64_t kColumnsMax = 16384;
  const int64_t rows = std::max(a.sums, b.sums);
  const int64_t columns = std::min(a.sums, b.sums);
  return rows >= kRowsMin && columns <= kColumnsMax && rows / 2 >= columns &&
         rows <= a.length / columns;
}

bool are_alike(const Loop& a, const Loop& b) {
  if (a.length != b.length) return false;
  return a.sums == 0 || b.sums == 0 || a.sums == b.sums || sums_both_ways(a, b);
}

class Fusion {
 public:
  Fusion(const JointGraph& graph, const std::vector<bool>& given,
         const std::vector<JointValueId>& wanted, bool is_backward)
      : graph_(graph),
        wanted_(wanted),
        is_backward_(is_backward),
        producer_(graph.values.size(), kNone),
        is_wanted_(graph.values.size()) {
    for (uint32_t k = 0; k < graph.kernels.size(); ++k) {
      for (const JointValueId value : graph.kernels[k].writes) {
        if (!given[value]) producer_[value] = k;
      }
    }
    for (const JointValueId value : wanted) is_wanted_[value] = true;
    choose_kernels();
    put_in_order();
    count_stages();
    place_instances();
    groups_ = KernelGroups(instances_.size());
    fuse();
    fuse_alongside();
    find_in_memory();
  }

  std::vector<FusedKernel> take() {
    std::vector<FusedKernel> fused;
    for (uint32_t i = static_cast<uint32_t>(instances_.size()); i-- > 0;) {
      if (groups_.of(i) == i) fused.push_back(as_kernel(i));
    }
    return fused;
  }

 private:
  // Those that `wanted` is made by.
  void choose_kernels() {
    is_chosen_.assign(graph_.kernels.size(), false);
    std::vector<JointValueId> pending = wanted_;
    while (!pending.empty()) {
      const uint32_t k = producer_[pending.back()];
      pending.pop_back();
      if (k == kNone || is_chosen_[k]) continue;
      is_chosen_[k] = true;
      for (const JointValueId read : graph_.kernels[k].reads) pending.push_back(read);
    }
  }

  // As autograd's engine would have run them: backward in its order, and what is computed again for
  // it right before it is needed first (reordering_to_mimic_autograd_engine).
  void put_in_order() {
    order_of_.assign(graph_.kernels.size(), kNone);
    uint32_t next = 0;
    for (uint32_t k = 0; k < graph_.kernels.size(); ++k) {
      const bool waits = is_backward_ && graph_.kernels[k].is_forward;
      if (is_chosen_[k] && !waits) next = put_behind_its_makers(k, next);
    }
    for (uint32_t k = 0; k < graph_.kernels.size(); ++k) {
      if (is_chosen_[k] && order_of_[k] == kNone) next = put_behind_its_makers(k, next);
    }
  }

  uint32_t put_behind_its_makers(uint32_t last, uint32_t next) {
    std::set<uint32_t> missing;
    std::vector<uint32_t> pending{last};
    while (!pending.empty()) {
      const uint32_t k = pending.back();
      pending.pop_back();
      if (order_of_[k] != kNone || !missing.insert(k).second) continue;
      for (const JointValueId read : graph_.kernels[k].reads) {
        if (producer_[read] != kNone) pending.push_back(producer_[read]);
      }
    }
    for (const uint32_t k : missing) order_of_[k] = next++;
    return next;
  }

  // How many libraries' kernels lie before a kernel at most: a fusible one behind one of them comes
  // a stage later. `sources_` is what an elementwise kernel reads in the end, through others.
  void count_stages() {
    earliest_.assign(graph_.kernels.size(), 0);
    sources_.resize(graph_.kernels.size());
    for (uint32_t k = 0; k < graph_.kernels.size(); ++k) {
      if (!is_chosen_[k]) continue;
      const JointKernel& kernel = graph_.kernels[k];
      for (const JointValueId read : kernel.reads) {
        const uint32_t from = producer_[read];
        const bool runs_again = from != kNone && is_elementwise(graph_.kernels[from]);
        if (runs_again) {
          sources_[k].insert(sources_[k].end(), sources_[from].begin(), sources_[from].end());
        } else {
          sources_[k].push_back(read);
        }
        if (from == kNone) continue;
        const bool is_behind = kernel.is_fusible && !graph_.kernels[from].is_fusible;
        earliest_[k] = std::max(earliest_[k], earliest_[from] + (is_behind ? 1 : 0));
      }
      std::ranges::sort(sources_[k]);
      const auto [first, last] = std::ranges::unique(sources_[k]);
      sources_[k].erase(first, last);
    }
  }

  // Backwards, so that a kernel's readers are placed before it. A fusible kernel runs with the
  // first of its readers, or, where it is cheap and no library's kernel wants it in memory, within
  // each of them.
  void place_instances() {
    const size_t count = graph_.kernels.size();
    instances_of_.resize(count);
    std::vector<std::vector<uint32_t>> readers(count);  // fused ones
    std::vector<uint32_t> in_memory_by(count, kNone);   // the first stage that reads it in memory
    for (uint32_t k = static_cast<uint32_t>(count); k-- > 0;) {
      if (!is_chosen_[k]) continue;
      const JointKernel& kernel = graph_.kernels[k];
      for (const Instance& placed : places_of(k, readers[k], in_memory_by[k])) {
        const auto index = static_cast<uint32_t>(instances_.size());
        instances_of_[k].push_back(index);
        instances_.push_back(placed);
        for (const JointValueId read : kernel.reads) {
          const uint32_t from = producer_[read];
          if (from == kNone) continue;
          if (kernel.is_fusible) {
            readers[from].push_back(index);
          } else {
            in_memory_by[from] = std::min(in_memory_by[from], placed.stage);
          }
        }
      }
    }
  }

  std::vector<Instance> places_of(uint32_t k, const std::vector<uint32_t>& readers,
                                  uint32_t in_memory) {
    const JointKernel& kernel = graph_.kernels[k];
    const bool is_wanted =
        std::ranges::any_of(kernel.writes, [&](JointValueId value) { return is_wanted_[value]; });
    if (!kernel.is_fusible || is_wanted) return {{k, earliest_[k]}};
    const bool is_cheap = is_elementwise(kernel) && sources_[k].size() <= kReadsAgainMax &&
                          instances_.size() < kInstancesMax;
    if (in_memory != kNone || !is_cheap) {
      uint32_t stage = in_memory;
      for (const uint32_t reader : readers) stage = std::min(stage, instances_[reader].stage);
      return {{k, stage}};
    }
    std::vector<Instance> places;
    for (const uint32_t reader : readers) {
      const bool is_again = !places.empty() && places.back().within == reader;  // reads it twice
      if (!is_again) places.push_back({k, instances_[reader].stage, reader});
    }
    return places;
  }

  // The instance that `reader` gets a value from, or kNone where it was given.
  uint32_t source_of(uint32_t reader, JointValueId value) {
    const uint32_t from = producer_[value];
    if (from == kNone) return kNone;
    const std::vector<uint32_t>& all = instances_of_[from];
    // In the order of their readers.
    const auto within = std::ranges::lower_bound(
        all, reader, {}, [&](uint32_t instance) { return instances_[instance].within; });
    const bool is_within = within != all.end() && instances_[*within].within == reader;
    return is_within ? *within : all.front();
  }

  // Fusible kernels of one stage that hand values to one another are one. A fused kernel depends on
  // libraries' kernels of earlier stages alone, and they on fused ones of no later stage, so no
  // circle arises.
  void fuse() {
    for (uint32_t i = 0; i < instances_.size(); ++i) {
      if (!kernel_of(i).is_fusible) continue;
      for (const JointValueId read : kernel_of(i).reads) {
        const uint32_t from = source_of(i, read);
        if (from == kNone || !kernel_of(from).is_fusible) continue;
        if (instances_[from].stage == instances_[i].stage) {
          groups_.join(groups_.of(from), groups_.of(i));
        }
      }
    }
  }

  // Fused kernels that read the same in loops of the same length are one, where neither is after
  // the other (horizontal fusion), which is what keeps circles out here.
  void fuse_alongside() {
    std::vector<Loop> loops(instances_.size());  // by group
    std::vector<std::vector<uint32_t>> readers(graph_.values.size());
    for (uint32_t i = 0; i < instances_.size(); ++i) {
      if (!kernel_of(i).is_fusible) continue;
      for (const JointValueId read : kernel_of(i).reads) readers[read].push_back(i);
      Loop& loop = loops[groups_.of(i)];
      loop = joined(loop, loop_of(kernel_of(i)));
    }
    std::set<std::pair<uint32_t, uint32_t>> apart;
    for (JointValueId value = 0; value < readers.size(); ++value) {
      const int64_t wanted = op::product(graph_.values[value].sizes);
      for (size_t i = 1; i < readers[value].size(); ++i) {
        for (size_t j = i - std::min(i, kNeighboursMax); j < i; ++j) {
          const uint32_t a = groups_.of(readers[value][i]);
          const uint32_t b = groups_.of(readers[value][j]);
          const bool alike = a != b && loops[a].length == wanted && are_alike(loops[a], loops[b]);
          if (!alike || apart.contains(std::minmax(a, b))) continue;
          if (depends(a, b) || depends(b, a)) {
            apart.insert(std::minmax(a, b));
          } else {
            const Loop both = joined(loops[a], loops[b]);
            loops[groups_.join(a, b)] = both;
          }
        }
      }
    }
  }

  [[nodiscard]] Loop loop_of(const JointKernel& kernel) const {
    Loop loop;
    int64_t fewest = INT64_MAX;
    for (const JointValueId value : kernel.writes) {
      const int64_t count = op::product(graph_.values[value].sizes);
      loop.length = std::max(loop.length, count);
      fewest = std::min(fewest, count);
    }
    if (is_elementwise(kernel) || kernel.is_random) return loop;
    for (const JointValueId value : kernel.reads) {
      loop.length = std::max(loop.length, op::product(graph_.values[value].sizes));
    }
    if (fewest < loop.length) loop.sums = fewest;
    return loop;
  }

  // True, too, where it is too far to tell.
  bool depends(uint32_t group, uint32_t on) {
    ++search_;
    seen_in_.resize(instances_.size());
    std::vector<uint32_t> pending{group};
    for (size_t looked_at = 0; looked_at < pending.size(); ++looked_at) {
      if (pending.size() > kBetweenMax) return true;
      for (const uint32_t member : groups_.members(pending[looked_at])) {
        for (const JointValueId read : kernel_of(member).reads) {
          const uint32_t from = source_of(member, read);
          if (from == kNone) continue;
          const uint32_t source = groups_.of(from);
          if (source == on) return true;
          if (source == group || std::exchange(seen_in_[source], search_) == search_) continue;
          pending.push_back(source);
        }
      }
    }
    return false;
  }

  const JointKernel& kernel_of(uint32_t instance) const {
    return graph_.kernels[instances_[instance].kernel];
  }

  // What others read than those that it is fused with.
  void find_in_memory() {
    is_in_memory_ = is_wanted_;
    for (uint32_t i = 0; i < instances_.size(); ++i) {
      for (const JointValueId read : kernel_of(i).reads) {
        const uint32_t from = source_of(i, read);
        if (from == kNone || groups_.of(from) != groups_.of(i)) is_in_memory_[read] = true;
      }
    }
  }

  // Of a member, what its own loop reads from memory, through members that are computed within it.
  const std::vector<JointValueId>& reads_of(uint32_t member) {
    const auto [known, is_new] = reads_of_.try_emplace(member);
    if (!is_new) return known->second;
    std::vector<JointValueId> reads;
    for (const JointValueId read : kernel_of(member).reads) {
      const uint32_t from = source_of(member, read);
      const bool is_fused = from != kNone && groups_.of(from) == groups_.of(member);
      if (is_fused && is_computed_within(from)) {
        const std::vector<JointValueId>& inner = reads_of(from);
        reads.insert(reads.end(), inner.begin(), inner.end());
      } else if (!is_fused) {
        reads.push_back(read);
      }
    }
    std::ranges::sort(reads);
    const auto [first, last] = std::ranges::unique(reads);
    reads.erase(first, last);
    return reads_of_[member] = std::move(reads);
  }

  bool is_computed_within(uint32_t member) {
    const JointKernel& kernel = kernel_of(member);
    return is_elementwise(kernel) && std::ranges::none_of(kernel.writes, [&](JointValueId value) {
             return is_in_memory_[value];
           });
  }

  FusedKernel as_kernel(uint32_t root) {
    const JointKernel& library = kernel_of(root);
    FusedKernel fused;
    fused.allocates =
        !library.is_fusible && std::ranges::none_of(library.work, [](const KernelWork& work) {
          return op::group_of(work.kind) == op::OpGroup::gemm;
        });
    fused.module = kernel_of(in_order(root).back()).module;
    fused.order = order_of_[instances_[root].kernel];
    if (!library.is_fusible) {
      // It writes all that it has, wanted or not, but what is there already.
      fused.reads = library.reads;
      for (const JointValueId value : library.writes) {
        if (producer_[value] != kNone) fused.writes.push_back(value);
      }
      fused.work = library.work;
      fused.scratch_bytes = library.scratch_bytes;
      return fused;
    }
    std::vector<std::pair<JointValueId, uint32_t>> uses;  // {what is read, by which loop}
    fused.order = kNone;
    for (const uint32_t member : in_order(root)) {
      if (is_computed_within(member)) continue;
      for (const JointValueId read : reads_of(member)) uses.emplace_back(read, member);
      fused.order = std::min(fused.order, order_of_[instances_[member].kernel]);
      for (const JointValueId value : kernel_of(member).writes) {
        if (producer_[value] != kNone && is_in_memory_[value]) fused.writes.push_back(value);
      }
    }
    std::ranges::sort(uses);
    for (size_t i = 0; i < uses.size(); ++i) {
      const auto [read, member] = uses[i];
      if (i == 0 || uses[i - 1].first != read) fused.reads.push_back(read);
      const bool is_sole = (i == 0 || uses[i - 1].first != read) &&
                           (i + 1 == uses.size() || uses[i + 1].first != read);
      if (is_sole) allow_in_place(fused, read, member);
    }
    fused.work = {work_of(root, fused)};
    return fused;
  }

  // Members in the order of their kernels.
  std::vector<uint32_t> in_order(uint32_t root) const {
    std::vector<uint32_t> members = groups_.members(root);
    std::ranges::sort(members, std::ranges::greater{});
    return members;
  }

  void allow_in_place(FusedKernel& fused, JointValueId read, uint32_t member) {
    if (!is_elementwise(kernel_of(member))) return;
    for (const JointValueId value : kernel_of(member).writes) {
      if (is_in_memory_[value] && bytes_of(graph_.values[value]) == bytes_of(graph_.values[read])) {
        fused.in_place.emplace_back(read, value);
      }
    }
  }

  // One kernel that reads what comes from elsewhere once: of a block what its tensors show.
  KernelWork work_of(uint32_t root, const FusedKernel& fused) {
    KernelWork all{.kind = op::OpKind::fused_kernel};
    std::map<JointValueId, int64_t> read_bytes;
    for (const uint32_t member : groups_.members(root)) {
      const JointKernel& kernel = kernel_of(member);
      for (const KernelWork& work : kernel.work) {
        all.flops += work.flops;
        if (groups_.members(root).size() == 1) all.kind = work.kind;
      }
      for (size_t i = 0; i < kernel.reads.size(); ++i) {
        int64_t& bytes = read_bytes[kernel.reads[i]];
        bytes = std::max(bytes, kernel.read_bytes[i]);
      }
    }
    for (const JointValueId read : fused.reads) all.bytes_read += read_bytes[read];
    for (const JointValueId value : fused.writes) {
      all.bytes_written += bytes_of(graph_.values[value]);
    }
    return all;
  }

  const JointGraph& graph_;
  const std::vector<JointValueId>& wanted_;
  bool is_backward_;
  std::vector<uint32_t> producer_;  // by value, of those that are not given
  std::vector<bool> is_wanted_;
  std::vector<bool> is_in_memory_;
  std::vector<bool> is_chosen_;                      // by kernel
  std::vector<uint32_t> order_of_;                   // by kernel
  std::vector<uint32_t> earliest_;                   // stage
  std::vector<std::vector<JointValueId>> sources_;   // by kernel
  std::vector<Instance> instances_;                  // readers before what they read
  std::vector<std::vector<uint32_t>> instances_of_;  // by kernel
  KernelGroups groups_{0};                           // of instances
  std::map<uint32_t, std::vector<JointValueId>> reads_of_;
  std::vector<uint32_t> seen_in_;  // by group: the latest search that met it
  uint32_t search_ = 0;
};

}  // namespace

std::vector<FusedKernel> fuse_kernels(const JointGraph& graph, const std::vector<bool>& given,
                                      const std::vector<JointValueId>& wanted, bool is_backward) {
  return Fusion(graph, given, wanted, is_backward).take();
}

}  // namespace headroom::step

#include "step/compiled/program.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "step/compiled/buffer_reuse.h"
#include "step/compiled/fusion.h"

namespace headroom::step {

namespace {

constexpr uint32_t kNone = UINT32_MAX;
using Order = std::vector<uint32_t>;  // kernels

class ProgramMaker {
 public:
  ProgramMaker(const JointGraph& graph, const std::vector<bool>& given,
               const std::vector<JointValueId>& wanted, bool is_backward, bool holds_gradients)
      : graph_(graph),
        wanted_(wanted),
        kernels_(fuse_kernels(graph, given, wanted, is_backward)),
        maker_(graph.values.size(), kNone),
        stays_(graph.values.size()),
        is_argument_(graph.values.size()) {
    for (uint32_t k = 0; k < kernels_.size(); ++k) {
      for (const JointValueId value : kernels_[k].writes) maker_[value] = k;
    }
    for (const JointValueId value : graph.arguments) is_argument_[value] = true;
    stays_ = is_callers_ = is_argument_;
    for (const auto& gradient : graph.output_gradients) {
      if (!gradient) continue;
      is_callers_[*gradient] = true;
      stays_[*gradient] = holds_gradients;
    }
    // What is kept of the arguments is backward's own hold on them.
    if (is_backward) {
      for (const JointValueId value : graph.arguments) stays_[value] = false;
      // What the caller was given is not written over (donated_buffer).
      for (const JointTensor& output : graph.outputs) is_callers_[output.value] = true;
    }
    for (const JointValueId value : wanted) stays_[value] = true;
  }

  Program take() {
    const Order as_run = order_as_run();
    const Order by_peak = order_by_peak();
    Program program = program_of(peak_of(by_peak) < peak_of(as_run) ? by_peak : as_run);
    program.reads.assign(graph_.values.size(), false);
    for (const FusedKernel& kernel : kernels_) {
      for (const JointValueId read : kernel.reads) {
        if (maker_[read] == kNone) program.reads[read] = true;
      }
    }
    for (const JointValueId value : wanted_) {
      if (maker_[value] == kNone) program.reads[value] = true;
    }
    return program;
  }

 private:
  // By their first operators, each behind what it reads (Scheduler.topological_sort_schedule).
  Order order_as_run() const {
    Order sorted(kernels_.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    std::ranges::stable_sort(sorted, {}, [&](uint32_t k) { return kernels_[k].order; });
    Order order;
    std::vector<bool> is_launched(kernels_.size());
    for (const uint32_t k : sorted) launch(k, order, is_launched);
    return order;
  }

  // With all that it reads before it.
  void launch(uint32_t k, Order& order, std::vector<bool>& is_launched) const {
    std::vector<std::pair<uint32_t, size_t>> pending{{k, 0}};  // and how many reads are looked at
    while (!pending.empty()) {
      auto& [at, looked_at] = pending.back();
      if (is_launched[at]) {
        pending.pop_back();
      } else if (looked_at == kernels_[at].reads.size()) {
        is_launched[at] = true;
        order.push_back(at);
        pending.pop_back();
      } else {
        HEADROOM_CHECK(pending.size() <= kernels_.size(),
                       "fused kernels that wait for one another");
        const uint32_t from = maker_[kernels_[at].reads[looked_at++]];
        if (from != kNone && !is_launched[from]) pending.emplace_back(from, 0);
      }
    }
  }

  // Bytes that end with a kernel, where `uses` are left of each value.
  int64_t ended_bytes(const FusedKernel& kernel, const std::vector<uint32_t>& uses) const {
    int64_t bytes = 0;
    for (const JointValueId read : kernel.reads) {
      if (uses[read] == 1 && !is_argument_[read]) bytes += bytes_of(graph_.values[read]);
    }
    for (const JointValueId made : kernel.writes) {
      if (uses[made] == 0) bytes += bytes_of(graph_.values[made]);
    }
    return bytes;
  }

  // Of what was given, all but arguments can end here; results last. As PyTorch counts them,
  // without blocks that are written over in place.
  std::vector<uint32_t> uses_of_values() const {
    std::vector<uint32_t> uses(graph_.values.size());
    for (const FusedKernel& kernel : kernels_) {
      for (const JointValueId read : kernel.reads) ++uses[read];
    }
    for (const JointValueId value : wanted_) ++uses[value];
    return uses;
  }

  int64_t given_bytes(const std::vector<uint32_t>& uses) const {
    int64_t bytes = 0;
    for (JointValueId value = 0; value < uses.size(); ++value) {
      const bool is_given = uses[value] > 0 && maker_[value] == kNone && !is_argument_[value];
      if (is_given) bytes += bytes_of(graph_.values[value]);
    }
    return bytes;
  }

  int64_t wanted_bytes() const {
    int64_t bytes = 0;
    for (const JointValueId value : wanted_) {
      if (!is_argument_[value]) bytes += bytes_of(graph_.values[value]);
    }
    return bytes;
  }

  // topological_sort_lpmf.
  Order order_by_peak() const {
    std::vector<uint32_t> uses = uses_of_values();
    std::vector<uint32_t> waits_for(kernels_.size());
    std::vector<std::vector<uint32_t>> waiting(kernels_.size());
    std::vector<uint32_t> ready;
    for (uint32_t k = 0; k < kernels_.size(); ++k) {
      for (const JointValueId read : kernels_[k].reads) {
        if (maker_[read] == kNone) continue;
        ++waits_for[k];
        waiting[maker_[read]].push_back(k);
      }
      if (waits_for[k] == 0) ready.push_back(k);
    }
    Order order;
    int64_t live = given_bytes(uses);
    int64_t peak = std::max(live, wanted_bytes());
    while (!ready.empty()) {
      const auto cost_of = [&](uint32_t k) {
        const int64_t made = made_bytes(kernels_[k]);
        return std::tuple(made > peak - live ? made : 0, made - ended_bytes(kernels_[k], uses),
                          kernels_[k].order, k);
      };
      const auto best = std::ranges::min_element(ready, {}, cost_of);
      const uint32_t k = *best;
      live += made_bytes(kernels_[k]);
      peak = std::max(peak, live);
      live -= ended_bytes(kernels_[k], uses);
      ready.erase(best);
      order.push_back(k);
      for (const JointValueId read : kernels_[k].reads) --uses[read];
      for (const uint32_t next : waiting[k]) {
        if (--waits_for[next] == 0) ready.push_back(next);
      }
    }
    HEADROOM_CHECK(order.size() == kernels_.size(), "fused kernels that wait for one another");
    return order;
  }

  int64_t made_bytes(const FusedKernel& kernel) const {
    int64_t bytes = 0;
    for (const JointValueId value : kernel.writes) bytes += bytes_of(graph_.values[value]);
    return bytes;
  }

  Program program_of(const Order& order) const {
    std::vector<uint32_t> last_reader(graph_.values.size(), kNone);
    for (uint32_t at = 0; at < order.size(); ++at) {
      for (const JointValueId read : kernels_[order[at]].reads) last_reader[read] = at;
    }
    Program program;
    BufferReuse reuse(live_bytes(order));
    for (uint32_t at = 0; at < order.size(); ++at) {
      const FusedKernel& kernel = kernels_[order[at]];
      program.steps.push_back(step_of(kernel, at, last_reader));
      reuse_ended(kernel, at, reuse, program.steps);
    }
    return program;
  }

  ProgramStep step_of(const FusedKernel& kernel, uint32_t at,
                      const std::vector<uint32_t>& last_reader) const {
    ProgramStep step;
    step.reads = kernel.reads;
    step.work = kernel.work;
    step.scratch_bytes = kernel.scratch_bytes;
    step.module = kernel.module;
    for (const JointValueId read : kernel.reads) {
      if (last_reader[read] == at && !stays_[read]) step.frees.push_back(read);
    }
    for (const JointValueId value : kernel.writes) {
      if (const JointValueId ended = place_for(value, kernel, step); ended != kNone) {
        step.reuses.emplace_back(ended, value);
        std::erase(step.frees, ended);
      } else {
        step.allocates.push_back(value);
      }
      if (last_reader[value] == kNone && !stays_[value]) step.frees.push_back(value);
    }
    return step;
  }

  // Blocks that ended before hold what the kernel writes, where they may, and what ends here waits
  // for others that do. What the caller gave is neither.
  void reuse_ended(const FusedKernel& kernel, uint32_t at, BufferReuse& reuse,
                   std::vector<ProgramStep>& steps) const {
    std::vector<JointValueId>& allocates = steps[at].allocates;
    std::erase_if(allocates, [&](JointValueId value) {
      const auto ended = kernel.allocates ? std::nullopt : reuse.take(graph_.values[value], at);
      if (!ended) return false;
      std::erase(steps[ended->kernel].frees, ended->value);
      steps[at].reuses.emplace_back(ended->value, value);
      return true;
    });
    for (const JointValueId value : steps[at].frees) {
      if (!is_callers_[value]) reuse.end(graph_.values[value], at);
    }
  }

  JointValueId place_for(JointValueId value, const FusedKernel& kernel,
                         const ProgramStep& step) const {
    for (const auto& [read, written] : kernel.in_place) {
      const bool ends = std::ranges::find(step.frees, read) != step.frees.end();
      if (written == value && ends && !is_callers_[read]) return read;
    }
    return kNone;
  }

  // While each kernel runs.
  std::vector<int64_t> live_bytes(const Order& order) const {
    std::vector<uint32_t> uses = uses_of_values();
    std::vector<int64_t> live_bytes;
    int64_t live = given_bytes(uses);
    for (const uint32_t k : order) {
      live += made_bytes(kernels_[k]);
      live_bytes.push_back(live);
      live -= ended_bytes(kernels_[k], uses);
      for (const JointValueId read : kernels_[k].reads) --uses[read];
    }
    return live_bytes;
  }

  int64_t peak_of(const Order& order) const {
    const std::vector<int64_t> live = live_bytes(order);
    return live.empty() ? 0 : *std::ranges::max_element(live);
  }

  const JointGraph& graph_;
  const std::vector<JointValueId>& wanted_;
  const std::vector<FusedKernel> kernels_;
  std::vector<uint32_t> maker_;   // by value
  std::vector<bool> stays_;       // by value: to the end of the pass
  std::vector<bool> is_callers_;  // by value: arguments, and what backward is given
  std::vector<bool> is_argument_;
};

}  // namespace

Program forward_program(const JointGraph& graph, const std::vector<bool>& given,
                        const std::vector<JointValueId>& wanted) {
  return ProgramMaker(graph, given, wanted, false, true).take();
}

Program backward_program(const JointGraph& graph, const std::vector<bool>& given,
                         const std::vector<JointValueId>& wanted, bool holds_gradients) {
  return ProgramMaker(graph, given, wanted, true, holds_gradients).take();
}

}  // namespace headroom::step

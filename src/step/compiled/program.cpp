#include "step/compiled/program.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "step/compiled/fusion.h"

namespace headroom::step {

namespace {

constexpr uint32_t kNone = UINT32_MAX;
using Order = std::vector<uint32_t>;  // kernels

class ProgramMaker {
 public:
  ProgramMaker(const JointGraph& graph, const std::vector<bool>& given,
               const std::vector<JointValueId>& wanted, bool is_backward)
      : graph_(graph),
        wanted_(wanted),
        kernels_(fuse_kernels(graph, given, wanted, is_backward)),
        maker_(graph.values.size(), kNone),
        stays_(graph.values.size()),
        is_callers_(graph.values.size()) {
    for (uint32_t k = 0; k < kernels_.size(); ++k) {
      for (const JointValueId value : kernels_[k].writes) maker_[value] = k;
    }
    for (const JointValueId value : graph.arguments) is_callers_[value] = true;
    for (const auto& gradient : graph.output_gradients) {
      if (gradient) is_callers_[*gradient] = true;
    }
    stays_ = is_callers_;
    // What is kept of the arguments is backward's own hold on them.
    if (is_backward) {
      for (const JointValueId value : graph.arguments) stays_[value] = false;
    }
    for (const JointValueId value : wanted) stays_[value] = true;
  }

  Program take() {
    Program as_run = program_of(order_as_run());
    Program by_peak = program_of(order_by_peak());
    Program& better = peak_of(by_peak) < peak_of(as_run) ? by_peak : as_run;
    better.reads.assign(graph_.values.size(), false);
    for (const FusedKernel& kernel : kernels_) {
      for (const JointValueId read : kernel.reads) {
        if (maker_[read] == kNone) better.reads[read] = true;
      }
    }
    for (const JointValueId value : wanted_) {
      if (maker_[value] == kNone) better.reads[value] = true;
    }
    return std::move(better);
  }

 private:
  Order order_as_run() const {
    Order order;
    std::vector<bool> is_launched(kernels_.size());
    for (uint32_t k = 0; k < kernels_.size(); ++k) {
      // What is computed again in backward waits for its reader.
      if (kernels_[k].is_library && !kernels_[k].runs_again) launch(k, order, is_launched);
    }
    for (const JointValueId value : wanted_) {
      if (maker_[value] != kNone) launch(maker_[value], order, is_launched);
    }
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
        const uint32_t from = maker_[kernels_[at].reads[looked_at++]];
        if (from != kNone && !is_launched[from]) pending.emplace_back(from, 0);
      }
    }
  }

  // A kernel's bytes that it makes, beside those in whose place it writes, and that end with it.
  struct Change {
    int64_t made = 0;
    int64_t ended = 0;
  };
  Change change_by(const FusedKernel& kernel, const std::vector<uint32_t>& readers) const {
    const auto ends = [&](JointValueId read) { return readers[read] == 1 && !stays_[read]; };
    Change change{made_bytes(kernel), 0};
    for (const JointValueId read : kernel.reads) {
      if (ends(read)) change.ended += bytes_of(graph_.values[read]);
    }
    for (const auto& [read, _] : kernel.in_place) {
      if (!ends(read) || is_callers_[read]) continue;
      change.made -= bytes_of(graph_.values[read]);
      change.ended -= bytes_of(graph_.values[read]);
    }
    return change;
  }

  Order order_by_peak() const {
    std::vector<uint32_t> readers(graph_.values.size());
    std::vector<uint32_t> waits_for(kernels_.size());
    std::vector<std::vector<uint32_t>> waiting(kernels_.size());
    std::vector<uint32_t> ready;
    for (uint32_t k = 0; k < kernels_.size(); ++k) {
      for (const JointValueId read : kernels_[k].reads) {
        ++readers[read];
        if (maker_[read] == kNone) continue;
        ++waits_for[k];
        waiting[maker_[read]].push_back(k);
      }
      if (waits_for[k] == 0) ready.push_back(k);
    }
    Order order;
    int64_t live = 0;
    int64_t peak = 0;
    while (!ready.empty()) {
      const auto cost_of = [&](uint32_t k) {
        const Change change = change_by(kernels_[k], readers);
        return std::tuple(std::max<int64_t>(live + change.made - peak, 0),
                          change.made - change.ended, k);
      };
      const auto best = std::ranges::min_element(ready, {}, cost_of);
      const uint32_t k = *best;
      const Change change = change_by(kernels_[k], readers);
      peak = std::max(peak, live + change.made);
      live += change.made - change.ended;
      ready.erase(best);
      order.push_back(k);
      for (const JointValueId read : kernels_[k].reads) --readers[read];
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
    for (uint32_t at = 0; at < order.size(); ++at) {
      program.steps.push_back(step_of(kernels_[order[at]], at, last_reader));
    }
    return program;
  }

  ProgramStep step_of(const FusedKernel& kernel, uint32_t at,
                      const std::vector<uint32_t>& last_reader) const {
    ProgramStep step;
    step.reads = kernel.reads;
    step.work = kernel.work;
    step.scratch_bytes = kernel.scratch_bytes;
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

  JointValueId place_for(JointValueId value, const FusedKernel& kernel,
                         const ProgramStep& step) const {
    for (const auto& [read, written] : kernel.in_place) {
      const bool ends = std::ranges::find(step.frees, read) != step.frees.end();
      if (written == value && ends && !is_callers_[read]) return read;
    }
    return kNone;
  }

  int64_t peak_of(const Program& program) const {
    int64_t live = 0;
    int64_t peak = 0;
    for (const ProgramStep& step : program.steps) {
      for (const JointValueId value : step.allocates) live += bytes_of(graph_.values[value]);
      peak = std::max(peak, live + step.scratch_bytes);
      for (const JointValueId value : step.frees) live -= bytes_of(graph_.values[value]);
    }
    return peak;
  }

  const JointGraph& graph_;
  const std::vector<JointValueId>& wanted_;
  const std::vector<FusedKernel> kernels_;
  std::vector<uint32_t> maker_;   // by value
  std::vector<bool> stays_;       // by value: to the end of the pass
  std::vector<bool> is_callers_;  // by value: arguments, and what backward is given
};

}  // namespace

Program forward_program(const JointGraph& graph, const std::vector<bool>& given,
                        const std::vector<JointValueId>& wanted) {
  return ProgramMaker(graph, given, wanted, false).take();
}

Program backward_program(const JointGraph& graph, const std::vector<bool>& given,
                         const std::vector<JointValueId>& wanted) {
  return ProgramMaker(graph, given, wanted, true).take();
}

}  // namespace headroom::step

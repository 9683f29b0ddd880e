#include "fit/time/mirrored_time.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace headroom::fit {

namespace {

using step::BackwardPart;
using step::PipelinePass;

constexpr double kPartsOfAMicroBatch = 6;  // two chunks; forward, inputs, weights

class Run {
 public:
  Run(const std::vector<StageFigures>& stages, step::Pipeline pipeline, int64_t micro_batches)
      : stages_(stages), parts_(2 * stages.size()) {
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      pipeline.stage = static_cast<int64_t>(stage);
      ranks_.push_back({passes_of(pipeline, micro_batches)});
    }
  }

  // When the last stage is done.
  double seconds() {
    bool goes_on = true;
    while (goes_on) {
      goes_on = false;
      for (size_t stage = 0; stage < ranks_.size(); ++stage) goes_on |= run_while_ready(stage);
    }
    return std::ranges::max_element(ranks_, {}, &Rank::now)->now;
  }

 private:
  struct Rank {
    std::vector<PipelinePass> passes;
    size_t next = 0;
    double now = 0;
  };
  // When each micro-batch was through a part of the model.
  struct Part {
    std::vector<double> forward, backward;
  };

  bool run_while_ready(size_t stage) {
    Rank& rank = ranks_[stage];
    const size_t begin = rank.next;
    while (rank.next < rank.passes.size()) {
      const PipelinePass& pass = rank.passes[rank.next];
      const size_t part = pass.chunk == 0 ? stage : parts_.size() - 1 - stage;
      const auto ready = ready_at(part, pass);
      if (!ready) break;
      rank.now = std::max(rank.now, *ready) + seconds_of(stage, part, pass);
      note(part, pass, rank.now);
      ++rank.next;
    }
    return rank.next > begin;
  }

  // Nothing: what it reads has not been made yet.
  [[nodiscard]] std::optional<double> ready_at(size_t part, const PipelinePass& pass) const {
    const auto made = [](const std::vector<double>& by_micro_batch,
                         size_t micro_batch) -> std::optional<double> {
      if (micro_batch >= by_micro_batch.size()) return std::nullopt;
      return by_micro_batch[micro_batch];
    };
    const Part& own = parts_[part];
    if (pass.is_forward) {
      return part == 0 ? 0 : made(parts_[part - 1].forward, own.forward.size());
    }
    if (pass.part == BackwardPart::weights || part + 1 == parts_.size()) return 0;
    return made(parts_[part + 1].backward, own.backward.size());
  }

  void note(size_t part, const PipelinePass& pass, double now) {
    if (pass.is_forward) {
      parts_[part].forward.push_back(now);
    } else if (pass.part != BackwardPart::weights) {
      parts_[part].backward.push_back(now);
    }
  }

  [[nodiscard]] double seconds_of(size_t stage, size_t part, const PipelinePass& pass) const {
    const double third = stages_[stage].micro_batch_seconds / kPartsOfAMicroBatch;
    if (pass.is_forward) return third;
    if (pass.part == BackwardPart::whole) return 2 * third;
    if (part > 0) return third;
    return pass.part == BackwardPart::inputs ? 0 : 2 * third;
  }

  const std::vector<StageFigures>& stages_;
  std::vector<Part> parts_;
  std::vector<Rank> ranks_;
};

}  // namespace

double mirrored_waiting_seconds(const std::vector<StageFigures>& stages,
                                const StageFigures& slowest, const step::Pipeline& pipeline) {
  const int64_t some = step::representative_micro_batches(pipeline, pipeline.micro_batches, 0);
  // A difference of sums: what is no more than their last digits is none.
  const double busy = slowest.micro_batch_seconds * static_cast<double>(some);
  const double waiting = Run(stages, pipeline, some).seconds() - busy;
  constexpr double kDigits = 1e-9;
  return waiting > kDigits * busy ? waiting : 0;
}

}  // namespace headroom::fit

#include "memory/plan/plan_score.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "base/units.h"
#include "memory/plan/plan_server.h"
#include "memory/replay.h"

namespace headroom::memory {
namespace {

class Scorer {
 public:
  Scorer(const UnderstoodRecording& recording, const MemoryPlan& plan)
      : recording_(recording), plan_(plan), server_(plan) {
    for (const RecordedRequest& request : recording.requests) handles_.push_back(request.stream);
    std::sort(handles_.begin(), handles_.end());
    handles_.erase(std::unique(handles_.begin(), handles_.end()), handles_.end());
    score_.plan_bytes = plan.bytes;
    for (const PersistentBlock& block : plan.persistent) {
      allocated_ += round_up(block.size, plan.alignment);
    }
    score_.peak_allocated_bytes = allocated_;
  }

  void serve(const Iteration& iteration) {
    ++score_.iterations;
    release_until(iteration.lower);
    server_.begin_iteration();
    for (size_t i = iteration.begin; i < iteration.end; ++i) {
      if (recording_.classes.by_request[i].lifespan == Lifespan::persistent) continue;
      release_until(recording_.requests[i].lower);
      allocate(recording_.requests[i]);
    }
  }

  PlanScore finish() {
    release_until(std::numeric_limits<int64_t>::max());
    DeviceMemory device;
    score_.fallback_bytes = replay(fallback_, {}, device).peak_reserved.bytes;
    return score_;
  }

 private:
  struct Live {
    int64_t upper = 0;
    int64_t rounded = 0;
    int64_t offset = 0;
    uint32_t fallback = kNoRequest;  // the buffer, where it fell back
    bool operator>(const Live& other) const { return upper > other.upper; }
  };

  void allocate(const RecordedRequest& request) {
    const auto at = std::lower_bound(handles_.begin(), handles_.end(), request.stream);
    const auto stream = static_cast<uint32_t>(at - handles_.begin());
    Live live{request.upper, round_up(request.size, plan_.alignment), 0, kNoRequest};
    ++score_.requests;
    const PlanServer::Served served = server_.allocate(stream, request.size);
    live.offset = served.offset;
    if (served.source == PlanServer::Source::planned) ++score_.planned;
    if (served.source == PlanServer::Source::reused) ++score_.reused;
    if (served.source == PlanServer::Source::none) {
      ++score_.fallen_back;
      BufferInfo info;
      info.requested_bytes = std::min(request.size, kMaxRequest);
      info.stream = stream;
      live.fallback = fallback_.alloc(info, 0);
    }
    allocated_ += live.rounded;
    score_.peak_allocated_bytes = std::max(score_.peak_allocated_bytes, allocated_);
    live_.push(live);
  }

  void release_until(int64_t time) {
    while (!live_.empty() && live_.top().upper <= time) {
      const Live live = live_.top();
      live_.pop();
      allocated_ -= live.rounded;
      if (live.fallback == kNoRequest) {
        server_.release(live.offset);
      } else {
        fallback_.free(live.fallback, 0);
      }
    }
  }

  const UnderstoodRecording& recording_;
  const MemoryPlan& plan_;
  PlanServer server_;
  std::vector<int64_t> handles_;  // of streams
  std::priority_queue<Live, std::vector<Live>, std::greater<>> live_;
  MemoryTrace fallback_;
  int64_t allocated_ = 0;
  PlanScore score_;
};

}  // namespace

PlanScore score_plan(const UnderstoodRecording& recording, const MemoryPlan& plan,
                     std::span<const uint32_t> iterations) {
  Scorer scorer(recording, plan);
  const size_t count = std::min(iterations.size(), kMostScored);
  for (size_t i = 0; i < count; ++i) {
    scorer.serve(recording.iterations.whole[iterations[i * iterations.size() / count]]);
  }
  return scorer.finish();
}

std::optional<PlanScore> score_held_out(const UnderstoodRecording& recording,
                                        const PlanOptions& options) {
  // All kinds leave out as many: those that have too few are left out of the score.
  std::vector<bool> is_planned_from(recording.iterations.whole.size(), false);
  size_t most = 0;
  for (const auto& kind : iterations_to_plan(recording.iterations, 0)) {
    most = std::max(most, std::min(kPlannedFrom, kind.size() - 1));
  }
  if (most == 0) return std::nullopt;
  std::vector<uint32_t> others;
  PlanOptions few = options;
  few.most_iterations = most;
  for (const auto& kind : iterations_to_plan(recording.iterations, most)) {
    for (const uint32_t i : kind) is_planned_from[i] = true;
  }
  // Not the first, which makes what stays, and which no plan serves.
  for (uint32_t i = 1; i < is_planned_from.size(); ++i) {
    if (!is_planned_from[i]) others.push_back(i);
  }
  if (others.empty()) return std::nullopt;
  return score_plan(recording, make_plan(recording, few), others);
}

}  // namespace headroom::memory

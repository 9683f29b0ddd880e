#include "pack/understanding.h"

#include <algorithm>
#include <numeric>

#include "pack/answer.h"

namespace headroom::pack {
namespace {

// Enough for first fit and a short search; the plan of the whole recording has the full effort.
constexpr int64_t kPlacements = 300'000;

std::vector<memory::RecordedRequest> recorded(const PackAnswer& answer) {
  std::vector<memory::RecordedRequest> requests;
  requests.reserve(answer.requests.size());
  for (const PlannedRequest& planned : answer.requests) {
    requests.push_back({planned.request.lower, planned.request.upper, planned.request.size,
                        planned.stream, 0, planned.released});
  }
  return requests;
}

// All that was recorded as one iteration, placed as the answer has it.
memory::MemoryPlan whole_plan(const PackAnswer& answer) {
  memory::MemoryPlan plan;
  plan.alignment = answer.alignment;
  for (const Bytes bytes : answer.plan.stream_bytes) {
    plan.streams.push_back({{plan.bytes, bytes.count}, 0, 0});
    plan.bytes += bytes.count;
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < answer.requests.size(); ++i) {
    const memory::PackingRequest& request = answer.requests[i].request;
    if (request.lower < request.upper) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return answer.requests[a].request.lower < answer.requests[b].request.lower;
  });
  memory::SignaturePlan signature;
  signature.iterations = 1;
  for (const size_t i : order) {
    const PlannedRequest& planned = answer.requests[i];
    const int64_t upper = safe_upper(planned.released, planned.request.upper);
    const auto next = std::lower_bound(
        order.begin(), order.end(), upper,
        [&](size_t other, int64_t time) { return answer.requests[other].request.lower < time; });
    signature.slots.push_back({static_cast<uint32_t>(planned.stream),
                               static_cast<uint32_t>(next - order.begin()), planned.request.size,
                               planned.request.size, planned.offset, false});
  }
  plan.signatures.push_back(std::move(signature));
  return plan;
}

}  // namespace

Understanding understand(const PackAnswer& answer, const std::vector<int64_t>& marks,
                         uint64_t seed) {
  Understanding result;
  const std::vector<memory::RecordedRequest> requests = recorded(answer);
  result.iterations = memory::find_iterations(requests, marks);
  result.classes = memory::classify_requests(requests, result.iterations);
  for (const memory::RequestClass& request : result.classes.by_request) {
    ++result.counts[static_cast<size_t>(request.recurrence)][static_cast<size_t>(request.lifespan)];
  }
  if (result.iterations.whole.empty()) return result;
  const memory::SlotFinder finder(requests, result.iterations);
  const memory::UnderstoodRecording recording{requests, result.iterations, result.classes, finder};
  memory::PlanOptions options;
  options.alignment = answer.alignment;
  options.synthesis.placements = kPlacements;
  options.synthesis.seed = seed;
  result.plan = memory::make_plan(recording, options);
  result.held_out = memory::score_held_out(recording, options);
  return result;
}

memory::MemoryPlan memory_plan_of(const PackAnswer& answer) {
  if (answer.understanding && answer.understanding->plan) return *answer.understanding->plan;
  return whole_plan(answer);
}

int64_t safe_upper(int64_t released, int64_t upper) {
  return released >= upper ? upper : upper + (upper - released + 1) / 2;
}

}  // namespace headroom::pack

#include "pack/understanding.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "pack/answer.h"

namespace headroom::pack {
namespace {

// Enough for first fit and a short search; the plan of the whole recording has the full effort.
constexpr int64_t kPlacements = 300'000;

// By the answer's index: the streams' numbers in a plan, in the order of their first use. By that a
// run knows them again, as their handles are others each time.
std::vector<uint32_t> numbers_of_streams(const PackAnswer& answer) {
  std::vector<int64_t> first(answer.streams, std::numeric_limits<int64_t>::max());
  for (const PlannedRequest& planned : answer.requests) {
    int64_t& time = first[static_cast<size_t>(planned.stream)];
    time = std::min(time, planned.request.lower);
  }
  std::vector<uint32_t> order(answer.streams);
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return first[a] < first[b]; });
  std::vector<uint32_t> numbers(answer.streams);
  for (uint32_t i = 0; i < order.size(); ++i) numbers[order[i]] = i;
  return numbers;
}

std::vector<memory::RecordedRequest> recorded(const PackAnswer& answer) {
  const std::vector<uint32_t> numbers = numbers_of_streams(answer);
  std::vector<memory::RecordedRequest> requests;
  requests.reserve(answer.requests.size());
  for (const PlannedRequest& planned : answer.requests) {
    requests.push_back({planned.request.lower, planned.request.upper, planned.request.size,
                        numbers[static_cast<size_t>(planned.stream)], 0, planned.released});
  }
  return requests;
}

std::vector<memory::OrderEvent> order_of(const PackAnswer& answer) {
  const std::vector<uint32_t> numbers = numbers_of_streams(answer);
  std::vector<memory::OrderEvent> order = answer.order;
  for (memory::OrderEvent& event : order) {
    const auto stream = static_cast<size_t>(event.stream);
    if (stream < numbers.size()) event.stream = numbers[stream];
  }
  return order;
}

// All that was recorded as one iteration, placed as the answer has it, but for the streams' order.
memory::MemoryPlan whole_plan(const PackAnswer& answer) {
  memory::MemoryPlan plan;
  plan.alignment = answer.alignment;
  const std::vector<Bytes>& bytes = answer.plan.stream_bytes;
  const std::vector<uint32_t> numbers = numbers_of_streams(answer);
  plan.streams.resize(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) plan.streams[numbers[i]].range.size = bytes[i].count;
  for (memory::PlannedStream& stream : plan.streams) {
    stream.range.offset = plan.bytes;
    plan.bytes += stream.range.size;
  }
  // From the answer's offsets to the plan's, by the answer's index.
  std::vector<int64_t> moved(bytes.size());
  int64_t before = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    moved[i] = plan.streams[numbers[i]].range.offset - before;
    before += bytes[i].count;
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
    const auto stream = static_cast<size_t>(planned.stream);
    signature.slots.push_back({numbers[stream], static_cast<uint32_t>(next - order.begin()),
                               planned.request.size, planned.request.size,
                               planned.offset + moved[stream], false});
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
  const memory::OrderHistory order(order_of(answer), requests);
  const memory::UnderstoodRecording recording{requests, result.iterations, result.classes, finder,
                                              &order};
  memory::PlanOptions options;
  options.alignment = answer.alignment;
  options.synthesis.placements = kPlacements;
  options.synthesis.seed = seed;
  result.plan = memory::make_plan(recording, options);
  result.apart_bytes = result.plan->bytes;
  if (answer.streams > 1 && !answer.order.empty()) {
    options.lending = memory::Lending::behind_order;
    memory::MemoryPlan sharing = memory::make_plan(recording, options);
    if (sharing.bytes < result.apart_bytes) {
      result.plan = std::move(sharing);
    } else {
      options.lending = memory::Lending::none;
    }
  }
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

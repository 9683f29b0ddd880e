#include "runtime/request_log.h"

#include <unordered_map>

namespace headroom::runtime {
namespace {

// Streams of events from their handles to the numbers that requests have; those that no request was
// made on get numbers that none has.
void number_streams(std::vector<memory::OrderEvent>& order,
                    std::unordered_map<int64_t, int64_t> numbers) {
  constexpr int64_t kWithoutRequests = int64_t{1} << 32;
  for (memory::OrderEvent& event : order) {
    const auto next = kWithoutRequests + static_cast<int64_t>(numbers.size());
    event.stream = numbers.try_emplace(event.stream, next).first->second;
  }
}

}  // namespace

bool RequestLog::add(const Entry& entry) {
  const size_t at = size_.load(std::memory_order_relaxed);
  if (at == kMostEntries) return false;
  std::unique_ptr<Entry[]>& chunk = chunks_[at / kChunk];
  if (chunk == nullptr) chunk = std::make_unique<Entry[]>(kChunk);
  chunk[at % kChunk] = entry;
  size_.store(at + 1, std::memory_order_release);
  return true;
}

RequestLog::Understood RequestLog::read(size_t count) const {
  Understood understood;
  understood.end = static_cast<int64_t>(count) + 1;
  std::unordered_map<int64_t, int64_t> numbers;
  for (size_t i = 0; i < count; ++i) {
    const Entry& entry = chunks_[i / kChunk][i % kChunk];
    const auto time = static_cast<int64_t>(i) + 1;
    if (entry.kind == Kind::request) {
      memory::RecordedRequest request;
      request.lower = understood.requests.size() < at_start_ ? 0 : time;
      request.upper = request.released = understood.end;
      request.size = entry.value;
      request.stream = entry.stream;
      understood.requests.push_back(request);
    } else if (entry.kind == Kind::mark) {
      understood.marks.push_back(time);
    } else if (entry.kind == Kind::stream) {
      numbers.emplace(entry.value, entry.stream);
    } else if (entry.kind == Kind::record || entry.kind == Kind::wait) {
      understood.order.push_back({time, entry.value, entry.stream, entry.kind == Kind::wait});
    } else {
      // A release of what this log has not seen would be a mistake of the writer: it is left out.
      const auto serial = static_cast<size_t>(entry.value);
      if (serial >= understood.requests.size()) continue;
      memory::RecordedRequest& request = understood.requests[serial];
      if (request.upper > time) request.upper = time;
      if (request.released > time) request.released = time;
      // Asked for first, and done later: until then it was in use.
      if (entry.kind == Kind::release_asked) request.upper = understood.end;
    }
  }
  number_streams(understood.order, std::move(numbers));
  return understood;
}

}  // namespace headroom::runtime

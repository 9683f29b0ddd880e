#include "memory/late_frees.h"

#include <algorithm>
#include <deque>
#include <map>

namespace headroom::memory {
namespace {

class StreamQueues {
 public:
  explicit StreamQueues(std::vector<LateFree>& back) : back_(back) {}

  void add(uint32_t stream, uint32_t buffer) { waiting_[stream].push_back(buffer); }
  void get_on(uint32_t stream, size_t count, size_t event) {
    std::deque<uint32_t>& waiting = waiting_[stream];
    for (; count > 0 && !waiting.empty(); --count) {
      back_.push_back({waiting.front(), event});
      waiting.pop_front();
    }
  }
  void get_on_all(size_t event) {
    for (const auto& [stream, waiting] : waiting_) get_on(stream, waiting.size(), event);
  }

 private:
  std::vector<LateFree>& back_;
  std::map<uint32_t, std::deque<uint32_t>> waiting_;  // by the stream that uses them
};

// By buffer, its user; its own stream where no other uses it, which delays nothing.
std::vector<uint32_t> users_of(const MemoryTrace& trace) {
  std::vector<uint32_t> users;
  users.reserve(trace.buffers.size());
  for (const BufferInfo& buffer : trace.buffers) users.push_back(buffer.stream);
  for (const StreamUse& use : trace.stream_uses) users[use.buffer] = use.stream;
  return users;
}

}  // namespace

std::vector<LateFree> late_frees(const MemoryTrace& trace) {
  std::vector<LateFree> back;
  if (trace.stream_uses.empty()) return back;
  const std::vector<uint32_t> users = users_of(trace);
  StreamQueues queues(back);
  auto emptied = trace.cache_emptied.begin();
  auto progress = trace.stream_progress.begin();
  for (size_t i = 0; i < trace.events.size(); ++i) {
    for (; emptied != trace.cache_emptied.end() && *emptied <= i; ++emptied) queues.get_on_all(i);
    for (; progress != trace.stream_progress.end() && progress->event <= i; ++progress) {
      queues.get_on(progress->stream, progress->count, i);
    }
    const MemoryEvent& event = trace.events[i];
    const BufferInfo& buffer = trace.buffers[event.buffer];
    const bool is_late = users[event.buffer] != buffer.stream && buffer.requested_bytes > 0;
    if (event.kind == EventKind::free && is_late) queues.add(users[event.buffer], event.buffer);
  }
  queues.get_on_all(trace.events.size());
  return back;
}

}  // namespace headroom::memory

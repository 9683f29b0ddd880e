// A program's requests, several iterations of them, for the runtime's benchmarks: generated, or a
// recorded step that is repeated; and the same with a share of the requests perturbed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/events.h"
#include "memory/generated/training_run.h"
#include "memory/packing/recorded_requests.h"
#include "memory/recording/run_recording.h"

namespace headroom::runtime::perf {

// An event is recorded on a stream, or the stream waits for it, before an event of the trace.
struct OrderPoint {
  size_t before = 0;
  uint32_t stream = 0;
  size_t number = 0;  // of the recorded ones, from 0
  bool is_wait = false;
};

struct Case {
  std::string name;
  memory::MemoryTrace trace;
  std::vector<size_t> iterations;       // the first event of each
  std::vector<size_t> waits;            // before these events programs may wait for the device
  std::vector<OrderPoint> order;        // what the program's streams wait for
  std::vector<uint32_t> release_delay;  // by buffer: a second stream uses it; may be empty
  bool is_steady = false;               // one iteration is like the other
};

inline Case generated_case(std::string name, const memory::generated::TrainingShape& shape) {
  auto run = memory::generated::generate_training_run(shape);
  Case made;
  made.name = std::move(name);
  made.trace = std::move(run.trace);
  made.iterations = std::move(run.iterations);
  made.release_delay = std::move(run.release_delay);
  for (const memory::generated::PhaseBegin& phase : run.phases) {
    if (phase.phase == memory::generated::RunPhase::optimizer) {
      made.waits.push_back(phase.first_event);
    }
  }
  return made;
}

// A recorded step, `times` times: what was there before and stays is made once, what is never
// released is released at the end of each.
inline Case repeated_case(std::string name, const memory::RecordedRequests& recorded,
                          size_t times) {
  struct Moment {
    int64_t time = 0;
    bool is_release = false;
    size_t request = 0;
  };
  int64_t end = 0;
  for (const auto& request : recorded.requests) end = std::max(end, request.upper);
  std::vector<Moment> moments;
  Case repeated;
  repeated.name = std::move(name);
  std::unordered_map<int64_t, uint32_t> streams;  // by handle, as they come; the default one is 0
  streams[0] = 0;
  const auto stream_of = [&](int64_t handle) {
    return streams.try_emplace(handle, static_cast<uint32_t>(streams.size())).first->second;
  };
  for (size_t i = 0; i < recorded.requests.size(); ++i) {
    const auto& request = recorded.requests[i];
    if (request.lower == 0 && request.upper >= end) {
      repeated.trace.alloc({request.size, stream_of(request.stream), 0, memory::Category::other},
                           0);
      continue;
    }
    moments.push_back({request.lower, false, i});
    moments.push_back({request.upper, true, i});
  }
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.time != b.time ? a.time < b.time : a.is_release && !b.is_release;
  });
  std::vector<uint32_t> buffers(recorded.requests.size());
  for (size_t pass = 0; pass < times; ++pass) {
    repeated.iterations.push_back(repeated.trace.events.size());
    for (const Moment& moment : moments) {
      if (moment.is_release) {
        repeated.trace.free(buffers[moment.request], 0);
      } else {
        const auto& request = recorded.requests[moment.request];
        buffers[moment.request] = repeated.trace.alloc(
            {request.size, stream_of(request.stream), 0, memory::Category::other}, 0);
      }
    }
  }
  return repeated;
}

// The same of what streams wait for between the two events.
inline void repeat_order(Case& made, size_t begin, size_t end, size_t times) {
  std::erase_if(made.order, [&](const OrderPoint& point) { return point.before > end; });
  const auto is_in = [&](const OrderPoint& point) {
    return point.before > begin && point.before <= end;
  };
  std::vector<OrderPoint> last;
  std::copy_if(made.order.begin(), made.order.end(), std::back_inserter(last), is_in);
  const auto recorded = static_cast<size_t>(
      std::count_if(last.begin(), last.end(), [](const auto& point) { return !point.is_wait; }));
  for (size_t pass = 1; pass <= times; ++pass) {
    for (OrderPoint point : last) {
      point.before += pass * (end - begin);
      point.number += pass * recorded;
      made.order.push_back(point);
    }
  }
}

// The last iteration `times` times more, in place of what comes behind it: its requests anew, and
// of what it releases the last one's. False, and nothing done, where the last two are not alike, or
// it releases what is older.
inline bool repeat_last(Case& made, size_t times) {
  std::vector<memory::MemoryEvent>& events = made.trace.events;
  const size_t count = made.iterations.size();
  if (count < 3) return false;
  const size_t begin = made.iterations[count - 2];
  const size_t length = made.iterations[count - 1] - begin;
  if (length == 0 || begin - made.iterations[count - 3] != length) return false;
  std::vector<size_t> born(made.trace.buffers.size());
  for (size_t i = 0; i < begin + length; ++i) {
    if (events[i].kind == memory::EventKind::alloc) born[events[i].buffer] = i;
  }
  for (size_t i = begin; i < begin + length; ++i) {
    const memory::MemoryEvent& one = events[i];
    const memory::MemoryEvent& before = events[i - length];
    const auto bytes = [&](uint32_t buffer) { return made.trace.buffers[buffer].requested_bytes; };
    if (one.kind != before.kind || bytes(one.buffer) != bytes(before.buffer)) return false;
    const bool is_release = one.kind != memory::EventKind::alloc;
    if (is_release && born[one.buffer] + length < begin) return false;
  }
  events.resize(begin + length);
  repeat_order(made, begin, begin + length, times);
  std::vector<uint32_t> last(length);  // by place: what was asked for there
  for (size_t i = 0; i < length; ++i) last[i] = events[begin + i].buffer;
  std::vector<uint32_t> next = last;
  for (size_t pass = 0; pass < times; ++pass) {
    for (size_t i = 0; i < length; ++i) {
      const memory::MemoryEvent one = events[begin + i];
      const memory::BufferInfo info = made.trace.buffers[one.buffer];
      if (one.kind == memory::EventKind::alloc) {
        next[i] = made.trace.alloc(info, 0);
        continue;
      }
      const size_t at = born[one.buffer];
      made.trace.free(at >= begin ? next[at - begin] : last[at + length - begin], 0);
    }
    last = next;
    made.iterations.push_back(events.size());
  }
  made.iterations.pop_back();  // no other one begins
  return true;
}

// A recording of `headroom run --record`, as it went, from its first request on. Nothing, where it
// has no iterations.
inline std::optional<Case> recording_case(std::string name, const memory::RunRecording& recording,
                                          size_t repeats) {
  Case made;
  made.name = std::move(name);
  std::unordered_map<int64_t, uint32_t> live;    // by address
  std::unordered_map<int64_t, size_t> recorded;  // by handle of the event
  size_t events = 0;
  for (const memory::RecordingSlot& slot : recording.events) {
    if (slot.kind == memory::RecordKind::iteration) {
      made.iterations.push_back(made.trace.events.size());
    } else if (slot.kind == memory::RecordKind::alloc) {
      live[slot.address] =
          made.trace.alloc({slot.size, slot.stream, 0, memory::Category::other}, 0);
    } else if (slot.kind == memory::RecordKind::free_requested) {
      const auto found = live.find(slot.address);
      if (found == live.end()) continue;  // it began before the recording
      made.trace.free(found->second, 0);
      live.erase(found);
    } else if (slot.kind == memory::RecordKind::event_record) {
      recorded[slot.address] = events;
      made.order.push_back({made.trace.events.size(), slot.stream, events++, false});
    } else if (slot.kind == memory::RecordKind::event_wait && recorded.contains(slot.address)) {
      made.order.push_back({made.trace.events.size(), slot.stream, recorded[slot.address], true});
    }
  }
  if (made.iterations.empty()) return std::nullopt;
  made.is_steady = repeats > 0 && repeat_last(made, repeats);
  return made;
}

// Of the requests after the first iteration, a share is perturbed: one third gets a stranger before
// it (a size of the trace, gone within 64 events), one third another size (half to 1.1 times), one
// third is swapped with the request after it.
inline Case perturbed_case(const Case& base, double share, uint64_t seed) {
  Case made;
  made.name = base.name + ", 5 % perturbed";
  made.trace.buffers = base.trace.buffers;
  made.release_delay = base.release_delay;
  std::mt19937_64 random(seed);
  const auto draw = [&](uint64_t below) { return random() % below; };
  struct Stranger {
    size_t until = 0;
    uint32_t buffer = 0;
  };
  std::vector<Stranger> strangers;
  const auto& events = base.trace.events;
  const size_t quiet = base.iterations.size() > 1 ? base.iterations[1] : 0;
  size_t iteration = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    if (iteration < base.iterations.size() && base.iterations[iteration] == i) {
      made.iterations.push_back(made.trace.events.size());
      ++iteration;
    }
    std::erase_if(strangers, [&](const Stranger& stranger) {
      if (stranger.until > i) return false;
      made.trace.free(stranger.buffer, 0);
      return true;
    });
    const memory::MemoryEvent event = events[i];
    const bool is_perturbed = i >= quiet && event.kind == memory::EventKind::alloc &&
                              static_cast<double>(draw(1'000'000)) < share * 1e6;
    if (is_perturbed) {
      const uint64_t how = draw(3);
      if (how == 0) {
        const auto like = static_cast<size_t>(draw(base.trace.buffers.size()));
        memory::BufferInfo info = base.trace.buffers[like];
        info.requested_bytes = std::min<int64_t>(info.requested_bytes, int64_t{64} << 20);
        made.trace.buffers.push_back(info);
        if (!made.release_delay.empty()) made.release_delay.push_back(0);
        const auto buffer = static_cast<uint32_t>(made.trace.buffers.size() - 1);
        made.trace.events.push_back({memory::EventKind::alloc, buffer, 0});
        strangers.push_back({i + 1 + draw(64), buffer});
      } else if (how == 1) {
        int64_t& size = made.trace.buffers[event.buffer].requested_bytes;
        size = std::max<int64_t>(1, size * static_cast<int64_t>(50 + draw(61)) / 100);
      } else if (i + 1 < events.size() && events[i + 1].kind == memory::EventKind::alloc) {
        made.trace.events.push_back(events[i + 1]);
        made.trace.events.push_back(event);
        ++i;
        continue;
      }
    }
    made.trace.events.push_back(event);
  }
  for (const Stranger& stranger : strangers) made.trace.free(stranger.buffer, 0);
  return made;
}

// What a thread that fetches batches asks for: those of the next iteration, while the one before is
// still in use.
inline Case loader_case(size_t iterations) {
  Case made;
  made.name = "loader";
  std::vector<uint32_t> batch;
  for (size_t i = 0; i < iterations; ++i) {
    made.iterations.push_back(made.trace.events.size());
    std::vector<uint32_t> next;
    for (const int64_t size : {int64_t{192} << 20, int64_t{65'536}, int64_t{65'536}, int64_t{4096}})
      next.push_back(made.trace.alloc({size, 0, 0, memory::Category::other}, 0));
    for (const uint32_t buffer : batch) made.trace.free(buffer, 0);
    batch = std::move(next);
  }
  return made;
}

// Two threads on one stream: each in its own order, and which of them comes next is chance, but for
// the iterations, which begin together. All that an allocator sees of threads is this order.
inline Case merged_case(std::string name, const Case& one, const Case& other, uint64_t seed) {
  Case made;
  made.name = std::move(name);
  made.trace.buffers = one.trace.buffers;
  made.release_delay = one.release_delay;
  const auto shift = static_cast<uint32_t>(made.trace.buffers.size());
  for (const memory::BufferInfo& buffer : other.trace.buffers) {
    made.trace.buffers.push_back(buffer);
    if (!made.release_delay.empty()) made.release_delay.push_back(0);
  }
  std::mt19937_64 random(seed);
  const size_t count = std::min(one.iterations.size(), other.iterations.size());
  const auto end_of = [](const Case& what, size_t i) {
    return i < what.iterations.size() ? what.iterations[i] : what.trace.events.size();
  };
  size_t a = 0;
  size_t b = 0;
  for (size_t i = 0; i <= count; ++i) {  // the first: what comes before all iterations
    if (i > 0) made.iterations.push_back(made.trace.events.size());
    const size_t a_end = i == count ? one.trace.events.size() : end_of(one, i);
    const size_t b_end = i == count ? other.trace.events.size() : end_of(other, i);
    while (a < a_end || b < b_end) {
      const size_t left = a_end - a + b_end - b;
      const bool is_one = random() % left < a_end - a;
      memory::MemoryEvent event = is_one ? one.trace.events[a++] : other.trace.events[b++];
      if (!is_one) event.buffer += shift;
      made.trace.events.push_back(event);
    }
  }
  return made;
}

}  // namespace headroom::runtime::perf

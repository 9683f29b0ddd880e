#include "ops/work.h"

#include <algorithm>
#include <unordered_map>

namespace headroom::ops {
namespace {

using formats::is_device;
using formats::kNone;
using formats::Trace;
using formats::TraceEvent;
using formats::TraceEventKind;

std::vector<Work> device_work(const Trace& trace, const Links& links, Classifier& classifier) {
  std::vector<uint32_t> launched(trace.events.size(), 0);
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    if (links.launch[i] != kNone) ++launched[links.launch[i]];
  }
  std::unordered_map<uint32_t, uint32_t> captured;
  for (const formats::CapturedKernel& one : trace.captured) captured[one.kernel] = one.operation;
  std::vector<Work> work;
  std::vector<uint32_t> chain;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (!is_device(event.kind)) continue;
    Work piece;
    piece.start_ns = event.start_ns;
    piece.end_ns = event.end_ns();
    piece.event = i;
    piece.operation = links.parent[i] == kNone ? kNone : operator_of(trace, links, links.parent[i]);
    piece.step = links.step[i];
    chain_of(trace, links, i, chain);
    piece.is_in_graph = links.launch[i] != kNone && launched[links.launch[i]] > 1;
    // The operators around the launch of a graph say nothing of the kernels within.
    if (piece.is_in_graph) {
      chain.clear();
      const auto found = captured.find(i);
      if (found != captured.end()) {
        piece.captured = operator_of(trace, links, found->second);
        chain_of(trace, links, found->second, chain);
        chain.insert(chain.begin(), trace.events[found->second].name);
      }
    }
    piece.group = classifier.classify(chain, event.name);
    piece.name_group = classifier.by_kernel(event.name);
    work.push_back(piece);
  }
  return work;
}

// Cuts the time of each thread into pieces that belong to its innermost operator.
class HostWork {
 public:
  HostWork(const Trace& trace, const Links& links, Classifier& classifier)
      : trace_(trace), links_(links), classifier_(classifier), threads_(trace.tracks.size()) {}

  std::vector<Work> cut() {
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& event = trace_.events[i];
      const bool is_collective =
          event.kind == TraceEventKind::annotation && names_collective(trace_.name_of(event));
      if (event.kind != TraceEventKind::host_operator && !is_collective) continue;
      Thread& thread = threads_[event.track];
      close_until(thread, event.start_ns);
      advance(thread, event.start_ns);
      thread.open.push_back(i);
      thread.at = std::max(thread.at, event.start_ns);
    }
    for (Thread& thread : threads_) close_until(thread, INT64_MAX);
    std::sort(work_.begin(), work_.end(), [](const Work& a, const Work& b) {
      return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.event < b.event;
    });
    return std::move(work_);
  }

 private:
  struct Thread {
    std::vector<uint32_t> open;
    int64_t at = INT64_MIN;  // up to here its time is cut
  };

  void close_until(Thread& thread, int64_t time) {
    while (!thread.open.empty() && trace_.events[thread.open.back()].end_ns() <= time) {
      advance(thread, trace_.events[thread.open.back()].end_ns());
      thread.open.pop_back();
    }
  }

  // Gives the time up to `time` to the operator that is open.
  void advance(Thread& thread, int64_t time) {
    if (!thread.open.empty() && time > thread.at) add(thread.open.back(), thread.at, time);
    thread.at = std::max(thread.at, time);
  }

  void add(uint32_t event, int64_t start, int64_t end) {
    Work piece;
    piece.start_ns = start;
    piece.end_ns = end;
    piece.event = event;
    piece.operation = event;
    piece.step = step_at(links_, start);
    chain_of(trace_, links_, event, chain_);
    chain_.insert(chain_.begin(), trace_.events[event].name);
    piece.group = classifier_.on_host(chain_);
    piece.name_group = piece.group;
    work_.push_back(piece);
  }

  const Trace& trace_;
  const Links& links_;
  Classifier& classifier_;
  std::vector<Thread> threads_;
  std::vector<uint32_t> chain_;
  std::vector<Work> work_;
};

}  // namespace

int64_t OperatorCount::add(const Work& piece, uint32_t event) {
  if (piece.captured != kNone) {
    return runs_.emplace(event, links_.launch[piece.event]).second ? 1 : 0;
  }
  if (is_counted_[event]) return 0;
  is_counted_[event] = true;
  return 1;
}

bool names_collective(std::string_view name) {
  for (const std::string_view backend : {"gloo:", "mpi:", "ucc:", "nccl:"}) {
    if (name.starts_with(backend)) return true;
  }
  return false;
}

std::vector<Work> work_of(const Trace& trace, const Links& links, Classifier& classifier) {
  return links.has_device ? device_work(trace, links, classifier)
                          : HostWork(trace, links, classifier).cut();
}

}  // namespace headroom::ops

#include "pack/step.h"

#include <map>

#include "memory/caching_allocator.h"
#include "memory/segment_source.h"

namespace headroom::pack {
namespace {

// An endless device that notes when each segment was held.
class NotingDevice final : public memory::SegmentSource {
 public:
  void set_moment(int64_t moment) { moment_ = moment; }

  // Closes what is still held.
  std::vector<memory::HeldRange> finish(int64_t end) {
    for (auto& [address, range] : held_) {
      range.upper = end;
      ranges_.push_back(range);
    }
    return std::move(ranges_);
  }

  std::optional<int64_t> allocate(const memory::SegmentRequest& request) override {
    const auto address = device_.allocate(request);
    if (address) {
      held_[*address] = {*address, request.bytes, moment_, 0, request.stream, false};
    }
    return address;
  }
  void release(int64_t address, int64_t bytes) override {
    device_.release(address, bytes);
    const auto at = held_.find(address);
    HEADROOM_CHECK(at != held_.end(), "a segment that was never given is taken back");
    at->second.upper = moment_;
    if (at->second.lower < moment_) ranges_.push_back(at->second);
    held_.erase(at);
  }
  // Only expandable segments reserve, and the default settings have none.
  std::optional<int64_t> reserve(const memory::SegmentRequest& /*request*/) override {
    return std::nullopt;
  }
  void unreserve(int64_t /*address*/, int64_t /*bytes*/) override {}
  bool map(int64_t /*address*/, int64_t /*bytes*/) override { return false; }
  void unmap(int64_t /*address*/, int64_t /*bytes*/) override {}
  [[nodiscard]] int64_t total_bytes() const override { return device_.total_bytes(); }
  [[nodiscard]] int64_t free_bytes() const override { return device_.free_bytes(); }

 private:
  memory::DeviceMemory device_;
  int64_t moment_ = 0;
  std::map<int64_t, memory::HeldRange> held_;  // by address
  std::vector<memory::HeldRange> ranges_;
};

// The stack of each operator call, "backward, model.layers.3.mlp: aten::mm"; 0 where there is none.
std::vector<uint32_t> stacks_of(const step::StepTrace& trace, memory::CallSites& sites) {
  std::vector<uint32_t> stacks;
  stacks.reserve(trace.calls.size());
  for (const step::OperatorCall& call : trace.calls) {
    std::string words(step::name_of(call.phase));
    if (call.module < trace.modules.size() && !trace.modules[call.module].empty()) {
      words += ", " + trace.modules[call.module];
    }
    words += ": " + std::string(op::name_of(call.kind));
    const uint32_t frame = sites.add_frame({sites.add_text(words), 0, 0});
    stacks.push_back(sites.add_stack(std::span(&frame, 1)));
  }
  return stacks;
}

class StepReplay {
 public:
  explicit StepReplay(const step::StepTrace& trace) : trace_(trace), allocator_({}, device_) {}

  Result<PackAnswer> run(const PackQuestion& question) {
    answer_.file = question.file;
    answer_.kind = "symbolic step";
    answer_.alignment = memory::kMinBlockSize;
    memory::CallSites sites;
    stacks_ = stacks_of(trace_, sites);
    const std::vector<memory::MemoryEvent>& events = trace_.memory.events;
    recording_.is_simulated = true;
    recording_.end = static_cast<int64_t>(events.size()) + 1;
    requests_.assign(trace_.memory.buffers.size(), kNone);
    blocks_.assign(trace_.memory.buffers.size(), memory::kNoBlock);
    for (size_t i = 0; i < events.size(); ++i) {
      device_.set_moment(static_cast<int64_t>(i) + 1);
      HEADROOM_TRY(play(events[i], static_cast<int64_t>(i) + 1));
    }
    recording_.sites = SiteNames(sites);
    recording_.held = device_.finish(recording_.end);
    for (const PlannedRequest& planned : answer_.requests) {
      answer_.streams = std::max(answer_.streams, static_cast<size_t>(planned.stream) + 1);
    }
    answer_.recording = std::move(recording_);
    answer_.loss = loss_at_peak(answer_.requests, *answer_.recording);
    return std::move(answer_);
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  Result<void> play(const memory::MemoryEvent& event, int64_t moment) {
    const uint32_t stack = event.operation < stacks_.size() ? stacks_[event.operation] : 0;
    recording_.entry_stack.push_back(stack);
    const memory::BufferInfo& buffer = trace_.memory.buffers[event.buffer];
    if (buffer.requested_bytes == 0) return {};
    if (event.kind == memory::EventKind::free) {
      answer_.requests[requests_[event.buffer]].request.upper = moment;
      allocator_.free(blocks_[event.buffer]);
      return {};
    }
    const auto block = allocator_.allocate(buffer.requested_bytes, buffer.stream);
    if (!block) {
      return Error{ErrorCode::bad_input, "the step asks for more than any address space has",
                   answer_.file, ""};
    }
    PlannedRequest planned;
    planned.id = std::to_string(answer_.requests.size());
    planned.stream = buffer.stream;
    planned.request = {moment, recording_.end, buffer.requested_bytes};
    requests_[event.buffer] = answer_.requests.size();
    blocks_[event.buffer] = block->block;
    answer_.requests.push_back(std::move(planned));
    recording_.blocks.push_back({block->address, block->size, stack});
    return {};
  }

  const step::StepTrace& trace_;
  NotingDevice device_;
  memory::CachingAllocator allocator_;
  std::vector<uint32_t> stacks_;         // by operator call
  std::vector<size_t> requests_;         // by buffer
  std::vector<memory::BlockId> blocks_;  // the same
  Recording recording_;
  PackAnswer answer_;
};

}  // namespace

Result<PackAnswer> answer_step(const PackQuestion& question, const step::StepTrace& trace) {
  HEADROOM_TRY(memory::validate_trace(trace.memory));
  HEADROOM_ASSIGN(PackAnswer answer, StepReplay(trace).run(question));
  return answer_requests(question, std::move(answer));
}

}  // namespace headroom::pack

// Recorder: the sink of a symbolic run. It writes the StepTrace and sorts blocks by what they are
// for, as far as that is known when they are made; later knowledge (kept for backward, became a
// gradient) changes a block's category.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"
#include "operator/eager.h"
#include "operator/sink.h"
#include "operator/tensor.h"
#include "step/trace.h"

namespace headroom::step {

// How much of each kind has been recorded.
struct RecorderPosition {
  uint32_t event = 0;
  uint32_t call = 0;
  uint32_t phase = 0;
  uint32_t buffer = 0;
};

// Thrown where a run has grown beyond what is of interest.
struct BeyondInterest {};

class Recorder : public op::Sink {
 public:
  // Beyond `live_bytes_of_interest` a run ends with BeyondInterest. Where calls are not kept they
  // are counted all the same.
  explicit Recorder(StepTrace& trace,
                    int64_t live_bytes_of_interest = std::numeric_limits<int64_t>::max(),
                    bool keeps_calls = true)
      : trace_(trace), live_bytes_of_interest_(live_bytes_of_interest), keeps_calls_(keeps_calls) {}

  // What blocks made inside a module are for (by module; temporary where nothing else is known).
  void set_module_categories(std::vector<memory::Category> categories) {
    module_categories_ = std::move(categories);
  }

  uint32_t on_allocate(int64_t bytes) override;
  void on_free(uint32_t buffer) override;
  uint32_t on_workspace(int64_t bytes) override;
  void on_kernel(const op::KernelWork& work) override { write(work, Peers::none); }
  void on_collective(const op::KernelWork& work) override;
  void on_await_sent() override {
    if (sent_) await(*std::exchange(sent_, std::nullopt));
  }
  void on_saved(uint32_t buffer) override;
  void on_module(uint32_t module) override;

  void begin_phase(Phase phase, int iteration);
  // A collective begins beside what is computed; gives its number, for await(). A group is said
  // where it is not that of all who share what is trained.
  uint32_t begin_collective(op::OpKind kind, int64_t bytes_in, int64_t bytes_out,
                            RankGroup group = {});
  // The same on the stream that computes: it follows what was launched, and what comes waits.
  void run_collective(op::OpKind kind, int64_t bytes_in, int64_t bytes_out, RankGroup group = {});
  // To a neighbouring stage of a pipeline; gives its number, as above.
  uint32_t send_to_stage(int64_t bytes);
  // What is launched next waits for that collective, and for those before it among its peers; or
  // for all that have begun.
  void await(uint32_t collective) { awaited_ = std::max(awaited_, collective + 1); }
  // A unit that was gathered goes behind what was launched (OperatorCall::let_go).
  void let_go_of_unit() {
    if (let_go_ < kMostInFlight) ++let_go_;
  }
  void await_all() { awaits_all_ = collectives_ > 0; }
  // A block of the host's memory that stays, for what is not on the device.
  void hold_on_host(int64_t bytes, HostMemory::Kind kind);
  // record_stream(): what is freed of this block comes back once `stream` has got so far.
  void use_on_stream(const op::Tensor& tensor, uint32_t stream) {
    trace_.memory.stream_uses.push_back({tensor->storage->buffer, stream});
  }
  // The host knows that `stream` has got past so many more of such frees.
  void stream_got_on(uint32_t stream, size_t frees) {
    trace_.memory.stream_progress.push_back({trace_.memory.events.size(), stream, frees});
  }
  // torch.cuda.empty_cache().
  void empty_cache() { trace_.memory.empty_cache(); }
  [[nodiscard]] int64_t live_bytes() const { return live_bytes_; }
  // The stream that blocks made from here on belong to; 0 is the one that computes.
  void set_stream(uint32_t stream) { stream_ = stream; }
  // What blocks made from here on are for.
  void set_category(memory::Category category) { category_ = category; }
  [[nodiscard]] memory::Category category() const { return category_; }
  void recategorize(const op::Tensor& tensor, memory::Category category);
  [[nodiscard]] Phase phase() const { return phase_; }

  // For writing what was not run: once more what was recorded (repeat.h), or elsewhere
  // (layer_unfold.h), under new names. `call` is the one that the event comes before.
  [[nodiscard]] RecorderPosition position() const;
  // As on_allocate; `is_saved` as on_saved.
  void write_alloc(const memory::BufferInfo& info, uint32_t call, bool is_saved) {
    take(info.requested_bytes);
    trace_.memory.alloc(info, call);
    if (is_saved) trace_.saved_bytes += info.requested_bytes;
    if (live_bytes_ > live_bytes_of_interest_) throw BeyondInterest{};
  }
  void write_free(uint32_t buffer, uint32_t call) {
    live_bytes_ -= trace_.memory.buffers[buffer].requested_bytes;
    trace_.memory.free(buffer, call);
  }
  void write_phase(PhaseMark mark);  // from here on, whatever `first_event` says
  // As another trace has them, in modules as `module_of` names them.
  template <typename ModuleOf>
  void write_calls(std::span<const OperatorCall> calls, const ModuleOf& module_of) {
    calls_ += static_cast<uint32_t>(calls.size());
    if (!keeps_calls_) return;
    for (OperatorCall call : calls) {
      call.module = module_of(call.module);
      trace_.calls.push_back(call);
    }
  }
  uint32_t repeat_alloc(uint32_t buffer, uint32_t call) {
    const memory::BufferInfo info = trace_.memory.buffers[buffer];
    take(info.requested_bytes);
    return trace_.memory.alloc(info, call);
  }
  void repeat_calls(uint32_t begin, uint32_t end);
  // By block: whether it counts as kept for backward.
  [[nodiscard]] std::vector<bool> saved() const;

 private:
  static constexpr int64_t kLiveBytesMax = int64_t{1} << 60;

  void write(const op::KernelWork& work, Peers peers, RankGroup group = {}, bool follows = false);
  [[nodiscard]] uint16_t take_awaited();
  [[nodiscard]] uint32_t next_call() const { return calls_; }
  void take(int64_t bytes) {
    live_bytes_ += bytes;
    if (live_bytes_ <= trace_.peak_live_bytes) return;
    trace_.peak_live_bytes = live_bytes_;
    if (live_bytes_ > kLiveBytesMax) {
      throw op::Impossible{"all tensors together are beyond 2^60 bytes"};
    }
  }

  StepTrace& trace_;
  std::vector<bool> saved_;  // by buffer
  std::vector<memory::Category> module_categories_;
  int64_t live_bytes_ = 0;
  int64_t live_bytes_of_interest_;
  uint32_t calls_ = 0;
  bool keeps_calls_;
  memory::Category category_ = memory::Category::temporary;
  Phase phase_ = Phase::construct;
  int iteration_ = 0;
  uint32_t module_ = 0;
  uint32_t stream_ = 0;
  uint32_t collectives_ = 0;                   // begun until now
  static constexpr uint8_t kMostInFlight = 2;  // whoever counts looks no further back
  uint8_t let_go_ = 0;
  // The latest of them that went around a ring, until somebody waited for it.
  std::optional<uint32_t> sent_;
  uint32_t awaited_ = 0;  // the number behind the one that the next launch waits for; 0: none
  bool awaits_all_ = false;
};

// For a run that Impossible ended.
[[nodiscard]] Error impossible_error(const op::Impossible& impossible);

// Puts new blocks on another stream for a scope.
class StreamScope {
 public:
  StreamScope(Recorder& recorder, uint32_t stream) : recorder_(recorder) {
    recorder.set_stream(stream);
  }
  ~StreamScope() { recorder_.set_stream(0); }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Recorder& recorder_;
};

// Sets the category of new blocks for a scope.
class CategoryScope {
 public:
  CategoryScope(Recorder& recorder, memory::Category category)
      : recorder_(recorder), before_(recorder.category()) {
    recorder.set_category(category);
  }
  ~CategoryScope() { recorder_.set_category(before_); }
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  Recorder& recorder_;
  memory::Category before_;
};

}  // namespace headroom::step

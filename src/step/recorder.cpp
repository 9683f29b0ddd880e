#include "step/recorder.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace headroom::step {

using memory::Category;

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::construct:
      return "construct";
    case Phase::input:
      return "input";
    case Phase::forward:
      return "forward";
    case Phase::loss:
      return "loss";
    case Phase::backward:
      return "backward";
    case Phase::clip:
      return "clip";
    case Phase::optimizer:
      return "optimizer";
    case Phase::release:
      return "release";
  }
  return "";
}

Error impossible_error(const op::Impossible& impossible) {
  return {ErrorCode::bad_input, impossible.why, "", impossible.hint};
}

uint32_t Recorder::on_allocate(int64_t bytes) {
  take(bytes);
  memory::BufferInfo info;
  info.requested_bytes = bytes;
  info.category = category_;
  info.label = module_;
  info.stream = stream_;
  const uint32_t buffer = trace_.memory.alloc(info, next_call());
  if (live_bytes_ > live_bytes_of_interest_) throw BeyondInterest{};
  return buffer;
}

uint32_t Recorder::on_workspace(int64_t bytes) {
  CategoryScope scope(*this, Category::workspace);
  return on_allocate(bytes);
}

void Recorder::on_free(uint32_t buffer) {
  // After the trace has been handed on, what goes with the run goes unrecorded.
  if (buffer >= trace_.memory.buffers.size()) return;
  live_bytes_ -= trace_.memory.buffers[buffer].requested_bytes;
  trace_.memory.free(buffer, next_call());
}

uint16_t Recorder::take_awaited() {
  const uint32_t awaited = std::exchange(awaited_, 0);
  if (std::exchange(awaits_all_, false)) return kAwaitsAll;
  if (awaited == 0) return 0;
  // One that is further back than can be said: then for the furthest that can.
  return static_cast<uint16_t>(std::min<uint32_t>(collectives_ + 1 - awaited, kAwaitsAll - 1));
}

void Recorder::write(const op::KernelWork& work, Peers peers, RankGroup group, bool follows) {
  ++calls_;
  const uint16_t awaits = take_awaited();
  const uint8_t let_go = std::exchange(let_go_, uint8_t{0});
  if (!keeps_calls_) return;
  trace_.calls.push_back({.kind = work.kind,
                          .phase = phase_,
                          .element_bytes = work.element_bytes,
                          .has_bias = work.has_bias,
                          .before_hopper = work.before_hopper,
                          .peers = peers,
                          .follows = follows,
                          .awaits = awaits,
                          .let_go = let_go,
                          .module = module_,
                          .flops = work.flops,
                          .bytes_read = work.bytes_read,
                          .bytes_written = work.bytes_written,
                          .rows = work.rows,
                          .keys = work.keys,
                          .permuted = work.permuted,
                          .group = group});
}

uint32_t Recorder::begin_collective(op::OpKind kind, int64_t bytes_in, int64_t bytes_out,
                                    RankGroup group) {
  write({kind, 0, bytes_in, bytes_out}, Peers::data, group);
  return collectives_++;
}

void Recorder::run_collective(op::OpKind kind, int64_t bytes_in, int64_t bytes_out,
                              RankGroup group) {
  write({kind, 0, bytes_in, bytes_out}, Peers::data, group, true);
  await(collectives_++);
}

void Recorder::on_collective(const op::KernelWork& work) {
  const bool is_sent = work.kind == op::OpKind::send_receive;
  const bool is_exchanged = work.kind == op::OpKind::all_to_all;
  write(work, is_sent ? Peers::context : is_exchanged ? Peers::expert : Peers::tensor);
  const uint32_t collective = collectives_++;
  if (is_sent) {
    sent_ = collective;
  } else {
    await(collective);
  }
}

uint32_t Recorder::send_to_stage(int64_t bytes) {
  write({op::OpKind::send_receive, 0, bytes, bytes}, Peers::pipeline);
  return collectives_++;
}

void Recorder::on_saved(uint32_t buffer) {
  memory::BufferInfo& info = trace_.memory.buffers[buffer];
  if (info.category == Category::temporary) info.category = Category::activation;
  const bool counts = info.category == Category::activation || info.category == Category::logits ||
                      info.category == Category::loss || info.category == Category::input;
  if (!counts || iteration_ > 1 || phase_ != Phase::forward) return;
  if (saved_.size() <= buffer) saved_.resize(buffer + 1);
  if (saved_[buffer]) return;
  saved_[buffer] = true;
  trace_.saved_bytes += info.requested_bytes;
}

void Recorder::on_module(uint32_t module) {
  module_ = module;
  category_ = module < module_categories_.size() ? module_categories_[module] : Category::temporary;
}

void Recorder::begin_phase(Phase phase, int iteration) {
  phase_ = phase;
  iteration_ = iteration;
  trace_.phases.push_back(
      {phase, iteration, static_cast<uint32_t>(trace_.memory.events.size()), next_call()});
}

void Recorder::hold_on_host(int64_t bytes, HostMemory::Kind kind) {
  const bool is_pinned = kind == HostMemory::Kind::pinned;
  trace_.host.requested_bytes += bytes;
  trace_.host.taken_bytes +=
      is_pinned ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))) : bytes;
}

RecorderPosition Recorder::position() const {
  return {static_cast<uint32_t>(trace_.memory.events.size()), next_call(),
          static_cast<uint32_t>(trace_.phases.size()),
          static_cast<uint32_t>(trace_.memory.buffers.size())};
}

std::vector<bool> Recorder::saved() const {
  std::vector<bool> saved = saved_;
  saved.resize(trace_.memory.buffers.size());
  return saved;
}

void Recorder::write_phase(PhaseMark mark) {
  phase_ = mark.phase;
  iteration_ = mark.iteration;
  mark.first_event = static_cast<uint32_t>(trace_.memory.events.size());
  trace_.phases.push_back(mark);
}

void Recorder::repeat_calls(uint32_t begin, uint32_t end) {
  calls_ += end - begin;
  if (!keeps_calls_) return;
  const size_t before = trace_.calls.size();
  trace_.calls.resize(before + (end - begin));
  std::copy(trace_.calls.begin() + begin, trace_.calls.begin() + end,
            trace_.calls.begin() + static_cast<ptrdiff_t>(before));
}

void Recorder::recategorize(const op::Tensor& tensor, Category category) {
  trace_.memory.buffers[tensor->storage->buffer].category = category;
}

}  // namespace headroom::step

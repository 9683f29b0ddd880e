#include "ops/predicted_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "text/number.h"
#include "timing/call.h"

namespace headroom::ops {
namespace {

using device::Rate;
using op::OpGroup;
using timing::Call;
using timing::TimeSum;

constexpr double kAccumulatorBytes = 4;  // int8 products add up in int32

struct Group {
  std::string_view name;
  std::string_view title;
  bool has_law = false;  // of kernels that do what its operators do
};
constexpr Group kGroups[] = {{"gemm", "GEMM", true},
                             {"attention", "attention", true},
                             {"normalization", "normalization", true},
                             {"activation", "activation", true},
                             {"elementwise", "elementwise arithmetic", true},
                             {"memory", "memory and layout", true},
                             {"softmax", "softmax and logit", true},
                             {"embedding", "embedding", true},
                             {"pooling", "pooling"},
                             {"interpolation", "interpolation"},
                             {"roi", "RoI selection"},
                             {"loss", "loss"},
                             {"quantize", "quantize and dequantize"},
                             {"routing", "routing, sorting, sampling"},
                             {"optimizer", "optimizer"},
                             {"other", "other known operators"},
                             {"unclassified", "unclassified"}};

// One of another name is its own title, so that no time is lost.
Group group_named(std::string_view name) {
  for (const Group& group : kGroups) {
    if (group.name == name) return group;
  }
  return {name, name};
}

// A launch and what quantization puts beside it.
struct Made {
  std::string_view group;
  Call call;
  double fresh_bytes = 0;  // that it is the first to write to
};

timing::GemmShape sizes_of(const StepCall& call, const StepShape& shape) {
  if (call.call) {
    if (const auto* sizes = std::get_if<timing::GemmShape>(&call.call->shape)) return *sizes;
  }
  return timing::product_shape(call, shape);
}

Call product_of(const StepCall& call, const StepShape& shape, Rate rate) {
  if (!call.call) return timing::product_call(call, shape, rate);
  Call product = timing::gemm_call(sizes_of(call, shape), rate, call.element_bytes);
  product.flops = call.flops;
  product.bytes = call.bytes_read + call.bytes_written;
  return product;
}

// Of what a product computes in.
double element_of(const StepCall& call, const StepQuestion& question) {
  if (call.element_bytes > 0) return call.element_bytes;
  return static_cast<double>(op::element_size(question.shape.type));
}

Rate rate_of(const StepCall& call, const StepQuestion& question) {
  return call.call ? call.call->rate : timing::rate_of(question.shape.type);
}

// As a processor's engine does, where this one was measured.
bool quantizes_within(const StepQuestion& question, double element,
                      const timing::TimingModel& model) {
  constexpr double kFloat = 4;
  return question.quantize == Quantize::int8 && element == kFloat && question.phase != "train" &&
         model.law_for(timing::OperatorClass::linear_int8, question.device.name) != nullptr;
}

// The product with operands of one byte, or weights of half a byte; around it what turns one form
// into the other, unless that is fused.
void add_quantized(const StepCall& call, const StepQuestion& question,
                   const timing::TimingModel& model, std::vector<Made>& made) {
  const double element = element_of(call, question);
  const timing::GemmShape sizes = sizes_of(call, question.shape);
  if (quantizes_within(question, element, model)) {
    made.push_back({op::name_of(OpGroup::gemm), timing::linear_int8_call(sizes, element)});
    return;
  }
  const auto products = static_cast<double>(sizes.batch);
  const double rows = products * static_cast<double>(sizes.m) * static_cast<double>(sizes.k);
  const double weights = products * static_cast<double>(sizes.n) * static_cast<double>(sizes.k);
  const double results = call.bytes_written / element;
  const auto beside = [&](double read, double written) {
    if (question.fuse || read + written <= 0) return;
    made.push_back({op::name_of(OpGroup::quantize),
                    timing::rows_call_of(OpGroup::quantize, read, written, question.shape)});
  };
  if (question.quantize == Quantize::w4a16) {
    Call product = product_of(call, question.shape, rate_of(call, question));
    if (question.fuse) product.bytes -= weights * (element - timing::kInt4Bytes);
    beside(weights * timing::kInt4Bytes, weights * element);
    made.push_back({op::name_of(OpGroup::gemm), product});
    return;
  }
  const bool is_int8 = question.quantize == Quantize::int8;
  Call product = product_of(call, question.shape, is_int8 ? Rate::int8 : Rate::fp8);
  const double accumulated = is_int8 && !question.fuse ? kAccumulatorBytes : element;
  product.bytes = rows + weights + results * accumulated;
  beside(rows * element, rows);
  // In training both operands change from step to step.
  if (question.phase == "train") beside(weights * element, weights);
  made.push_back({op::name_of(OpGroup::gemm), product});
  if (is_int8) beside(results * kAccumulatorBytes, results * element);
}

bool is_quantized(const StepCall& call, const StepQuestion& question) {
  return question.quantize != Quantize::none && call.is_linear && !call.is_head;
}

// What PyTorch copies on a processor before an operator begins: the bias of a product in float32
// into each row of the result, to which the product is added (addmm_impl_cpu_ of ATen's
// LinearAlgebra; other types and layers in int8 add it within); and input that lies on its side,
// but that of products of floats, which read either way. Whether a bias is: then it is what first
// writes to the result.
bool add_copies(const StepCall& call, const StepQuestion& question, bool quantizes,
                std::vector<Made>& made) {
  constexpr double kFloat = 4;
  if (question.device.vendor != device::Vendor::cpu) return false;
  const double element = element_of(call, question);
  const std::string_view memory = op::name_of(OpGroup::memory);
  const bool copies_bias =
      call.has_bias && !quantizes && element == kFloat && call.bytes_written > 0;
  if (copies_bias) {
    made.push_back(
        {memory, timing::rows_call_of(OpGroup::memory, 0, call.bytes_written, question.shape)});
  }
  const bool reads_either_way = call.group == OpGroup::gemm && call.is_linear && !quantizes;
  const bool is_copy = call.group == OpGroup::memory;
  if (call.permuted.run > 0 && !reads_either_way && !is_copy) {
    made.push_back({memory, timing::permuted_copy_call(call.permuted, element),
                    fresh_bytes_of(static_cast<double>(call.permuted.bytes))});
  }
  return copies_bias;
}

// A product that computes nothing moves memory.
std::string_view group_of(const StepCall& call) {
  if (!call.group_name.empty()) return call.group_name;
  const bool computes = call.group == OpGroup::gemm || call.group == OpGroup::attention;
  return op::name_of(computes && call.flops <= 0 ? OpGroup::memory : call.group);
}

std::vector<Made> made_of(const std::vector<StepCall>& calls, const StepQuestion& question,
                          const timing::TimingModel& model) {
  std::vector<Made> made;
  for (const StepCall& call : calls) {
    const double bytes = call.bytes_read + call.bytes_written;
    if (bytes <= 0) continue;
    const size_t first = made.size();
    const bool quantizes = is_quantized(call, question);
    const bool copies_bias = add_copies(call, question, quantizes, made);
    if (quantizes) {
      add_quantized(call, question, model, made);
    } else {
      made.push_back(
          {group_of(call), call.call ? *call.call : timing::call_of(call, question.shape)});
    }
    made[copies_bias ? first : made.size() - 1].fresh_bytes += call.fresh_bytes;
    for (size_t i = first; i < made.size(); ++i) made[i].call.is_stand_in |= call.is_backward;
  }
  for (Made& one : made) one.call.is_stand_in |= !group_named(one.group).has_law;
  return made;
}

// The kernels of one group.
struct Kernels {
  TimeSum time{.floor = Provenance::calibrated};
  double flops = 0;
  double bytes = 0;
};

timing::KernelTime together(const Kernels& kernels) {
  const TimeSum& sum = kernels.time;
  return {{sum.low, sum.middle, sum.high}, kernels.flops, kernels.bytes, sum.provenance, sum.basis};
}

struct Timed {
  std::map<std::string_view, Kernels> groups;
  double seconds = 0;
  double roofline_seconds = 0;
  double fresh_seconds = 0;  // of these, of first touches
  int64_t launches = 0;
};

Result<Timed> timed(const std::vector<Made>& made, const StepQuestion& question,
                    const timing::TimingModel& model) {
  Timed all;
  for (const Made& one : made) {
    HEADROOM_ASSIGN(timing::PredictedTime time, model.predict(one.call, question.device));
    const double fresh_seconds = one.fresh_bytes * question.fresh_memory.seconds;
    all.fresh_seconds += fresh_seconds;
    time.seconds += fresh_seconds;
    time.seconds_low += one.fresh_bytes * question.fresh_memory.seconds_low;
    time.seconds_high += one.fresh_bytes * question.fresh_memory.seconds_high;
    Kernels& kernels = all.groups[one.group];
    kernels.time.add(time);
    kernels.flops += one.call.flops;
    kernels.bytes += one.call.bytes;
    all.seconds += time.seconds;
    all.roofline_seconds += time.roofline_seconds;
    ++all.launches;
  }
  return all;
}

}  // namespace

std::vector<StepCall> calls_of(const step::StepTrace& trace) {
  std::vector<StepCall> calls;
  const std::vector<double> fresh = fresh_bytes_by_call(trace);
  for (const step::OperatorCall& call : timing::last_step(trace)) {
    if (call.phase == step::Phase::construct) continue;
    const std::string& module = trace.modules[call.module];
    StepCall made;
    static_cast<timing::OperatorWork&>(made) = timing::work_of(call);
    made.is_linear = call.kind == op::OpKind::linear || call.kind == op::OpKind::mm ||
                     call.kind == op::OpKind::addmm || call.kind == op::OpKind::grouped_mm;
    made.is_head = module.ends_with("lm_head") || module.ends_with("embed_out");
    made.is_backward = call.phase == step::Phase::backward;
    made.fresh_bytes = fresh[static_cast<size_t>(&call - trace.calls.data())];
    calls.push_back(made);
  }
  return calls;
}

std::vector<StepCall> fused(const std::vector<StepCall>& calls, bool keeps_outputs) {
  std::vector<StepCall> made;
  bool goes_on = false;
  double results = 0;  // bytes that the launch before writes for the next
  for (const StepCall& call : calls) {
    if (call.bytes_read + call.bytes_written <= 0) continue;  // a view
    const bool can_join = call.group == OpGroup::elementwise || call.group == OpGroup::activation;
    if (can_join && goes_on && results == call.bytes_written) {
      StepCall& before = made.back();
      const double more = std::max(call.bytes_read - call.bytes_written, 0.0);
      const double kept = keeps_outputs && !call.is_backward ? call.bytes_written : 0;
      before.bytes_read += more;
      before.bytes_written += kept;
      before.fresh_bytes = call.fresh_bytes + (kept > 0 ? before.fresh_bytes : 0);
      if (before.call) before.call->bytes += more + kept;
      continue;
    }
    made.push_back(call);
    goes_on = can_join;
    results = call.bytes_written;
  }
  return made;
}

namespace {

// Of the products with weights, how many were quantized; an Error where that is none.
Result<void> note_quantized(const std::vector<StepCall>& calls, const StepQuestion& question,
                            PredictedRun& run) {
  if (question.quantize == Quantize::none) return {};
  const auto count = [&](auto is_it) { return std::ranges::count_if(calls, is_it); };
  const auto products =
      count([](const StepCall& call) { return call.group == OpGroup::gemm && call.flops > 0; });
  const auto quantized =
      count([&](const StepCall& call) { return is_quantized(call, question) && call.flops > 0; });
  const bool has_head = count([](const StepCall& call) { return call.is_head; }) > 0;
  if (quantized == 0) {
    return Error{ErrorCode::usage,
                 "changes nothing here: of " + std::to_string(products) +
                     " products none is a linear layer with weights of a floating type, but the "
                     "head, which stays as it is",
                 "--quantize", "leave it out"};
  }
  run.notes.push_back(std::to_string(quantized) + " of " + std::to_string(products) +
                      " products are linear layers, which are quantized" +
                      (has_head ? "; the head stays as it is" : ""));
  return {};
}

}  // namespace

Result<PredictedRun> predict_step(const std::vector<StepCall>& calls, const StepQuestion& question,
                                  const timing::TimingModel& model) {
  const bool is_training = question.phase == "train";
  const std::vector<Made> made =
      made_of(question.fuse ? fused(calls, is_training) : calls, question, model);
  HEADROOM_ASSIGN(const Timed step, timed(made, question, model));
  if (step.seconds <= 0) {
    return Error{ErrorCode::unavailable, "the step has no operator that could be timed", {}, {}};
  }
  PredictedRun run;
  run.model = question.model;
  run.device = question.device.name;
  run.phase = question.phase;
  run.batch = question.batch;
  run.seq = question.shape.sequence;
  run.quantize = name_of(question.quantize);
  run.fuse = question.fuse;
  run.notes = question.notes;
  HEADROOM_TRY(note_quantized(calls, question, run));
  if (step.fresh_seconds > 0) {
    run.notes.push_back(
        text::formatted("%.1f", step.fresh_seconds * 1e3) +
        " ms of it are first touches of memory that is new to the process each time, by what was "
        "measured of them");
  }
  run.launches = step.launches;
  run.roofline_ms = step.roofline_seconds * 1e3;
  Provenance weakest = Provenance::calibrated;
  double below = 0;
  double above = 0;
  for (const auto& [name, kernels] : step.groups) {
    const TimeSum& sum = kernels.time;
    const Group& group = group_named(name);
    run.parts.push_back(part_of(group.name, group.title, together(kernels), step.seconds));
    weakest = std::max(weakest, sum.provenance);
    below += (sum.middle - sum.low) * (sum.middle - sum.low);
    above += (sum.high - sum.middle) * (sum.high - sum.middle);
  }
  // Laws err apart from each other: half widths add up as independent errors do.
  run.step_ms = step.seconds * 1e3;
  run.step_ms_low = std::max(0.0, step.seconds - std::sqrt(below)) * 1e3;
  run.step_ms_high = (step.seconds + std::sqrt(above)) * 1e3;
  run.provenance = headroom::name_of(is_training ? Provenance::extrapolated : weakest);
  std::stable_sort(run.parts.begin(), run.parts.end(),
                   [](const auto& a, const auto& b) { return a.ms > b.ms; });
  if (question.quantize == Quantize::none && !question.fuse) return run;
  StepQuestion plain = question;
  plain.quantize = Quantize::none;
  plain.fuse = false;
  HEADROOM_ASSIGN(const Timed unchanged, timed(made_of(calls, plain, model), plain, model));
  run.unchanged_ms = unchanged.seconds * 1e3;
  return run;
}

}  // namespace headroom::ops

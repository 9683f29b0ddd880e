#include "ops/onnx_step.h"

#include <algorithm>
#include <map>

#include "model/onnx_run.h"

namespace headroom::ops {
namespace {

using device::Rate;
using model::OnnxWork;
using model::OnnxWorkKind;
using op::DType;
using op::OpGroup;

Rate rate_of_type(DType type) {
  switch (type) {
    case DType::i8:
    case DType::u8:
      return Rate::int8;
    case DType::f8:
      return Rate::fp8;
    case DType::f16:
      return Rate::fp16;
    case DType::bf16:
      return Rate::bf16;
    default:
      return Rate::fp32;
  }
}

// What the step model has of it; it has no pooling and the like.
OpGroup group_named(std::string_view name) {
  for (auto group = OpGroup::gemm; group < OpGroup::none;
       group = static_cast<OpGroup>(static_cast<int>(group) + 1)) {
    if (op::name_of(group) == name) return group;
  }
  return OpGroup::none;
}

// The group by the names that ONNX Runtime's profiles have (formats/ort_profile.h), for as long as
// the program runs.
std::string_view name_of_group(const OperatorRules& rules, std::string_view operation) {
  constexpr std::string_view kNames[] = {"pooling", "interpolation", "roi", "other"};
  const auto found = rules.of_operator("onnx::" + std::string(operation));
  if (!found) return "unclassified";
  const std::string& name = rules.groups()[*found].name;
  if (const OpGroup group = group_named(name); group != OpGroup::none) return op::name_of(group);
  for (const std::string_view known : kNames) {
    if (known == name) return known;
  }
  return "unclassified";
}

timing::Call call_of(const OnnxWork& work, OpGroup group) {
  const auto element = static_cast<double>(op::element_size(work.type));
  timing::Call call;
  if (work.kind == OnnxWorkKind::product) {
    const auto whole = [](int64_t size) { return std::max<int64_t>(size, 1); };
    call = timing::gemm_call({whole(work.count), whole(work.m), whole(work.n), whole(work.k)},
                             rate_of_type(work.type), element);
  } else if (work.kind == OnnxWorkKind::attention) {
    call = timing::attention_call({.batch = work.count,
                                   .heads = work.heads,
                                   .kv_heads = std::min(work.kv_heads, work.heads),
                                   .head_dim = work.n,
                                   .queries = work.m,
                                   .context = work.k},
                                  rate_of_type(work.type), element);
  } else {
    timing::StepShape shape;
    shape.type = work.type;
    shape.tokens = work.m;
    return timing::rows_call_of(group, work.bytes_read, work.bytes_written, shape);
  }
  call.flops = work.flops;
  call.bytes = work.bytes_read + work.bytes_written;
  return call;
}

bool is_linear(const OnnxWork& work) {
  return work.kind == OnnxWorkKind::product && work.has_weight && op::is_floating(work.type) &&
         work.operation.find("Conv") == std::string_view::npos;
}

StepCall step_call_of(const OnnxWork& work, std::string_view group_name) {
  const OpGroup group = group_named(group_name);
  StepCall call;
  call.group = group;
  call.group_name = group_name;
  call.flops = work.flops;
  call.bytes_read = work.bytes_read;
  call.bytes_written = work.bytes_written;
  call.element_bytes = static_cast<uint8_t>(op::element_size(work.type));
  call.is_linear = is_linear(work);
  call.call = call_of(work, group);
  return call;
}

// The type that most products are computed in, which quantizing would take the place of.
DType type_of(const std::vector<OnnxWork>& work) {
  std::map<DType, double> flops;
  for (const OnnxWork& one : work) {
    if (one.kind != OnnxWorkKind::rows && op::is_floating(one.type)) flops[one.type] += one.flops;
  }
  DType most = DType::f32;
  for (const auto& [type, sum] : flops) {
    if (sum > flops[most]) most = type;
  }
  return most;
}

Result<void> check_open(const model::OnnxRun& run, const StepSetting& setting,
                        const std::string& path) {
  const auto refused = [&](const char* flag, const char* what) {
    return Error{ErrorCode::usage, std::string("leaves no ") + what + " open: its sizes are fixed",
                 path, std::string("leave ") + flag + " out, or export it with dynamic dimensions"};
  };
  if (setting.batch && !run.has_batch) return refused("--batch", "batch");
  if (setting.seq && !run.has_sequence) return refused("--seq", "sequence");
  return {};
}

}  // namespace

Result<OnnxStep> step_of_onnx(const std::string& path, const StepSetting& setting,
                              const OperatorRules& rules) {
  HEADROOM_ASSIGN(const model::OnnxModel model, model::read_onnx(path));
  model::OnnxSetting sizes;
  sizes.batch = setting.batch.value_or(sizes.batch);
  sizes.sequence = setting.seq.value_or(sizes.sequence);
  HEADROOM_ASSIGN(const model::OnnxRun run, model::run_onnx(model, sizes));
  HEADROOM_TRY(check_open(run, setting, path));
  OnnxStep step;
  step.batch = run.has_batch ? sizes.batch : 1;
  step.shape.sequence = run.has_sequence ? sizes.sequence : 0;
  step.shape.type = type_of(run.work);
  std::map<std::string_view, std::string_view> groups;
  for (const OnnxWork& work : run.work) {
    if (work.bytes_read + work.bytes_written <= 0) continue;
    const auto [group, is_new] = groups.try_emplace(work.operation);
    if (is_new) group->second = name_of_group(rules, work.operation);
    step.calls.push_back(step_call_of(work, group->second));
  }
  step.notes = run.open;
  for (const std::string& name : run.unknown) {
    step.notes.push_back("operator " + name.substr(0, 80) +
                         " is not known: of its work only what it reads and writes is counted");
  }
  return step;
}

}  // namespace headroom::ops

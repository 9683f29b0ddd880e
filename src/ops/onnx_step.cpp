#include "ops/onnx_step.h"

#include <algorithm>
#include <map>
#include <set>

#include "model/onnx_run.h"

namespace headroom::ops {
namespace {

using device::Rate;
using model::OnnxWork;
using model::OnnxWorkKind;
using op::DType;
using op::OpGroup;

constexpr size_t kMostNames = 400;  // characters of an error's hint

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

bool is_convolution(const OnnxWork& work) {
  return work.operation.find("Conv") != std::string_view::npos;
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

// The law is of causal sequences, whose last tokens ask: attention to all keys, or to fewer than
// there are queries, only resembles that.
timing::Call attention_of(const OnnxWork& work) {
  const timing::AttentionShape shape{.batch = work.count,
                                     .heads = work.heads,
                                     .kv_heads = work.kv_heads,
                                     .head_dim = work.n,
                                     .queries = work.m,
                                     .context = work.k};
  timing::Call call = timing::attention_call(shape, rate_of_type(work.type),
                                             static_cast<double>(op::element_size(work.type)));
  call.is_stand_in = work.m > 1 && !(work.is_causal && work.k >= work.m);
  return call;
}

// A convolution is as many products as it has groups, by a law of products.
timing::Call product_of(const OnnxWork& work) {
  const auto whole = [](int64_t size) { return std::max<int64_t>(size, 1); };
  timing::Call call =
      timing::gemm_call({whole(work.count), whole(work.m), whole(work.n), whole(work.k)},
                        rate_of_type(work.type), static_cast<double>(op::element_size(work.type)));
  call.is_stand_in = is_convolution(work);
  return call;
}

timing::Call call_of(const OnnxWork& work, OpGroup group) {
  if (work.kind == OnnxWorkKind::rows) {
    timing::StepShape shape;
    shape.type = work.type;
    shape.tokens = work.m;
    return timing::rows_call_of(group, work.bytes_read, work.bytes_written, shape);
  }
  timing::Call call = work.kind == OnnxWorkKind::product ? product_of(work) : attention_of(work);
  call.flops = work.flops;
  call.bytes = work.bytes_read + work.bytes_written;
  return call;
}

bool is_linear(const OnnxWork& work) {
  return work.kind == OnnxWorkKind::product && work.has_weight && op::is_floating(work.type) &&
         !is_convolution(work);
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

using Role = model::OnnxOpenSize::Role;

// The first that has that role.
std::optional<int64_t> size_of(const model::OnnxRun& run, Role role) {
  const auto found = std::ranges::find(run.open, role, &model::OnnxOpenSize::role);
  return found == run.open.end() ? std::nullopt : std::optional(found->size);
}

// The file has a size of that role that `flag` says, and --dim does not say.
Result<void> check_has(const model::OnnxRun& run, Role role, const char* flag, const char* what,
                       const std::string& path) {
  const auto is_taken = [role](const model::OnnxOpenSize& open) {
    return open.role == role && !open.is_given;
  };
  if (std::ranges::any_of(run.open, is_taken)) return {};
  if (size_of(run, role)) {
    return Error{ErrorCode::usage, std::string("--dim says the ") + what + " already", flag,
                 "leave one of the two out"};
  }
  return Error{ErrorCode::usage, std::string("leaves no ") + what + " open", path,
               std::string("leave ") + flag + " out, or export it with dynamic dimensions"};
}

// Sizes that were given and that the file has no place for.
Result<void> check_open(const model::OnnxRun& run, const StepSetting& setting,
                        const std::string& path) {
  if (setting.batch) HEADROOM_TRY(check_has(run, Role::batch, "--batch", "batch", path));
  if (setting.seq) HEADROOM_TRY(check_has(run, Role::sequence, "--seq", "sequence", path));
  for (const auto& [name, size] : setting.dimensions) {
    if (std::ranges::count(run.open, name, &model::OnnxOpenSize::name) > 0) continue;
    std::string names;
    for (const model::OnnxOpenSize& open : run.open) {
      if (names.size() < kMostNames) names += (names.empty() ? "" : ", ") + open.name.substr(0, 80);
    }
    return Error{ErrorCode::usage, "leaves no '" + name.substr(0, 80) + "' open", path,
                 names.empty() ? "leave --dim out: all sizes are fixed" : "open are: " + names};
  }
  return {};
}

// The first dozen, and how many more.
void add_some(const std::vector<std::string>& all, std::vector<std::string>& notes) {
  constexpr size_t kMost = 12;
  notes.insert(notes.end(), all.begin(),
               all.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, all.size())));
  if (all.size() > kMost) notes.push_back("and " + std::to_string(all.size() - kMost) + " more");
}

// `sent`: operators that are collectives.
std::vector<std::string> notes_of(const model::OnnxRun& run,
                                  const std::set<std::string_view>& sent) {
  std::vector<std::string> open;
  for (const model::OnnxOpenSize& one : run.open) {
    if (one.is_given) continue;
    open.push_back(one.name.substr(0, 80) + " taken as " + std::to_string(one.size));
  }
  std::vector<std::string> unknown;
  for (const std::string& name : run.unknown) {
    if (sent.contains(name)) continue;
    unknown.push_back("operator " + name.substr(0, 80) +
                      " is not known: of its work only what it reads and writes is counted");
  }
  std::vector<std::string> notes;
  add_some(open, notes);
  add_some(unknown, notes);
  for (const std::string_view name : sent) {
    notes.push_back("operator " + std::string(name.substr(0, 80)) +
                    " sends to other devices, which is not in the time");
  }
  notes.emplace_back(
      "no run of an ONNX file was held against a measured time: the intervals are of kernels one "
      "by one, as other programs run them");
  return notes;
}

// What a model says in the end: a linear layer with no more than its bias behind it.
void mark_head(std::vector<StepCall>& calls) {
  for (size_t behind = 0; behind < 2 && behind < calls.size(); ++behind) {
    StepCall& call = calls[calls.size() - 1 - behind];
    if (call.is_linear) {
      call.is_head = true;
      return;
    }
    if (call.group != OpGroup::elementwise) return;
  }
}

}  // namespace

Result<OnnxStep> step_of_onnx(const std::string& path, const StepSetting& setting,
                              const OperatorRules& rules) {
  HEADROOM_ASSIGN(const model::OnnxModel model, model::read_onnx(path));
  return step_of_onnx(model, setting, rules);
}

Result<OnnxStep> step_of_onnx(const model::OnnxModel& model, const StepSetting& setting,
                              const OperatorRules& rules) {
  model::OnnxSetting sizes;
  sizes.batch = setting.batch.value_or(sizes.batch);
  sizes.sequence = setting.seq.value_or(sizes.sequence);
  sizes.dimensions = setting.dimensions;
  HEADROOM_ASSIGN(const model::OnnxRun run, model::run_onnx(model, sizes));
  HEADROOM_TRY(check_open(run, setting, model.file));
  OnnxStep step;
  step.batch = size_of(run, Role::batch).value_or(0);
  step.shape.sequence = size_of(run, Role::sequence).value_or(0);
  step.shape.type = type_of(run.work);
  std::map<std::string_view, std::string_view> groups;
  std::set<std::string_view> sent;
  for (const OnnxWork& work : run.work) {
    if (work.bytes_read + work.bytes_written <= 0) continue;
    const auto [group, is_new] = groups.try_emplace(work.operation);
    if (is_new) group->second = name_of_group(rules, work.operation);
    if (group->second == op::name_of(OpGroup::communication)) {
      sent.insert(work.operation);
    } else {
      step.calls.push_back(step_call_of(work, group->second));
    }
  }
  mark_head(step.calls);
  step.notes = notes_of(run, sent);
  return step;
}

}  // namespace headroom::ops

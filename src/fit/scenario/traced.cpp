#include "fit/scenario/traced.h"

#include <algorithm>
#include <array>

#include "fit/scenario/parts.h"

namespace headroom::fit {

namespace {

constexpr size_t kNamesShown = 6;  // of a list in a sentence

// A setting that only a family could follow.
struct FunctionsBusiness {
  const char* flag;
  bool (*is_asked)(const FitQuestion&);
  const char* instead;
};

constexpr std::array kFunctionsBusiness = {
    FunctionsBusiness{"method", [](const FitQuestion& q) { return q.method != Method::full; },
                      "wrap the module in the function, as with peft.get_peft_model"},
    FunctionsBusiness{"kernels", [](const FitQuestion& q) { return q.kernels != Kernels::none; },
                      "put the kernels into the module in the function"},
    FunctionsBusiness{
        "loss",
        [](const FitQuestion& q) { return q.loss != Loss::automatic && q.loss != Loss::hf; },
        "the loss is what the function returns as its third value"},
    FunctionsBusiness{"freeze", [](const FitQuestion& q) { return !q.freeze.empty(); },
                      "call requires_grad_(False) on parameters in the function"},
    FunctionsBusiness{"vocab", [](const FitQuestion& q) { return q.vocab.has_value(); },
                      "make the module with that vocabulary in the function"},
    FunctionsBusiness{"assume", [](const FitQuestion& q) { return !q.assume.empty(); },
                      "a traced module needs no family: leave it out"},
    FunctionsBusiness{"accelerate", [](const FitQuestion& q) { return q.accelerate; },
                      "convert the outputs in the function's loss"},
    FunctionsBusiness{
        "keep-outputs",
        [](const FitQuestion& q) { return q.keep_outputs && q.given.contains("keep-outputs"); },
        "outputs live as long as the function's loss holds them"},
    FunctionsBusiness{"attention",
                      [](const FitQuestion& q) {
                        return q.attention == Attention::eager || q.attention == Attention::flash2;
                      },
                      "choose it in the function; sdpa-math, sdpa-efficient, sdpa-flash and "
                      "sdpa-cudnn say which kernel scaled_dot_product_attention takes"},
};

Result<void> check_question(const FitQuestion& question) {
  for (const FunctionsBusiness& business : kFunctionsBusiness) {
    if (!business.is_asked(question)) continue;
    return Error{ErrorCode::usage, "is settled by the function that is traced",
                 std::string("--") + business.flag, business.instead};
  }
  return {};
}

model::TraceRequest request_of(const FitQuestion& question) {
  model::TraceRequest request;
  request.target = question.model;
  if (question.given.contains("batch")) request.batch = question.batch;
  if (question.given.contains("seq")) request.sequence = question.seq;
  if (question.given.contains("dtype")) request.dtype = dtype_of(question.dtype);
  if (question.mixed_precision != MixedPrecision::none) {
    request.autocast =
        question.mixed_precision == MixedPrecision::fp16 ? op::DType::f16 : op::DType::bf16;
  }
  const auto kernel = named_kernel(question.attention);
  request.attention = kernel ? std::string(op::name_of(*kernel)) : "auto";
  return request;
}

// "2.13" of "2.13.0+cpu".
std::string minor_version(const std::string& version) {
  const size_t dot = version.find('.');
  return version.substr(0, dot == std::string::npos ? dot : version.find('.', dot + 1));
}

// The versions of a trace are those that it was made with.
Result<void> take_version(const std::optional<std::string>& traced, const char* flag,
                          const std::set<std::string, std::less<>>& given, std::string& field) {
  if (!traced) return {};
  if (given.contains(flag) && minor_version(*traced) != minor_version(field)) {
    return Error{ErrorCode::usage, "the trace was made by " + *traced + ", not by " + field,
                 std::string("--") + flag, "install that version for the Python that traces"};
  }
  field = *traced;
  return {};
}

std::string names(const std::vector<std::string>& all) {
  std::string list;
  for (size_t i = 0; i < std::min(all.size(), kNamesShown); ++i) {
    list += (i == 0 ? "" : ", ") + all[i].substr(0, 120);
  }
  if (all.size() > kNamesShown)
    list += ", and " + std::to_string(all.size() - kNamesShown) + " more";
  return list;
}

// Each makes the figures extrapolated: they rest on it, and nothing was measured.
void assume(Scenario& scenario) {
  const model::TracedGraph& trace = scenario.traced->trace;
  if (!trace.unknown_operators.empty()) {
    scenario.assumptions.push_back(
        "the kernels of " + names(trace.unknown_operators) +
        " need no memory of their own beside their results, which are counted");
  }
  if (!trace.data_answers.empty()) {
    scenario.assumptions.push_back("what the module asks of its data: " +
                                   names(trace.data_answers));
  }
}

Result<void> take_trace(Scenario& s, model::TraceRequest request) {
  HEADROOM_ASSIGN(model::TracedGraph trace, model::trace_function(request));
  FitQuestion& question = s.question;
  HEADROOM_TRY(take_version(trace.torch, "torch", question.given, question.torch));
  HEADROOM_TRY(
      take_version(trace.transformers, "transformers", question.given, question.transformers));
  question.batch = trace.batch.value_or(question.batch);
  question.seq = trace.sequence.value_or(question.seq);
  question.keep_outputs = false;
  s.traced = std::make_shared<const TracedModel>(TracedModel{std::move(request), std::move(trace)});
  return {};
}

std::string shape_words(const model::GraphInput& input) {
  std::string words = input.name + " [";
  for (size_t i = 0; i < input.shape.size(); ++i) {
    words += (i == 0 ? "" : ", ") + std::to_string(input.shape[i]);
  }
  return words + "] " + std::string(op::dtype_name(input.dtype.value_or(op::DType::f32)));
}

}  // namespace

Result<void> trace_model(Scenario& s) {
  HEADROOM_TRY(check_question(s.question));
  HEADROOM_TRY(set_allocator(s));  // refused before seconds go by
  HEADROOM_TRY(take_trace(s, request_of(s.question)));
  s.model = std::make_shared<const model::ResolvedModel>(model::ResolvedModel{
      s.question.model, model::ModelSource::traced, s.question.model, text::Json::object()});
  assume(s);
  return {};
}

Result<void> trace_again(const Scenario& from, Scenario& varied) {
  HEADROOM_TRY(check_question(varied.question));
  const model::TracedGraph& known = from.traced->trace;
  model::TraceRequest request = request_of(varied.question);
  const auto settle = [&](std::optional<int64_t> traced, std::optional<int64_t> asked_before,
                          int64_t before, int64_t now, std::optional<int64_t>& asked) {
    if (before == now) {
      asked = asked_before;
      return true;
    }
    asked = now;
    return traced.has_value();
  };
  const bool can_vary = settle(known.batch, from.traced->request.batch, from.question.batch,
                               varied.question.batch, request.batch) &&
                        settle(known.sequence, from.traced->request.sequence, from.question.seq,
                               varied.question.seq, request.sequence);
  if (!can_vary) {
    return Error{ErrorCode::usage, "the function takes no `batch` or `seq`", from.model->name, ""};
  }
  if (request == from.traced->request) return {};
  return take_trace(varied, std::move(request));
}

Result<void> check_layers(const Scenario& s) {
  if (s.train.checkpointing == step::CheckpointPolicy::none) return {};
  const auto& regions = s.traced->trace.graph.regions;
  const bool has_layers = std::ranges::any_of(
      regions, [](const model::Region& r) { return r.kind == model::RegionKind::layer; });
  if (has_layers) return {};
  return Error{ErrorCode::usage, "the trace shows no layers to checkpoint", "--checkpointing",
               "layers are modules alike in a ModuleList or Sequential, each run once"};
}

Searchable searchable_sizes(const Scenario& s) {
  if (!s.traced) return {true, s.task != model::Task::image_classification};
  const bool asked = s.question.given.contains("search");
  return {asked && s.traced->trace.batch.has_value(),
          asked && s.traced->trace.sequence.has_value()};
}

std::vector<Setting> settings_of_trace(const Scenario& s) {
  constexpr std::array<std::string_view, 6> kNotOurs = {"method",     "kernels",      "loss",
                                                        "accelerate", "keep-outputs", "vocab"};
  const model::TracedGraph& trace = s.traced->trace;
  std::vector<Setting> settings = settings_of(s.question);
  std::erase_if(settings, [&](const Setting& setting) {
    const bool is_as_made = setting.origin != SettingOrigin::given;
    return std::ranges::find(kNotOurs, setting.name) != kNotOurs.end() ||
           (setting.name == "dtype" && is_as_made) || (setting.name == "batch" && !trace.batch) ||
           (setting.name == "seq" && !trace.sequence);
  });
  for (Setting& setting : settings) {
    const bool is_size = setting.name == "batch" || setting.name == "seq";
    const bool is_version = (setting.name == "torch" && trace.torch) ||
                            (setting.name == "transformers" && trace.transformers);
    if (is_version) setting.origin = SettingOrigin::detected;
    if (is_size && setting.origin != SettingOrigin::given) setting.origin = SettingOrigin::config;
  }
  std::string inputs;
  for (const model::GraphInput& input : trace.graph.inputs) {
    inputs += (inputs.empty() ? "" : "; ") + shape_words(input);
  }
  settings.push_back({"inputs", inputs.substr(0, 400), SettingOrigin::config});
  return settings;
}

void add_trace_notes(const Scenario& s, FitAnswer& answer) {
  const Searchable sizes = searchable_sizes(s);
  const bool takes_sizes = s.traced->trace.batch || s.traced->trace.sequence;
  if (s.question.search && takes_sizes && !sizes.batch && !sizes.sequence) {
    answer.warnings.emplace_back(
        "largest batch and longest sequence are not searched: every try is a trace of its own; "
        "--search true does it");
  }
  if (s.question.search && !takes_sizes) {
    answer.warnings.emplace_back(
        "the function takes neither `batch` nor `seq`, so no other sizes are tried");
  }
}

}  // namespace headroom::fit

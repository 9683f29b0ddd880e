#include "fit/config_types.h"

#include <algorithm>
#include <array>

namespace headroom::fit {

namespace {

constexpr int64_t kGroupMax = 1'000'000;

// As PyTorch prints it, with or without its "torch.".
std::optional<std::string_view> words_of(std::string_view type) {
  if (type.starts_with("torch.")) type.remove_prefix(6);
  if (type == "bfloat16") return "bf16";
  if (type == "float16" || type == "half") return "fp16";
  if (type == "float32" || type == "float") return "fp32";
  return std::nullopt;
}

// "gptq"; older files of bitsandbytes have no quant_method.
Result<std::string> method_of(const text::JsonView& quantization) {
  HEADROOM_ASSIGN(const auto method, quantization.optional_string("quant_method"));
  if (method) return *method;
  for (const char* key : {"load_in_4bit", "load_in_8bit"}) {
    HEADROOM_ASSIGN(const auto loads, quantization.optional_bool(key));
    if (loads.value_or(false)) return std::string("bitsandbytes");
  }
  return std::string("a method it does not name");
}

Result<void> take_gptq(Scenario& s, const text::JsonView& quantization) {
  HEADROOM_ASSIGN(const auto bits, quantization.optional_int("bits", 1, 64));
  if (bits && *bits != 4) {
    return Error{ErrorCode::bad_input,
                 "a GPTQ base of " + std::to_string(*bits) + " bits is not modelled", s.model->file,
                 "4 bits are"};
  }
  HEADROOM_ASSIGN(const auto group, quantization.optional_int("group_size", -1, kGroupMax));
  if (!group || s.question.given.contains("gptq-group")) return {};
  const std::string words = std::to_string(*group < 0 ? 0 : *group);
  FitQuestion changed = s.question;
  if (const Result<void> set = changed.set("gptq-group", words); !set) {
    return Error{ErrorCode::bad_input, "\"group_size\": " + set.error().message, s.model->file, ""};
  }
  s.question.gptq_group = changed.gptq_group;
  s.derived.push_back({"gptq-group", words, SettingOrigin::derived});
  return {};
}

}  // namespace

Result<void> take_config_dtype(Scenario& s) {
  if (s.traced || s.question.given.contains("dtype")) return {};
  for (const char* key : {"dtype", "torch_dtype"}) {
    HEADROOM_ASSIGN(const auto type, s.model->view().optional_string(key));
    if (!type) continue;
    const auto words = words_of(*type);
    if (!words) {
      s.warnings.push_back("config.json keeps its weights in " + type->substr(0, 40) +
                           ", which is not modelled: taken as bf16 (--dtype)");
      return {};
    }
    FitQuestion changed = s.question;
    HEADROOM_TRY(changed.set("dtype", *words));
    s.question.dtype = changed.dtype;
    s.derived.push_back({"dtype", std::string(*words), SettingOrigin::derived});
    return {};
  }
  return {};
}

Result<void> take_quantization_config(Scenario& s) {
  if (s.traced) return {};
  HEADROOM_ASSIGN(const auto quantization, s.model->view().optional_object("quantization_config"));
  if (!quantization) return {};
  HEADROOM_ASSIGN(const std::string method, method_of(*quantization));
  const bool is_gptq = method == "gptq";
  if (s.question.method == Method::gptq_lora && is_gptq) return take_gptq(s, *quantization);
  HEADROOM_ASSIGN(const auto has_8_bits, quantization->optional_bool("load_in_8bit"));
  const bool is_wide = has_8_bits.value_or(false);
  const Method counting = is_wide ? Method::lora_8bit : Method::qlora;
  if (s.question.method == counting && method == "bitsandbytes") return {};
  std::string warning = "config.json says that its weights are quantized by " +
                        method.substr(0, 40) + "; they are taken as they were before";
  if (is_gptq) warning += " (--method gptq-lora counts them as they are)";
  if (method == "bitsandbytes") {
    warning += std::string(" (--method ") + (is_wide ? "lora-8bit" : "qlora") +
               " counts them as they are)";
  }
  s.warnings.push_back(std::move(warning));
  return {};
}

namespace {

// The class that the config is of; empty where it names none.
Result<std::string> architecture_of(const Scenario& s) {
  constexpr size_t kMost = 64;
  HEADROOM_ASSIGN(const auto names, s.model->view().optional_array("architectures", kMost));
  if (!names || names->empty()) return std::string();
  return names->front().to_string();
}

}  // namespace

Result<bool> names_a_classifier(const Scenario& s) {
  HEADROOM_ASSIGN(const std::string name, architecture_of(s));
  return name.ends_with("ForSequenceClassification");
}

Result<void> check_architecture(Scenario& s) {
  if (s.traced || s.task != model::Task::causal_lm) return {};
  HEADROOM_ASSIGN(const std::string name, architecture_of(s));
  if (name.empty()) return {};
  constexpr std::array kWithHeads{"ForCausalLM", "LMHeadModel", "ForConditionalGeneration"};
  const auto ends_so = [&](const char* end) { return name.ends_with(end); };
  if (std::ranges::any_of(kWithHeads, ends_so)) return {};
  s.warnings.push_back("config.json is of a " + name.substr(0, 60) +
                       "; what is answered is the causal language model of its type, with the "
                       "head and logits of one");
  return {};
}

}  // namespace headroom::fit

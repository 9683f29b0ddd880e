#include "fit/search/precision.h"

#include "fit/scenario/errors.h"
#include "fit/scenario/parts.h"
#include "fit/scenario/scenario.h"

namespace headroom::fit {

std::string Precision::flags() const {
  return mixed_precision == "none" ? "--dtype " + dtype : "--mixed-precision " + mixed_precision;
}

std::string Precision::words() const {
  return mixed_precision == "none"
             ? "with weights in " + dtype
             : "in mixed precision (" + mixed_precision + " over fp32 weights)";
}

Result<std::vector<std::optional<Precision>>> precisions_of(const Scenario& scenario,
                                                            std::string_view division) {
  const FitQuestion& question = scenario.question;
  std::vector<std::optional<Precision>> precisions;
  if (!question.any_precision) return std::vector{std::optional<Precision>()};
  if (scenario.traced || has_quantized_base(question)) {
    return contradiction("mixed-precision",
                         "the types of a module of your own, or of quantized weights, are theirs",
                         "none, bf16 or fp16 in place of any");
  }
  const std::string half = has_bf16(*scenario.device) ? "bf16" : "fp16";
  const std::string given = setting_of(settings_of(question), "dtype");
  const bool is_held = question.given.contains("dtype");
  for (const Precision& one : {Precision{is_held && given != "fp32" ? given : half, "none"},
                               Precision{"fp32", half}, Precision{"fp32", "none"}}) {
    if (!is_held || one.dtype == given) precisions.emplace_back(one);
  }
  if (!division.starts_with("zero") || !precisions.front()->is_half()) return precisions;
  precisions.resize(1);
  return precisions;
}

Result<void> ask_in(const Precision& precision, FitQuestion& question) {
  question.any_precision = false;
  question.given.erase("mixed-precision");
  if (precision.mixed_precision == "none") return question.set("dtype", precision.dtype);
  question.dtype = Dtype::fp32;  // as autocast takes weights where nobody says their type
  return question.set("mixed-precision", precision.mixed_precision);
}

}  // namespace headroom::fit

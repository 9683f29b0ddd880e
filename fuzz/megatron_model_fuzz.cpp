// A config.json from anybody as a model of Megatron-LM's: its divisions among some GPUs, one of
// which is built, and written as a script that must be read back.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "engines/megatron_script.h"
#include "fit/megatron/division.h"
#include "fit/megatron/model.h"
#include "fit/megatron/question.h"

namespace {

using namespace headroom;

// Deep models are slow, not wrong.
constexpr int64_t kLayersMax = 16;
constexpr int64_t kExpertsMax = 64;

void build(const engines::MegatronArguments& model, const fit::MegatronDivision& division) {
  const engines::MegatronArguments divided = fit::divided(model, division);
  const auto question =
      fit::megatron_question(fit::FitQuestion(), divided, "fuzz", division.gpus());
  if (!question) return;
  model::MegatronStage stage = question->megatron->stage;
  stage.micro_batch = division.micro_batch;
  stage.sequence = divided.sequence;
  static_cast<void>(model::build_megatron_stage(stage));
  const auto back = engines::read_megatron_arguments(engines::megatron_script(divided), "fuzz");
  HEADROOM_CHECK(back.has_value(), "what is written is read");
  HEADROOM_CHECK(back->layers == divided.layers && back->stages == divided.stages,
                 "what is written is what was asked");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = text::parse_json(text, "fuzz", {.bytes = Bytes(1 << 16)});
  if (!json) return 0;
  const auto layers =
      text::JsonView(*json, "fuzz").optional_int("num_hidden_layers", 0, kLayersMax);
  const auto depth = text::JsonView(*json, "fuzz").optional_int("n_layer", 0, kLayersMax);
  if (!layers || !depth) return 0;
  fit::FitQuestion question;
  question.model = "fuzz";
  question.seq = 64;
  auto described = fit::describe_for_megatron({*json, "fuzz"}, question);
  if (!described || described->arguments.experts > kExpertsMax) return 0;
  described->arguments.global_batch = 8;
  const auto divisions = fit::megatron_divisions(described->arguments, {.gpus = 8});
  if (divisions.empty()) return 0;
  build(described->arguments, divisions[size % divisions.size()]);
  return 0;
}

// Settings of launchers and engines: any bytes give flags that `fit` takes or refuses with words,
// or an Error; and what Megatron-LM's give is written as a script that says the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "engines/megatron.h"
#include "engines/megatron_script.h"
#include "fit/megatron/question.h"
#include "fit/setup/setup_file.h"
#include "model/megatron.h"

namespace {

// What is written reads back as what is written again.
void check_script(const headroom::engines::MegatronArguments& arguments) {
  using namespace headroom::engines;
  const std::string script = megatron_script(arguments);
  const auto back = read_megatron_arguments(script, "written");
  HEADROOM_CHECK(back && megatron_script(*back) == script, "a script that reads back otherwise");
}

// Any bytes are a run whose first stage can be built, or an Error.
void read_megatron(std::string_view text) {
  (void)headroom::engines::has_megatron_arguments(text);
  const auto arguments = headroom::engines::read_megatron_arguments(text, "fuzz");
  if (!arguments) {
    HEADROOM_CHECK(!arguments.error().message.empty(), "an error without words");
    return;
  }
  constexpr int64_t kMostLayers = 64;  // a graph of more takes its time
  const auto question = headroom::fit::megatron_question({}, *arguments, "fuzz", std::nullopt);
  if (question) check_script(*arguments);
  if (!question || question->megatron->stage.rank.layers() > kMostLayers) return;
  if (question->megatron->stage.model.decoder_layers > kMostLayers) return;
  headroom::model::MegatronStage stage = question->megatron->stage;
  stage.micro_batch = question->batch;
  stage.sequence = question->seq;
  (void)headroom::model::build_megatron_stage(stage);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_megatron(text);
  // A file that is named has what fuzzers seldom find by themselves.
  const auto named = [](const std::string&) {
    return headroom::Result<std::string>(R"({"zero_optimization": {"stage": 2}})");
  };
  const auto flags = headroom::fit::flags_of_setup(text, "fuzz", {"", 8, named});
  if (!flags) {
    HEADROOM_CHECK(!flags.error().message.empty(), "an error without words");
    return 0;
  }
  headroom::fit::FitQuestion question;
  for (const auto& [name, words] : flags->flags) {
    const auto set = question.set(name, words);
    HEADROOM_CHECK(set || !set.error().message.empty(), "an error without words");
  }
  return 0;
}

// A packing instance: any bytes give an instance or an Error, what is read can be checked, and
// small instances get a plan that the validator takes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/packing_csv.h"
#include "memory/packing/plan_synthesizer.h"
#include "memory/packing/validator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto instance = headroom::formats::parse_packing_csv(text, "fuzz");
  if (!instance) {
    HEADROOM_CHECK(!instance.error().message.empty(), "an error without words");
    return 0;
  }
  const auto& problem = instance->problem;
  HEADROOM_CHECK(headroom::memory::check_problem(problem), "a problem that was let through");
  const headroom::memory::PlanSynthesizer synthesizer({.placements = 2'000, .threads = 1});
  const auto synthesis = synthesizer.synthesize(problem);
  HEADROOM_CHECK(headroom::memory::validate_packing(problem, synthesis.solution),
                 "a plan that does not hold");
  const std::string written = headroom::formats::placements_csv(*instance, synthesis.solution);
  const auto again = headroom::formats::parse_packing_csv(written, "again");
  HEADROOM_CHECK(again && again->problem == problem && again->ids == instance->ids,
                 "an instance changed by being written and read");
  return 0;
}

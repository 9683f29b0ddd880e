// A pasted out-of-memory message: any bytes give messages or an Error, and every message that was
// read can be explained.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/oom_message.h"
#include "pack/oom.h"
#include "report/pack/oom_json.h"
#include "report/pack/oom_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const auto catalogue = headroom::device::DeviceCatalogue::built_in();
  const auto answer = headroom::pack::explain_oom(text, "fuzz", catalogue);
  if (!answer) {
    HEADROOM_CHECK(!answer.error().message.empty(), "an error without words");
    return 0;
  }
  HEADROOM_CHECK(!answer->cases.empty(), "an answer without a case");
  for (const auto& one : answer->cases) {
    HEADROOM_CHECK(!one.verdict.empty() && !one.advice.empty(), "a message without an explanation");
  }
  HEADROOM_CHECK(!headroom::report::oom_text(*answer, {}).empty(), "no text");
  HEADROOM_CHECK(headroom::report::oom_json(*answer).is_object(), "no JSON");
  return 0;
}

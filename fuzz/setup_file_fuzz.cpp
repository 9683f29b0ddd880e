// Settings of launchers and engines: any bytes give flags that `fit` takes or refuses with words,
// or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "fit/setup_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto flags = headroom::fit::flags_of_setup(text, "fuzz", "");
  if (!flags) {
    HEADROOM_CHECK(!flags.error().message.empty(), "an error without words");
    return 0;
  }
  headroom::fit::FitQuestion question;
  for (const auto& [name, words] : *flags) {
    const auto set = question.set(name, words);
    HEADROOM_CHECK(set || !set.error().message.empty(), "an error without words");
  }
  return 0;
}

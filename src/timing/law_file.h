// headroom.timing/1: laws as JSON (docs/formats/timing.md). data/timing.json is one; users add
// more.
//
// A file with "schema", "sources" (key -> words for people), "engines", "steps" and "laws". Bounds:
// 2,000 laws, 64 engines, 64 steps, 32 tables a law, 64 knots an axis, logarithms within +-50 in
// knots and +-10 in tables, times within 1 s of start; so that no file gives an infinite time or
// takes more than some megabytes. About 2 ms for the built-in file. Pure; thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/json.h"
#include "timing/law.h"

namespace headroom::timing {

struct LawFile {
  std::vector<std::pair<std::string, std::string>> sources;  // key, words
  std::vector<Engine> engines;
  std::vector<InStep> steps;
  std::vector<Law> laws;
};

Result<LawFile> read_law_file(const text::JsonView& root);
// The same as JSON, which reads back to equal laws.
[[nodiscard]] text::Json law_file_json(const LawFile& file);

}  // namespace headroom::timing

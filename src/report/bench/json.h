// The answer of `bench decode` as JSON, schema headroom.bench_decode/1.
//
// Pure; thread-safe. Times are intervals of interval_level_pct; a class that was measured has no
// interval (null). Every kernel class has its provenance and basis.
#pragma once

#include <string>

#include "bench/decode.h"
#include "text/json.h"

namespace headroom::report {

// `folder`: where records and traces are kept; empty where nothing was measured now.
[[nodiscard]] text::Json decode_json(const bench::DecodeAnswer& answer, const std::string& folder);

}  // namespace headroom::report

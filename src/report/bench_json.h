// The answer of `bench decode` as JSON, schema headroom.bench_decode/1.
//
// Pure; thread-safe. Times are 90 % intervals; every kernel class has its provenance and basis.
#pragma once

#include "bench/decode.h"
#include "text/json.h"

namespace headroom::report {

[[nodiscard]] text::Json decode_json(const bench::DecodeAnswer& answer);

}  // namespace headroom::report

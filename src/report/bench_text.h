// The answer of `bench decode` for people: the answer first, then a line a batch.
//
// Pure; thread-safe.
#pragma once

#include <string>

#include "bench/decode.h"
#include "text/terminal.h"

namespace headroom::report {

[[nodiscard]] std::string decode_text(const bench::DecodeAnswer& answer,
                                      const text::Terminal& terminal);

}  // namespace headroom::report

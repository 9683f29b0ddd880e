// Lengths of requests, from the traces that people publish:
//
//   CSV of the Azure LLM inference traces (ContextTokens, GeneratedTokens), of BurstGPT (Request
//   tokens, Response tokens), of Vidur (num_prefill_tokens, num_decode_tokens), or with the columns
//   input_tokens, output_tokens;
//   JSON lines of Mooncake (input_length, output_length).
//
// And when they came (request_times.h): TIMESTAMP, Timestamp, arrived_at or arrival_seconds of the
// same CSV, timestamp (milliseconds) and hash_ids of Mooncake. Where every request has a time they
// are put in that order. Any other column or member is passed over. Requests that wrote nothing
// (failures, in BurstGPT) are counted and left out. gzip is unpacked. Pure but for the file; not
// synchronised; some 30 MB/s.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/request_times.h"

namespace headroom::formats {

struct RequestLengths {
  int64_t input_tokens = 0;
  int64_t output_tokens = 1;
};

struct RequestTrace {
  std::vector<RequestLengths> requests;
  int64_t without_output = 0;
  RequestTimes times;
};

inline constexpr int64_t kMostRequestTokens = 100'000'000;
inline constexpr size_t kMostTraceRequests = 10'000'000;
inline constexpr size_t kMostTraceHashes = 100'000'000;

// A file ("-" is standard input) of at most 1 GiB. Errors name the line; no request at all is one.
Result<RequestTrace> read_request_lengths(const std::string& path);
// The same from memory; `file` is only used in errors.
Result<RequestTrace> parse_request_lengths(std::string_view text, const std::string& file);

}  // namespace headroom::formats

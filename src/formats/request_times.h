// When the requests of a trace came, and how their prompts begin.
//
// Traces say the time in seconds (BurstGPT, Vidur), in milliseconds (Mooncake) or as a date
// (Azure); what counts is how long after the first each came. Mooncake's hash_ids name the blocks
// of a prompt, one after another, the same where it begins as another does.
//
// Pure; linear, and the requests are sorted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::formats {

// Of requests in the order in which they came. Either is empty where the trace does not have it.
struct RequestTimes {
  std::vector<double> arrived_seconds;  // since the first
  std::vector<uint64_t> hashes;         // of all prompts, one after another
  std::vector<size_t> first_hash;       // of each request, and the end
  int64_t hash_tokens = 0;              // that a hash stands for
  std::string without_times;            // why there are none, where some rows have some
  std::string without_hashes;
};

// "2023-11-16 18:17:03.9799600", "2024-05-10T00:00:00.009930+00:00" in seconds since 1970 (UTC
// where no zone is said), or a number of seconds. Nothing where it is neither, or beyond the year
// 9999.
[[nodiscard]] std::optional<double> seconds_of_timestamp(std::string_view words);

// The tokens that a hash stands for: the power of two for which each prompt has one for every whole
// and begun block. Nothing where none fits all.
[[nodiscard]] std::optional<int64_t> tokens_of_a_hash(const std::vector<int64_t>& input_tokens,
                                                      const std::vector<size_t>& first_hash);

}  // namespace headroom::formats

// The YAML that people and tools write for settings: mappings and lists, one member or item a line,
// within one another.
//
//   distributed_type: FSDP        # scalars: words, quoted words, numbers, true, false, null
//   fsdp_config:
//     fsdp_version: 2
//   report_to: [none]           # of scalars, over lines too
//   datasets:
//     - path: tatsu-lab/alpaca
//       type: alpaca
//   description: |
//     text over lines, with its line ends; ">" joins them
//
// That and no more: other flow style but {}, anchors, tags and plain text over several lines
// are an Error that names the line, never guessed. Scalars are YAML 1.1's as far as settings go:
// yes, no, on and off stay words. Thread-safe; linear in the text, but for mappings of many
// members; at most kMostYamlLines lines and kMostYamlDepth levels.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/json.h"

namespace headroom::text {

inline constexpr size_t kMostYamlLines = 10'000;
inline constexpr size_t kMostYamlDepth = 8;

// An object. `file` is used in errors.
Result<Json> parse_block_yaml(std::string_view text, const std::string& file);

}  // namespace headroom::text

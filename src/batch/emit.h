// A file that starts what the first line of an answer names: a shell script, or a Kubernetes
// manifest.
//
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "batch/answer.h"

namespace headroom::batch {

// "kubernetes=FILE" or "shell=FILE".
struct EmitRequest {
  std::string kind;
  std::string file;
};
Result<EmitRequest> parse_emit(std::string_view words);

// What goes into the file. An Error where its kind cannot say it. REQUIRES: the answer meets its
// target.
Result<std::string> emitted(const BatchAnswer& answer, const EmitRequest& request);

}  // namespace headroom::batch

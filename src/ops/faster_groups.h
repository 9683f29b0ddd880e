// Groups of operators that somebody would make faster: the words of --faster.
//
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/rules.h"

namespace headroom::ops {

struct FasterGroup {
  std::string name;   // "gemm", or "non_gemm": all but GEMM, attention, communication, unclassified
  std::string title;  // "GEMM"
  double factor = 2;
};

// "gemm=4,attention=2" as groups of the rules, by name or title in any case; none of "". An Error
// where a group is not there, or there twice.
Result<std::vector<FasterGroup>> faster_groups(std::string_view words, const OperatorRules& rules);

}  // namespace headroom::ops

#include "cli/bench_flags.h"

#include <algorithm>
#include <array>
#include <string>

namespace headroom::cli {
namespace {

// What is asked, as bits. Without --results or --predict something is measured.
using Asked = unsigned;
constexpr Asked kDevice = 1U << 0;
constexpr Asked kDeviceResults = 1U << 1;
constexpr Asked kDecode = 1U << 2;
constexpr Asked kDecodeResults = 1U << 3;
constexpr Asked kDecodePredict = 1U << 4;
constexpr Asked kNongemm = 1U << 5;
constexpr Asked kNongemmResults = 1U << 6;
constexpr Asked kMerge = 1U << 7;

constexpr Asked kDecodes = kDecode | kDecodeResults | kDecodePredict;
constexpr Asked kResults = kDeviceResults | kDecodeResults | kNongemmResults;
constexpr Asked kMeasures = kDevice | kDecode | kNongemm;
constexpr Asked kAll = kMeasures | kResults | kDecodePredict | kMerge;

constexpr std::array<std::string_view, 8> kNames{"bench device",
                                                 "bench device --results",
                                                 "bench decode",
                                                 "bench decode --results",
                                                 "bench decode --predict",
                                                 "bench nongemm",
                                                 "bench nongemm --results",
                                                 "bench merge"};

struct Belongs {
  std::string_view flag;
  Asked asked;
};

constexpr std::array kBelongs{Belongs{"on", kMeasures},
                              Belongs{"quick", kMeasures},
                              Belongs{"seconds", kMeasures},
                              Belongs{"threads", kMeasures},
                              Belongs{"models", kNongemm},
                              Belongs{"engine", kDevice | kNongemm | kDecodePredict},
                              Belongs{"fuse", kNongemm},
                              Belongs{"quantize", kNongemm},
                              Belongs{"decode", kNongemm},
                              Belongs{"composed", kNongemm},
                              Belongs{"keep", kDecode | kNongemm},
                              Belongs{"results", kResults},
                              Belongs{"layers", kDecode | kDecodeResults},
                              Belongs{"seed", kDevice},
                              Belongs{"save-calibration", kDevice},
                              Belongs{"calibration", kDevice | kDeviceResults | kDecodes},
                              Belongs{"predict", kDecodePredict},
                              Belongs{"device", kDecodePredict},
                              Belongs{"context", kDecodes},
                              Belongs{"batches", kDecodes | kNongemm},
                              Belongs{"points", kDecodePredict},
                              Belongs{"counters", kDecodes},
                              Belongs{"dtype", kDevice | kDecodes | kNongemm},
                              Belongs{"html", kDecodes | kNongemm | kNongemmResults | kMerge},
                              Belongs{"json", kAll},
                              Belongs{"output", kAll},
                              Belongs{"quiet", kAll},
                              Belongs{"no-color", kAll},
                              Belongs{"help", kAll}};

Asked asked_by(const Words& words) {
  const std::string& what = words.operands.front();
  const bool is_results = words.has("results");
  if (what == "device") return is_results ? kDeviceResults : kDevice;
  if (what == "nongemm") return is_results ? kNongemmResults : kNongemm;
  if (what == "merge") return kMerge;
  if (words.has("predict")) return kDecodePredict;
  return is_results ? kDecodeResults : kDecode;
}

// "bench decode --predict, bench nongemm"; a question in all of its ways is named once, as the way
// that is its first bit.
std::string names_of(Asked asked) {
  for (const Asked question : {kDevice | kDeviceResults, kDecodes, kNongemm | kNongemmResults}) {
    if ((asked & question) == question) asked &= ~(question & (question - 1));
  }
  std::string names;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if ((asked >> i & 1U) == 0) continue;
    names += (names.empty() ? "" : ", ") + std::string(kNames[i]);
  }
  return names;
}

}  // namespace

Result<void> check_bench_flags(const Words& words) {
  const Asked asked = asked_by(words);
  for (const auto& [flag, value] : words.flags) {
    const auto* const known = std::ranges::find(kBelongs, flag, &Belongs::flag);
    const Asked belongs = known == kBelongs.end() ? 0 : known->asked;
    if ((belongs & asked) != 0) continue;
    return Error{ErrorCode::usage,
                 "--" + flag + " is for " + names_of(belongs) + "; this is " + names_of(asked),
                 {},
                 "without --" + flag + "; `headroom help bench` says what each flag is for"};
  }
  return {};
}

}  // namespace headroom::cli

// What the C ABI tells, as values: for the tests and the benchmarks that drive it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/abi.h"

namespace headroom::runtime::fake {

inline headroom_statistics statistics(int device = 0) {
  headroom_statistics s{};
  s.struct_bytes = sizeof s;
  headroom_get_statistics(device, &s);
  return s;
}

inline std::string report() {
  std::string text(static_cast<size_t>(headroom_report(nullptr, 0)) + 1, '\0');
  headroom_report(text.data(), static_cast<int64_t>(text.size()));
  text.resize(text.find('\0'));
  return text;
}

// How many guests there were (memory/plan/lending.h), by the plan that served last.
inline int64_t guests() {
  const std::string key = "\"guests\": ";
  const std::string text = report();
  const size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + key.size());
}

}  // namespace headroom::runtime::fake

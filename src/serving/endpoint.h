// Where a server is: "http://host:8000", with what may stand behind it.
//
// Refused: other schemes, a user or password (they would be printed), a query, control characters.
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace headroom::serving {

enum class Api : uint8_t { completions, chat };
[[nodiscard]] std::string_view name_of(Api api);

struct Endpoint {
  std::string base;  // without a slash at its end, and without /v1
  [[nodiscard]] std::string completions() const { return base + "/v1/completions"; }
  [[nodiscard]] std::string chat() const { return base + "/v1/chat/completions"; }
  [[nodiscard]] std::string of(Api api) const { return api == Api::chat ? chat() : completions(); }
  [[nodiscard]] std::string models() const { return base + "/v1/models"; }
  [[nodiscard]] std::string metrics() const { return base + "/metrics"; }
};

Result<Endpoint> parse_endpoint(std::string_view url);

}  // namespace headroom::serving

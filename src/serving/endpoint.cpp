#include "serving/endpoint.h"

#include <algorithm>

namespace headroom::serving {
namespace {

Error refused(std::string_view url, std::string why) {
  // What stands before an @ may be a secret.
  const size_t at = url.rfind('@');
  const std::string shown(url.substr(at == std::string_view::npos ? 0 : at + 1).substr(0, 80));
  return Error{ErrorCode::usage,
               "'" + shown + "' is not a server that --url takes: " + why,
               {},
               "http://localhost:8000"};
}

}  // namespace

std::string_view name_of(Api api) { return api == Api::chat ? "chat" : "completions"; }

Result<Endpoint> parse_endpoint(std::string_view url) {
  constexpr size_t kMostBytes = 2000;
  const bool has_scheme = url.starts_with("http://") || url.starts_with("https://");
  if (!has_scheme) return refused(url, "it begins with neither http:// nor https://");
  if (url.size() > kMostBytes) return refused(url, "it is too long");
  const auto is_odd = [](char c) { return c <= ' ' || c == 0x7f || c == '"' || c == '\\'; };
  if (std::any_of(url.begin(), url.end(), is_odd)) return refused(url, "odd characters");
  const size_t host_at = url.find("//") + 2;
  const std::string_view host = url.substr(host_at, url.find('/', host_at) - host_at);
  if (url.find('@') != std::string_view::npos) {
    return refused(url, "a key belongs into the variable HEADROOM_API_KEY, not here");
  }
  if (host.empty() || host.front() == ':') return refused(url, "it names no host");
  if (url.find_first_of("?#") != std::string_view::npos) return refused(url, "a query or fragment");
  while (url.ends_with('/')) url.remove_suffix(1);
  if (url.ends_with("/v1")) url.remove_suffix(3);
  return Endpoint{std::string(url)};
}

}  // namespace headroom::serving

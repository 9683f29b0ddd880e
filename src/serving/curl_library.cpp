#include "serving/curl_library.h"

#include <dlfcn.h>

namespace headroom::serving {
namespace {

constexpr unsigned kOldest = 0x075500;  // 7.85: CURLOPT_PROTOCOLS_STR

Error missing(const char* what) {
  return {ErrorCode::unavailable, what, {}, "install libcurl 7.85 or later (Debian: libcurl4)"};
}

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Result<CurlLibrary> load() {
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) return missing("asking a server needs libcurl, which is not here");
  CurlLibrary curl;
  decltype(&curl_version_info) version = nullptr;
  decltype(&curl_global_init) start = nullptr;
  const bool has_all = find(library, "curl_version_info", version) &&
                       find(library, "curl_global_init", start) &&
                       find(library, "curl_easy_cleanup", curl.easy_cleanup) &&
                       find(library, "curl_easy_getinfo", curl.easy_getinfo) &&
                       find(library, "curl_easy_init", curl.easy_init) &&
                       find(library, "curl_easy_setopt", curl.easy_setopt) &&
                       find(library, "curl_easy_strerror", curl.easy_strerror) &&
                       find(library, "curl_multi_add_handle", curl.multi_add_handle) &&
                       find(library, "curl_multi_cleanup", curl.multi_cleanup) &&
                       find(library, "curl_multi_info_read", curl.multi_info_read) &&
                       find(library, "curl_multi_init", curl.multi_init) &&
                       find(library, "curl_multi_remove_handle", curl.multi_remove_handle) &&
                       find(library, "curl_multi_setopt", curl.multi_setopt) &&
                       find(library, "curl_multi_socket_action", curl.multi_socket_action) &&
                       find(library, "curl_slist_append", curl.slist_append) &&
                       find(library, "curl_slist_free_all", curl.slist_free_all);
  if (!has_all || version(CURLVERSION_NOW)->version_num < kOldest) {
    return missing("asking a server needs a later libcurl than the one here");
  }
  if (start(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return Error{ErrorCode::unavailable, "libcurl does not start", {}, {}};
  }
  return curl;
}

}  // namespace

const Result<CurlLibrary>& CurlLibrary::loaded() {
  static const Result<CurlLibrary> library = load();
  return library;
}

}  // namespace headroom::serving

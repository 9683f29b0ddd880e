// libcurl, loaded when the first request is made.
//
// Why not linked: libcurl brings some thirty libraries along, whose loading would add 5 ms to every
// command of Headroom, most of which ask no server anything
// (docs/measurements/2026-11-22-fit-start). The functions are called as libcurl's own are, through
// the pointers of this table.
#pragma once

#include <curl/curl.h>

#include "base/result.h"

namespace headroom::serving {

struct CurlLibrary {
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_multi_add_handle) multi_add_handle = nullptr;
  decltype(&curl_multi_cleanup) multi_cleanup = nullptr;
  decltype(&curl_multi_info_read) multi_info_read = nullptr;
  decltype(&curl_multi_init) multi_init = nullptr;
  decltype(&curl_multi_remove_handle) multi_remove_handle = nullptr;
  decltype(&curl_multi_setopt) multi_setopt = nullptr;
  decltype(&curl_multi_socket_action) multi_socket_action = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;

  // The one table of the process, which is never unloaded. An Error (unavailable) that says what to
  // install where there is no libcurl, or one before 7.85. Thread-safe.
  static const Result<CurlLibrary>& loaded();
};

}  // namespace headroom::serving

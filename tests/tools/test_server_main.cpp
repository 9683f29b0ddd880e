// The test server as a program: prints its address, serves until it is ended by SIGTERM or SIGINT,
// and then prints what it did, as one line of JSON.
//
//   headroom_test_server [NAME=VALUE ...]     the names of TestServerOptions
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "serving/testing/test_server.h"
#include "text/json.h"
#include "text/parse_number.h"

namespace {

using headroom::testing::ServedRequest;
using headroom::testing::TestServer;
using headroom::testing::TestServerOptions;

template <typename T>
bool take(std::string_view name, std::string_view word, std::string_view value, T& field) {
  if (name != word) return false;
  const auto number = headroom::text::parse_number<double>(value);
  if (!number) {
    std::fprintf(stderr, "not a number: %s\n", std::string(value).c_str());
    std::exit(2);
  }
  field = static_cast<T>(*number);
  return true;
}

void read_word(std::string_view word, TestServerOptions& o) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view("1") : word.substr(equals + 1);
  if (name == "api_key") {
    o.api_key = value;
    return;
  }
  const auto is = [&](std::string_view option, auto& field) {
    return take(name, option, value, field);
  };
  const bool is_known =
      is("port", o.port) || is("base_ms", o.base_ms) || is("per_sequence_ms", o.per_sequence_ms) ||
      is("bend_ms", o.bend_ms) || is("kv_us", o.kv_us) || is("prefill_us", o.prefill_us) ||
      is("noise", o.noise) || is("max_running", o.max_running) || is("kv_tokens", o.kv_tokens) ||
      is("tokens_per_chunk", o.tokens_per_chunk) || is("has_all_fields", o.has_all_fields) ||
      is("chunks_per_write", o.chunks_per_write) || is("seed", o.seed) || is("good", o.good) ||
      is("refuse_every", o.refuse_every) || is("error_every", o.error_every) ||
      is("cut_every", o.cut_every) || is("malformed_every", o.malformed_every) ||
      is("stall_every", o.stall_every) || is("die_after", o.die_after) || is("hangs", o.hangs) ||
      is("redirects", o.redirects) || is("has_usage", o.has_usage) ||
      is("has_metrics", o.has_metrics) || is("has_completions", o.has_completions) ||
      is("takes_ignore_eos", o.takes_ignore_eos) || is("absurd_metrics", o.absurd_metrics) ||
      is("caches_prefixes", o.caches_prefixes) || is("has_cached_usage", o.has_cached_usage);
  if (is_known) return;
  std::fprintf(stderr, "no option '%s'\n", std::string(name).c_str());
  std::exit(2);
}

headroom::text::Json summary_of(const TestServer& server) {
  int64_t whole = 0;
  int64_t tokens = 0;
  for (const ServedRequest& record : server.records()) {
    whole += record.is_whole ? 1 : 0;
    tokens += record.tokens;
  }
  return headroom::text::Json::object()
      .set("requests", static_cast<int64_t>(server.records().size()))
      .set("whole", whole)
      .set("tokens", tokens)
      .set("most_late_ms", server.most_late_seconds() * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  TestServerOptions options;
  for (int i = 1; i < argc; ++i) read_word(argv[i], options);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);  // before the thread, which inherits it
  const auto server = TestServer::start(options);
  std::printf("%s\n", server->url().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
  server->stop();
  std::printf("%s\n", summary_of(*server).dump().c_str());
  return 0;
}

// Hundreds of HTTP requests at once on one thread, each read as its bytes arrive.
//
// libcurl's multi_socket interface on epoll; the only file that makes requests with it. A stream's
// bytes and its end are handed to its handler inside turn(), with the moment at which epoll
// reported them; handlers may start and cancel streams in on_end, not in on_bytes.
//
// What is refused or bounded: redirects are not followed; proxies of the environment are not used
// (they would be what is measured); headers end at 256 KiB, a body at its own limit; a stream
// without a byte for stall_seconds, or that is older than most_seconds, ends.
//
// The lag of the generator itself: when epoll returns at once, what it reports may have waited
// since it returned before. That time bounds how late the stamps are.
//
// Not thread-safe. libcurl keeps connections open between the streams of one object.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom::serving {

using Clock = std::chrono::steady_clock;

struct HttpRequest {
  std::string url;
  std::string body;  // empty: GET; else POST of application/json
  std::string api_key;
  double connect_seconds = 5;
  double stall_seconds = 30;
  double most_seconds = 600;
  size_t most_bytes = size_t{64} << 20;
};

enum class HttpFault : uint8_t { none, connect, stall, cut, too_large, refused, other };

struct HttpEnd {
  HttpFault fault = HttpFault::none;
  long status = 0;    // 0: no answer came
  std::string words;  // of what went wrong
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Bytes of the body. False ends the stream, with the fault `refused`.
  virtual bool on_bytes(std::string_view bytes, long status, Clock::time_point arrived) = 0;
  virtual void on_end(const HttpEnd& end, Clock::time_point at) = 0;
};

// How late stamps may be, over the bytes that came since the last reset.
struct GeneratorLag {
  double mean_seconds = 0;
  double p99_seconds = 0;  // by buckets that are 20 % wide
  double most_seconds = 0;
  double busy_share = 0;  // of the time, not waiting for the network
};

class HttpStreams {
 public:
  // An Error where the system gives no epoll, or libcurl is not here or does not start.
  static Result<std::unique_ptr<HttpStreams>> make();
  ~HttpStreams();
  HttpStreams(const HttpStreams&) = delete;
  HttpStreams& operator=(const HttpStreams&) = delete;

  using Id = uint64_t;
  // `handler` must live until its on_end() or cancel().
  Id start(const HttpRequest& request, HttpHandler& handler);
  // Ends a stream and its connection without on_end(). An id that has ended is passed over.
  void cancel(Id id);
  // Waits for the network until `deadline` at most, once, and hands out what came.
  void turn(Clock::time_point deadline);
  [[nodiscard]] size_t running() const;

  void reset_lag();
  [[nodiscard]] GeneratorLag lag() const;

 private:
  struct State;
  explicit HttpStreams(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headroom::serving

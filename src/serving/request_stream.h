// One request after another on one stream of HttpStreams: sent, read as it arrives, and judged.
//
// What the answer was, and what went wrong, becomes a RequestRecord, which is handed to the owner
// at its end. Stays where it is while a request is open; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serving/http_streams.h"
#include "serving/server.h"
#include "serving/sse.h"

namespace headroom::serving {

enum class Failure : uint8_t {
  none,
  connect,    // no connection
  status,     // refused, by an HTTP status
  redirect,   // to elsewhere; not followed
  stall,      // nothing came for too long
  cut,        // ended before its answer did
  malformed,  // no event stream, or an event that is not JSON
  server,     // an error in the stream, in the server's words
  too_large,  // more than was asked for
};
inline constexpr size_t kFailures = 9;
[[nodiscard]] std::string_view name_of(Failure failure);

// One request. Times in seconds since the run began.
struct RequestRecord {
  int64_t slot = 0;
  int64_t input_asked = 0;
  int64_t output_asked = 0;
  bool is_initial = false;  // began in the middle of its life
  bool is_finished = false;
  Failure failure = Failure::none;
  double began = 0;
  double ended = 0;             // where it is finished or failed
  double first_visible = -1;    // negative: none came
  std::vector<double> arrived;  // of each chunk with tokens
  std::optional<int64_t> prompt_tokens = std::nullopt;
  std::optional<int64_t> completion_tokens = std::nullopt;
  std::optional<int64_t> cached_tokens = std::nullopt;  // of the prompt
};

// What all streams of a run share. What it points to must outlive them.
struct RequestRun {
  HttpStreams* streams = nullptr;
  const Server* server = nullptr;
  double stall_seconds = 60;
  Clock::time_point began = Clock::now();
  [[nodiscard]] double seconds(Clock::time_point at) const {
    return std::chrono::duration<double>(at - began).count();
  }
  [[nodiscard]] double now() const { return seconds(Clock::now()); }
};

class RequestStream : public HttpHandler {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // A chunk with tokens came, so long after the one before; negative: the first.
    virtual void on_chunk(double at, double gap) = 0;
    // `words`: of a failure. The stream may be started again at once.
    virtual void on_done(RequestStream& stream, RequestRecord record, std::string words,
                         Clock::time_point at) = 0;
  };

  RequestStream(const RequestRun& run, Owner& owner) : run_(&run), owner_(&owner) {}
  bool on_bytes(std::string_view bytes, long status, Clock::time_point arrived) override;
  void on_end(const HttpEnd& end, Clock::time_point at) override;

  // REQUIRES: no request is open. `record` has what is known beforehand.
  void start(RequestRecord record, const std::string& prompt);
  void cancel();
  // The record of a request that is still open.
  [[nodiscard]] const RequestRecord* in_flight() const;

 private:
  bool fail(Failure failure, std::string words);
  bool take(std::string_view data, double at);
  void find_failure(const HttpEnd& end);

  const RequestRun* run_;
  Owner* owner_;
  bool is_open_ = false;
  HttpStreams::Id id_ = 0;
  RequestRecord record_;
  SseParser parser_;
  std::string refusal_;  // the body of an answer that is not 200
  std::string words_;    // of the failure
  bool is_done_ = false;
  bool is_finish_ = false;
};

}  // namespace headroom::serving

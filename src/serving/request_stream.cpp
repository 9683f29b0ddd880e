#include "serving/request_stream.h"

#include <algorithm>
#include <utility>

#include "serving/completion_chunk.h"
#include "text/utf8.h"

namespace headroom::serving {
namespace {

constexpr size_t kMostRefusalBytes = size_t{64} << 10;
constexpr size_t kMostChunkBytes = 16384;  // of one token's event, generously

Failure failure_of(const HttpEnd& end) {
  switch (end.fault) {
    case HttpFault::none:
      break;
    case HttpFault::connect:
      return Failure::connect;
    case HttpFault::stall:
      return Failure::stall;
    case HttpFault::too_large:
      return Failure::too_large;
    case HttpFault::cut:
    case HttpFault::refused:
    case HttpFault::other:
      return Failure::cut;
  }
  if (end.status >= 300 && end.status < 400) return Failure::redirect;
  return end.status == 200 ? Failure::none : Failure::status;
}

}  // namespace

void RequestStream::start(RequestRecord record, const std::string& prompt) {
  HEADROOM_CHECK(!is_open_, "one request at a time");
  record_ = std::move(record);
  parser_ = {};
  refusal_.clear();
  words_.clear();
  is_done_ = is_finish_ = false;
  const Server& server = *run_->server;
  HttpRequest request;
  request.url = server.endpoint.of(server.api);
  request.body = completion_body(server, prompt, record_.output_asked);
  request.api_key = server.api_key;
  request.stall_seconds = run_->stall_seconds;
  request.most_seconds = 24 * 3600;  // a stall is noticed, and the run is over long before
  request.most_bytes =
      kMostRefusalBytes + kMostChunkBytes * (static_cast<size_t>(record_.output_asked) + 16);
  record_.began = run_->now();
  is_open_ = true;
  id_ = run_->streams->start(request, *this);
}

void RequestStream::cancel() {
  if (is_open_) run_->streams->cancel(id_);
  is_open_ = false;
}

const RequestRecord* RequestStream::in_flight() const {
  return is_open_ && record_.failure == Failure::none ? &record_ : nullptr;
}

bool RequestStream::fail(Failure failure, std::string words) {
  if (record_.failure == Failure::none) {
    record_.failure = failure;
    words_ = std::move(words);
  }
  return false;
}

bool RequestStream::take(std::string_view data, double at) {
  const CompletionChunk chunk = read_completion_chunk(data);
  if (chunk.is_malformed) return fail(Failure::malformed, "an event that is not JSON");
  if (chunk.error)
    return fail(Failure::server, "it answers: " + told_by(*run_->server, *chunk.error));
  is_done_ = is_done_ || chunk.is_end;
  is_finish_ = is_finish_ || chunk.is_finish;
  if (chunk.prompt_tokens) record_.prompt_tokens = chunk.prompt_tokens;
  if (chunk.cached_tokens) record_.cached_tokens = chunk.cached_tokens;
  if (chunk.completion_tokens) record_.completion_tokens = chunk.completion_tokens;
  if (!chunk.has_token) return true;
  const auto most = static_cast<size_t>(record_.output_asked) * 4 + 64;
  if (record_.arrived.size() >= most) return fail(Failure::too_large, "more than was asked for");
  const double gap = record_.arrived.empty() ? -1 : at - record_.arrived.back();
  record_.arrived.push_back(at);
  if (chunk.is_visible && record_.first_visible < 0) record_.first_visible = at;
  owner_->on_chunk(at, gap);
  return true;
}

bool RequestStream::on_bytes(std::string_view bytes, long status, Clock::time_point arrived) {
  if (status != 200) {
    refusal_ += bytes.substr(0, kMostRefusalBytes - std::min(kMostRefusalBytes, refusal_.size()));
    return true;
  }
  const double at = run_->seconds(arrived);
  bool goes_on = true;
  const bool is_read =
      parser_.feed(bytes, [&](std::string_view data) { goes_on = goes_on && take(data, at); });
  if (!is_read) return fail(Failure::malformed, "an event that is too long");
  return goes_on;
}

// Why a request whose stream gave no failure has failed all the same, if it has.
void RequestStream::find_failure(const HttpEnd& end) {
  const Failure failure = failure_of(end);
  std::string words = end.words;
  if (failure == Failure::status || failure == Failure::redirect) {
    words = "it answers " + std::to_string(end.status);
    // Of a key that it does not take the server may repeat a part.
    const bool is_of_key = end.status == 401 || end.status == 403;
    const std::string said = is_of_key ? "" : told_by(*run_->server, error_words(refusal_));
    if (!said.empty()) words += ": " + said;
  }
  if (failure != Failure::none) {
    fail(failure, std::move(words));
  } else if (record_.arrived.empty()) {
    fail(Failure::malformed, "an answer that streams no token");
  } else if (!is_done_ && !is_finish_) {
    fail(Failure::cut, "the answer ended before its end was told");
  }
}

void RequestStream::on_end(const HttpEnd& end, Clock::time_point at) {
  is_open_ = false;
  if (record_.failure == Failure::none) find_failure(end);
  record_.ended = run_->seconds(at);
  record_.is_finished = record_.failure == Failure::none;
  owner_->on_done(*this, std::exchange(record_, {}), std::move(words_), at);
}

std::string_view name_of(Failure failure) {
  constexpr std::array<std::string_view, kFailures> kNames = {
      "none", "connect", "status", "redirect", "stall", "cut", "malformed", "server", "too_large"};
  return kNames[static_cast<size_t>(failure)];
}

}  // namespace headroom::serving

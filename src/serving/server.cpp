#include "serving/server.h"

#include <algorithm>

#include "serving/completion_chunk.h"
#include "serving/sse.h"
#include "text/json.h"
#include "text/utf8.h"

namespace headroom::serving {
namespace {

constexpr double kProbeSeconds = 60;
constexpr double kMetricsSeconds = 5;
constexpr size_t kMostMetricsBytes = size_t{16} << 20;
constexpr size_t kMostProbeBytes = size_t{4} << 20;

class Collector : public HttpHandler {
 public:
  bool on_bytes(std::string_view bytes, long /*status*/, Clock::time_point /*at*/) override {
    fetched.body += bytes;
    return true;
  }
  void on_end(const HttpEnd& end, Clock::time_point /*at*/) override {
    fetched.end = end;
    is_done = true;
  }
  Fetched fetched;
  bool is_done = false;
};

Error unavailable(const Endpoint& endpoint, std::string words, std::string hint = {}) {
  return Error{ErrorCode::unavailable, std::move(words), endpoint.base, std::move(hint)};
}

// A refusal or a failure as an Error; nothing where the answer is whole.
std::optional<Error> error_of(const Server& server, const Fetched& fetched) {
  const Endpoint& endpoint = server.endpoint;
  const HttpEnd& end = fetched.end;
  if (end.fault == HttpFault::connect) {
    return unavailable(endpoint, "no server answers there: " + end.words, "is it started?");
  }
  if (end.fault != HttpFault::none) return unavailable(endpoint, end.words);
  if (end.status == 200) return std::nullopt;
  const std::string status = std::to_string(end.status);
  if (end.status >= 300 && end.status < 400) {
    return unavailable(endpoint, "it redirects elsewhere (" + status + "), which is not followed",
                       "give the address that it redirects to");
  }
  if (end.status == 401 || end.status == 403) {
    return unavailable(endpoint, "it refuses us (" + status + ")",
                       server.api_key.empty() ? "put its key into the variable HEADROOM_API_KEY"
                                              : "HEADROOM_API_KEY has no key that it takes");
  }
  std::string words = "it answers " + status;
  const std::string said = told_by(server, error_words(fetched.body));
  if (!said.empty()) words += ": " + said;
  return unavailable(endpoint, words);
}

HttpRequest request_to(const Server& server, std::string url) {
  HttpRequest request;
  request.url = std::move(url);
  request.api_key = server.api_key;
  request.stall_seconds = kProbeSeconds;
  request.most_seconds = kProbeSeconds;
  request.most_bytes = kMostProbeBytes;
  return request;
}

// The first model that the server names.
Result<std::string> first_model(HttpStreams& streams, const Server& server) {
  const Fetched fetched = fetch(streams, request_to(server, server.endpoint.models()));
  if (auto error = error_of(server, fetched)) {
    if (fetched.end.status == 404) error->hint = "name the model that it serves: --served-model";
    return *std::move(error);
  }
  HEADROOM_ASSIGN(const text::Json json, text::parse_json(fetched.body, server.endpoint.models()));
  const text::JsonView view(json, server.endpoint.models());
  HEADROOM_ASSIGN(const auto models, view.get_array("data", 10'000));
  if (models.empty()) return unavailable(server.endpoint, "it serves no model");
  HEADROOM_ASSIGN(std::string id, models.front().get_string("id"));
  // It goes into the body of every request.
  constexpr size_t kMostName = 1024;
  if (!id.empty() && id.size() <= kMostName) return id;
  return unavailable(server.endpoint, "it gives its model no usable name",
                     "name the model that it serves: --served-model");
}

struct Answered {
  std::optional<Error> error;
  long status = 0;
  PromptProbe probe;
};

// One short streamed answer, and what its usage says of the prompt.
Answered answer_to(HttpStreams& streams, const Server& server, int64_t words, uint64_t seed) {
  constexpr int64_t kProbeTokens = 4;
  HttpRequest request = request_to(server, server.endpoint.of(server.api));
  request.body =
      completion_body(server, prompt_of(words, seed, ~uint64_t{0} - words), kProbeTokens);
  const Fetched fetched = fetch(streams, request);
  Answered answered{error_of(server, fetched), fetched.end.status, {words, 0}};
  if (answered.error) return answered;
  SseParser parser;
  bool has_token = false;
  std::optional<int64_t> tokens;
  std::string said;
  parser.feed(fetched.body, [&](std::string_view data) {
    const CompletionChunk chunk = read_completion_chunk(data);
    has_token = has_token || chunk.has_token;
    if (chunk.prompt_tokens) tokens = chunk.prompt_tokens;
    if (chunk.error) said = *chunk.error;
  });
  if (!said.empty()) {
    answered.error = unavailable(server.endpoint, "it answers: " + told_by(server, said));
  } else if (!has_token) {
    answered.error = unavailable(server.endpoint, "its answer streams no token");
  } else if (!tokens) {
    answered.error =
        unavailable(server.endpoint, "its answer has no usage, by which tokens are counted",
                    "the server must know \"stream_options\": {\"include_usage\": true}");
  }
  answered.probe.tokens = tokens.value_or(0);
  return answered;
}

// The first of the ways to ask that the server takes.
Result<PromptProbe> find_way(HttpStreams& streams, Server& server, int64_t words, uint64_t seed) {
  std::optional<Error> first;
  for (const Api api : {Api::completions, Api::chat}) {
    for (const bool ignores_eos : {true, false}) {
      server.api = api;
      server.ignores_eos = ignores_eos;
      Answered answered = answer_to(streams, server, words, seed);
      if (!answered.error) return answered.probe;
      const long status = answered.status;
      if (!first || (first && status == 400)) first = std::move(answered.error);
      const bool is_missing = status == 404 || status == 405;
      const bool is_refusal = status == 400 || status == 422;
      if (is_missing) break;
      if (!is_refusal) return *std::move(first);
    }
  }
  return *std::move(first);
}

}  // namespace

std::string told_by(const Server& server, std::string words) {
  constexpr std::string_view kInItsPlace = "***";
  const std::string& key = server.api_key;
  for (size_t at = 0; !key.empty() && (at = words.find(key, at)) != std::string::npos;) {
    words.replace(at, key.size(), kInItsPlace);
    at += kInItsPlace.size();
  }
  return text::printable(words);
}

Result<std::string> fetch_metrics(HttpStreams& streams, const Endpoint& endpoint,
                                  const std::string& api_key) {
  Server server;
  server.endpoint = endpoint;
  server.api_key = api_key;
  HttpRequest request = request_to(server, endpoint.metrics());
  request.stall_seconds = request.most_seconds = kMetricsSeconds;
  request.most_bytes = kMostMetricsBytes;
  Fetched fetched = fetch(streams, request);
  auto error = error_of(server, fetched);
  if (!error) return std::move(fetched.body);
  if (fetched.end.status == 404) {
    error->hint = "vLLM gives them at /metrics; SGLang where it is started with --enable-metrics";
  }
  return *std::move(error);
}

Fetched fetch(HttpStreams& streams, const HttpRequest& request) {
  Collector collector;
  const HttpStreams::Id id = streams.start(request, collector);
  const auto deadline = Clock::now() + std::chrono::milliseconds(
                                           static_cast<int64_t>(request.most_seconds * 1e3) + 2000);
  while (!collector.is_done && Clock::now() < deadline) streams.turn(deadline);
  if (!collector.is_done) {
    streams.cancel(id);
    collector.fetched.end = {HttpFault::stall, 0, "nothing came for too long"};
  }
  return std::move(collector.fetched);
}

std::string completion_body(const Server& server, const std::string& prompt,
                            int64_t output_tokens) {
  std::string body = "{\"model\":" + text::quote_json(server.model);
  if (server.api == Api::chat) {
    body += ",\"messages\":[{\"role\":\"user\",\"content\":" + text::quote_json(prompt) + "}]";
  } else {
    body += ",\"prompt\":" + text::quote_json(prompt);
  }
  body += ",\"max_tokens\":";
  body += std::to_string(output_tokens);
  body += ",\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true}";
  if (server.ignores_eos) body += ",\"ignore_eos\":true";
  return body + "}";
}

Result<Server> probe_server(HttpStreams& streams, const ServerQuestion& question) {
  Server server;
  server.endpoint = question.endpoint;
  server.api_key = question.api_key;
  server.model = question.model;
  if (server.model.empty()) {
    HEADROOM_ASSIGN(server.model, first_model(streams, server));
  }
  const int64_t words = std::clamp<int64_t>(question.input_tokens, 16, 4096);
  HEADROOM_ASSIGN(const PromptProbe shorter, find_way(streams, server, words / 2, question.seed));
  Answered longer = answer_to(streams, server, words, question.seed);
  if (longer.error) return *std::move(longer.error);
  HEADROOM_ASSIGN(server.prompt_law, fit_prompt_law(shorter, longer.probe));
  HttpRequest metrics = request_to(server, server.endpoint.metrics());
  metrics.most_seconds = kMetricsSeconds;
  server.has_metrics = fetch(streams, metrics).end.status == 200;
  return server;
}

}  // namespace headroom::serving

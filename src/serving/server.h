// A running OpenAI-compatible server: what must be known of it before it is put under load.
//
// probe_server() asks for its models, streams two short answers of different prompts, and looks
// for /metrics. It finds which of the two paths the server has, whether it takes `ignore_eos`
// (an extension of vLLM and SGLang that keeps answers from ending early), and how it counts
// prompts. Blocking, bounded by a few timeouts; not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "serving/endpoint.h"
#include "serving/http_streams.h"
#include "serving/prompt.h"

namespace headroom::serving {

struct Server {
  Endpoint endpoint;
  Api api = Api::completions;
  std::string model;
  std::string api_key;  // never printed, never stored
  bool ignores_eos = true;
  bool has_metrics = false;
  PromptLaw prompt_law;
};

struct ServerQuestion {
  Endpoint endpoint;
  std::string model;  // empty: the first that the server names
  std::string api_key;
  uint64_t seed = 0;
  int64_t input_tokens = 161;  // about which prompts will be
};

Result<Server> probe_server(HttpStreams& streams, const ServerQuestion& question);

// The body that asks for a streamed answer of so many tokens, with its usage.
[[nodiscard]] std::string completion_body(const Server& server, const std::string& prompt,
                                          int64_t output_tokens);

// What the server said, for people: harmless, and without the key where it repeats that.
[[nodiscard]] std::string told_by(const Server& server, std::string words);

// The text at /metrics. Blocking, five seconds at most; an Error where the server does not give it.
Result<std::string> fetch_metrics(HttpStreams& streams, const Endpoint& endpoint,
                                  const std::string& api_key);

struct Fetched {
  HttpEnd end;
  std::string body;
};
// One request, waited for.
[[nodiscard]] Fetched fetch(HttpStreams& streams, const HttpRequest& request);

}  // namespace headroom::serving

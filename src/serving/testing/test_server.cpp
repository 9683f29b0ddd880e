#include "serving/testing/test_server.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <random>
#include <set>
#include <string_view>
#include <thread>

#include "text/json.h"

namespace headroom::testing {
namespace {

using text::Json;

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::exit(EXIT_FAILURE);
}

std::string with_head(std::string_view status, std::string_view type, const std::string& body) {
  return "HTTP/1.1 " + std::string(status) + "\r\nContent-Type: " + std::string(type) +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

int64_t words_in(std::string_view text) {
  int64_t words = 0;
  bool is_word = false;
  for (const char c : text) {
    if (c != ' ' && !is_word) ++words;
    is_word = c != ' ';
  }
  return words;
}

// Whole blocks of words that the prompt shares with one that was read: with a neighbour of it in
// order. The prompt itself is read then.
int64_t cached_of(std::string_view prompt, std::set<std::string>& read) {
  constexpr int64_t kBlock = 16;
  const auto words_alike = [&](std::string_view other) {
    const auto [at, other_at] = std::ranges::mismatch(prompt, other);
    const auto same = static_cast<size_t>(at - prompt.begin());
    // A word that only begins alike does not count.
    const bool is_whole =
        (at == prompt.end() || *at == ' ') && (other_at == other.end() || *other_at == ' ');
    return words_in(prompt.substr(0, same)) -
           (is_whole || same == 0 || prompt[same - 1] == ' ' ? 0 : 1);
  };
  const auto [own, is_new] = read.emplace(prompt);
  int64_t words = is_new ? 0 : words_in(prompt) - 1;
  if (own != read.begin()) words = std::max(words, words_alike(*std::prev(own)));
  if (std::next(own) != read.end()) words = std::max(words, words_alike(*std::next(own)));
  return std::min(words, words_in(prompt) - 1) / kBlock * kBlock;
}

std::string event(const std::string& data) {
  const std::string line = "data: " + data + "\n\n";
  std::array<char, 24> size{};
  std::snprintf(size.data(), size.size(), "%zx\r\n", line.size());
  return size.data() + line + "\r\n";
}

std::string counter(std::string_view name, double value) {
  return "vllm:" + std::string(name) + "{model_name=\"test\"} " + std::to_string(value) + "\n";
}

enum class Fault : uint8_t { none, error, cut, malformed, stall };

struct Sequence {
  size_t record = 0;
  bool is_chat = false;
  bool wants_usage = false;
  Fault fault = Fault::none;
  int64_t prompt = 0;
  int64_t cached = 0;  // of it
  int64_t asked = 1;
  int64_t written = 0;
  int64_t unsent = 0;  // tokens that wait for their chunk
};

// The event of the tokens that wait for it, of a chat or not, with all fields or as short as can
// be.
std::string token_event(const Sequence& sequence, bool is_last, bool has_all_fields) {
  std::string words;
  for (int64_t i = 0; i < sequence.unsent; ++i) words += " word";
  const std::string text =
      sequence.is_chat ? R"("delta":{"content":")" + words + "\"}" : "\"text\":\"" + words + "\"";
  const std::string finish = R"("finish_reason":)" + std::string(is_last ? "\"length\"" : "null");
  if (!has_all_fields) return event(R"({"choices":[{"index":0,)" + text + "," + finish + "}]}");
  const std::string kind = sequence.is_chat ? "chat.completion.chunk" : "text_completion";
  return event(R"({"id":"cmpl-0123456789abcdef0123456789abcdef","object":")" + kind +
               R"(","created":1700000000,"model":"test","choices":[{"index":0,)" + text +
               R"(,"logprobs":null,)" + finish + R"(,"stop_reason":null}],"usage":null})");
}

struct Connection {
  int fd = -1;
  std::string in;
  std::string out;
  bool is_held_up = false;  // waits for room to send
  bool is_closing = false;
  bool is_running = false;
  std::optional<Sequence> sequence;
};

}  // namespace

struct TestServer::State {
  TestServerOptions options;
  int listener = -1, epoll = -1, timer = -1, stopper = -1, port = 0;
  std::map<int, Connection> connections;
  std::list<int> waiting;    // descriptors, in order
  std::vector<int> running;  // in order of admission
  std::vector<ServedRequest> records;
  int64_t requests = 0;
  bool is_stepping = false;
  bool is_dead = false;
  bool is_due = false;  // a step's end
  Clock::time_point step_end;
  double late_seconds = 0;
  // What the metrics count. Times between tokens are by the law's clock.
  int64_t prompt_tokens = 0, output_tokens = 0, answered = 0, itl_count = 0;
  int64_t cached_tokens = 0;
  std::set<std::string> prompts;  // that were read, where prefixes are cached
  double itl_seconds = 0;
  double step_seconds = 0;
  std::mt19937_64 random;
  std::thread thread;

  void run();
  bool poll(int milliseconds);
  void accept_all();
  void read(Connection& connection);
  void flush(Connection& connection);
  void drop(int fd);
  void handle(Connection& connection, std::string_view head, const std::string& body);
  void complete(Connection& connection, const std::string& body, bool is_chat);
  void say(Connection& connection, const std::string& bytes);
  [[nodiscard]] std::string metrics() const;
  [[nodiscard]] int64_t kv_in_use() const;
  void begin_step(Clock::time_point at);
  void end_step();
  void emit(Connection& connection);
  void watch(int fd, uint32_t events, int how) const;
  [[nodiscard]] bool is_hit(int64_t every) const {
    const int64_t number = requests - options.good;
    return every > 0 && number > 0 && number % every == 0;
  }
};

void TestServer::State::watch(int fd, uint32_t events, int how) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll, how, fd, &event);
}

void TestServer::State::accept_all() {
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections[fd].fd = fd;
    watch(fd, EPOLLIN, EPOLL_CTL_ADD);
  }
}

void TestServer::State::drop(int fd) {
  waiting.remove(fd);
  std::erase(running, fd);
  close(fd);
  connections.erase(fd);
}

void TestServer::State::say(Connection& connection, const std::string& bytes) {
  connection.out += bytes;
  flush(connection);
}

void TestServer::State::flush(Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t sent =
        send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;
    connection.out.erase(0, static_cast<size_t>(sent));
  }
  if (connection.is_held_up != connection.out.empty()) return;
  connection.is_held_up = !connection.out.empty();
  watch(connection.fd, connection.is_held_up ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
}

void TestServer::State::read(Connection& connection) {
  std::array<char, 65536> bytes{};
  const int fd = connection.fd;
  for (;;) {
    const ssize_t length = recv(fd, bytes.data(), bytes.size(), 0);
    if (length < 0) break;
    if (length == 0) {
      drop(fd);
      return;
    }
    connection.in.append(bytes.data(), static_cast<size_t>(length));
  }
  const size_t end = connection.in.find("\r\n\r\n");
  if (end == std::string::npos) return;
  const std::string head = connection.in.substr(0, end + 2);
  size_t length = 0;
  if (const size_t at = head.find("Content-Length: "); at != std::string::npos) {
    length = std::strtoul(head.c_str() + at + std::strlen("Content-Length: "), nullptr, 10);
  }
  if (connection.in.size() < end + 4 + length) return;
  const std::string body = connection.in.substr(end + 4, length);
  connection.in.erase(0, end + 4 + length);
  handle(connection, head, body);
}

std::string TestServer::State::metrics() const {
  if (options.absurd_metrics) {
    return "vllm:num_requests_running{a=\"}\\\"\"} -5\nvllm:kv_cache_usage_perc 1e300\n"
           "vllm:num_requests_waiting nan\n\xff\xfe{{{{\n";
  }
  const double share = static_cast<double>(kv_in_use()) / static_cast<double>(options.kv_tokens);
  return "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"test\"} " +
         std::to_string(running.size()) + ".0\nvllm:num_requests_waiting{model_name=\"test\"} " +
         std::to_string(waiting.size()) + ".0\nvllm:kv_cache_usage_perc{model_name=\"test\"} " +
         std::to_string(share) + "\nvllm:num_preemptions_total{model_name=\"test\"} 0.0\n" +
         counter("prompt_tokens_total", static_cast<double>(prompt_tokens)) +
         counter("generation_tokens_total", static_cast<double>(output_tokens)) +
         counter("request_success_total", static_cast<double>(answered)) +
         counter("inter_token_latency_seconds_sum", itl_seconds) +
         counter("inter_token_latency_seconds_count", static_cast<double>(itl_count)) +
         counter("prefix_cache_queries_total", static_cast<double>(prompt_tokens)) +
         counter("prefix_cache_hits_total", static_cast<double>(cached_tokens));
}

void TestServer::State::handle(Connection& connection, std::string_view head,
                               const std::string& body) {
  if (options.hangs) return;
  if (options.redirects) {
    say(connection,
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:9/\r\n"
        "Content-Length: 0\r\n\r\n");
    return;
  }
  const bool is_known =
      options.api_key.empty() ||
      head.find("Authorization: Bearer " + options.api_key + "\r\n") != std::string_view::npos;
  const std::string_view path = head.substr(0, head.find(" HTTP/"));
  if (!is_known) {
    say(connection, with_head("401 Unauthorized", "application/json", R"({"error":"no key"})"));
  } else if (path == "GET /v1/models") {
    say(connection, with_head("200 OK", "application/json", R"({"data":[{"id":"test"}]})"));
  } else if (path == "GET /metrics" && options.has_metrics) {
    say(connection, with_head("200 OK", "text/plain", metrics()));
  } else if (path == "POST /v1/completions" && options.has_completions) {
    complete(connection, body, false);
  } else if (path == "POST /v1/chat/completions") {
    complete(connection, body, true);
  } else {
    say(connection, with_head("404 Not Found", "application/json", R"({"detail":"Not Found"})"));
  }
}

void TestServer::State::complete(Connection& connection, const std::string& body, bool is_chat) {
  const Clock::time_point received = Clock::now();
  const auto json = text::parse_json(body, "request");
  const auto refuse = [&](std::string_view status, std::string_view words) {
    const Json error = Json::object().set("error", Json::object().set("message", words));
    say(connection, with_head(status, "application/json", error.dump()));
  };
  if (!json || !json->is_object()) return refuse("400 Bad Request", "not JSON");
  if (!options.takes_ignore_eos && json->find("ignore_eos") != nullptr) {
    return refuse("400 Bad Request", "unknown field ignore_eos");
  }
  ++requests;
  if (is_hit(options.refuse_every)) return refuse("503 Service Unavailable", "overloaded");
  if (options.die_after > 0 && requests > options.die_after) {
    is_dead = true;
    return;
  }
  Sequence sequence;
  sequence.is_chat = is_chat;
  const Json* prompt = json->find("prompt");
  if (is_chat) prompt = json->find("messages")->items().front().find("content");
  constexpr int64_t kTemplate = 7;
  sequence.prompt = words_in(prompt->as_string()) + (is_chat ? kTemplate : 0);
  if (options.caches_prefixes) sequence.cached = cached_of(prompt->as_string(), prompts);
  sequence.asked = std::max<int64_t>(1, json->find("max_tokens")->as_int());
  sequence.wants_usage = json->find("stream_options") != nullptr && options.has_usage;
  if (is_hit(options.error_every)) sequence.fault = Fault::error;
  if (is_hit(options.cut_every)) sequence.fault = Fault::cut;
  if (is_hit(options.malformed_every)) sequence.fault = Fault::malformed;
  if (is_hit(options.stall_every)) sequence.fault = Fault::stall;
  sequence.record = records.size();
  records.push_back({received, {}, sequence.prompt, sequence.cached, 0, false});
  connection.sequence = sequence;
  connection.is_running = false;
  waiting.push_back(connection.fd);
  say(connection,
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  if (is_chat) {
    say(connection, event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})"));
  }
  if (!is_stepping) begin_step(received);
}

int64_t TestServer::State::kv_in_use() const {
  int64_t tokens = 0;
  for (const int fd : running) {
    const Sequence& sequence = *connections.at(fd).sequence;
    tokens += sequence.prompt + sequence.written;
  }
  return tokens;
}

void TestServer::State::begin_step(Clock::time_point at) {
  int64_t prefill = 0;
  int64_t cached = kv_in_use();
  while (!waiting.empty() && static_cast<int64_t>(running.size()) < options.max_running) {
    Connection& connection = connections.at(waiting.front());
    const int64_t needed = connection.sequence->prompt + connection.sequence->asked;
    if (!running.empty() && cached + needed > options.kv_tokens) break;
    waiting.pop_front();
    running.push_back(connection.fd);
    connection.is_running = true;
    prefill += connection.sequence->prompt - connection.sequence->cached;
    cached += needed;
  }
  is_stepping = !running.empty();
  if (!is_stepping) return;
  std::normal_distribution<double> normal;
  const auto n = static_cast<double>(running.size());
  const double decode = options.base_ms + options.per_sequence_ms * n +
                        options.bend_ms * std::log2(n) +
                        options.kv_us * 1e-3 * static_cast<double>(kv_in_use());
  const double spread = std::max(0.1, 1 + options.noise * normal(random));
  const double ms = decode * spread + options.prefill_us * 1e-3 * static_cast<double>(prefill);
  step_end = at + std::chrono::nanoseconds(static_cast<int64_t>(ms * 1e6));
  step_seconds = ms * 1e-3;
  itimerspec spec{};
  const auto until = std::max<int64_t>(
      1, std::chrono::duration_cast<std::chrono::nanoseconds>(step_end - Clock::now()).count());
  spec.it_value.tv_sec = until / 1'000'000'000;
  spec.it_value.tv_nsec = until % 1'000'000'000;
  timerfd_settime(timer, 0, &spec, nullptr);
}

// A step's token of one sequence, with what belongs to its end.
void TestServer::State::emit(Connection& connection) {
  Sequence& sequence = *connection.sequence;
  ServedRequest& record = records[sequence.record];
  ++sequence.written;
  ++sequence.unsent;
  ++output_tokens;
  if (sequence.written == 1) {
    prompt_tokens += sequence.prompt;
    cached_tokens += sequence.cached;
  } else {
    itl_seconds += step_seconds;
    ++itl_count;
  }
  const bool is_last = sequence.written == sequence.asked;
  constexpr int64_t kBeforeFault = 3;
  if (sequence.fault != Fault::none && sequence.written == kBeforeFault) {
    if (sequence.fault == Fault::error) {
      say(connection, event(R"({"error":{"message":"injected"}})") + "0\r\n\r\n");
    }
    if (sequence.fault == Fault::malformed) say(connection, event("{\"choices\":[{\"text\":"));
    if (sequence.fault == Fault::cut) connection.is_closing = true;
    connection.sequence.reset();
    return;
  }
  if (sequence.unsent < options.tokens_per_chunk && !is_last) return;
  std::string bytes = token_event(sequence, is_last, options.has_all_fields);
  sequence.unsent = 0;
  if (is_last) {
    if (sequence.wants_usage) {
      bytes +=
          event("{\"choices\":[],\"usage\":{\"prompt_tokens\":" + std::to_string(sequence.prompt) +
                ",\"completion_tokens\":" + std::to_string(sequence.written) +
                (options.caches_prefixes && options.has_cached_usage
                     ? ",\"prompt_tokens_details\":{\"cached_tokens\":" +
                           std::to_string(sequence.cached) + "}"
                     : "") +
                "}}");
    }
    bytes += event("[DONE]") + "0\r\n\r\n";
    record.is_whole = true;
    ++answered;
  }
  record.tokens = sequence.written;
  record.sent.push_back(Clock::now());
  const auto chunks = static_cast<int64_t>(record.sent.size());
  if (is_last) connection.sequence.reset();
  connection.out += bytes;
  if (is_last || chunks % options.chunks_per_write == 0) flush(connection);
}

void TestServer::State::end_step() {
  const Clock::time_point now = Clock::now();
  late_seconds = std::max(late_seconds, std::chrono::duration<double>(now - step_end).count());
  // Requests that come meanwhile are received in between, so that their record is not late.
  constexpr int kBetween = 16;
  int emitted = 0;
  for (const int fd : std::vector<int>(running)) {
    const auto at = connections.find(fd);
    if (at == connections.end() || !at->second.is_running) continue;
    emit(at->second);
    if (!at->second.sequence) at->second.is_running = false;
    if (++emitted % kBetween == 0) poll(0);
  }
  std::erase_if(running, [&](int fd) { return !connections.at(fd).is_running; });
  std::vector<int> closing;
  for (const auto& [fd, connection] : connections) {
    if (connection.is_closing) closing.push_back(fd);
  }
  for (const int fd : closing) drop(fd);
  // The law's clock goes on by itself, so that a moment without a processor does not change the
  // law; unless the machine cannot follow it at all.
  constexpr auto kFollows = std::chrono::milliseconds(100);
  begin_step(Clock::now() - step_end > kFollows ? Clock::now() : step_end);
}

// Takes what has come; false where the server is to end. Within a step its timer is left alone.
bool TestServer::State::poll(int milliseconds) {
  std::array<epoll_event, 512> events{};
  const int count = epoll_wait(epoll, events.data(), static_cast<int>(events.size()), milliseconds);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const int fd = event.data.fd;
    if (fd == stopper) return false;
    if (fd == listener) {
      accept_all();
    } else if (fd == timer) {
      is_due = true;
    } else if (const auto at = connections.find(fd); at != connections.end()) {
      if ((event.events & EPOLLOUT) != 0) flush(at->second);
      if ((event.events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) read(at->second);
    }
  }
  return !is_dead;
}

void TestServer::State::run() {
  while (poll(-1)) {
    if (!is_due) continue;
    is_due = false;
    uint64_t times = 0;
    if (::read(timer, &times, sizeof times) > 0) end_step();
  }
}

TestServer::TestServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
TestServer::~TestServer() { stop(); }

std::unique_ptr<TestServer> TestServer::start(const TestServerOptions& options) {
  auto state = std::make_unique<State>();
  state->options = options;
  state->random.seed(options.seed);
  state->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(state->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(options.port));
  socklen_t length = sizeof address;
  if (bind(state->listener, reinterpret_cast<sockaddr*>(&address), length) != 0) give_up("bind");
  if (listen(state->listener, 4096) != 0) give_up("listen");
  getsockname(state->listener, reinterpret_cast<sockaddr*>(&address), &length);
  state->port = ntohs(address.sin_port);
  state->epoll = epoll_create1(EPOLL_CLOEXEC);
  state->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  state->stopper = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  for (const int fd : {state->listener, state->timer, state->stopper}) {
    state->watch(fd, EPOLLIN, EPOLL_CTL_ADD);
  }
  State* const running = state.get();
  state->thread = std::thread([running] {
    running->run();
    for (auto& [fd, connection] : running->connections) close(fd);
    running->connections.clear();
    close(running->listener);
  });
  return std::unique_ptr<TestServer>(new TestServer(std::move(state)));
}

void TestServer::stop() {
  if (!state_->thread.joinable()) return;
  const uint64_t one = 1;
  if (write(state_->stopper, &one, sizeof one) < 0) give_up("eventfd");
  state_->thread.join();
  for (const int fd : {state_->epoll, state_->timer, state_->stopper}) close(fd);
}

int TestServer::port() const { return state_->port; }
std::string TestServer::url() const { return "http://127.0.0.1:" + std::to_string(state_->port); }
const std::vector<ServedRequest>& TestServer::records() const { return state_->records; }
double TestServer::most_late_seconds() const { return state_->late_seconds; }

}  // namespace headroom::testing

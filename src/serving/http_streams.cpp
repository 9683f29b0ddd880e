#include "serving/http_streams.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <map>
#include <optional>

#include "serving/curl_library.h"

namespace headroom::serving {
namespace {

constexpr size_t kMostHeaderBytes = size_t{256} << 10;
constexpr int kEventsATurn = 1024;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Counts of lags in buckets of 20 %, from a microsecond on.
class LagHistogram {
 public:
  void add(double seconds) {
    const double steps = seconds > 1e-6 ? std::log(seconds / 1e-6) / std::log(kRatio) : 0;
    ++counts_[std::min(counts_.size() - 1, static_cast<size_t>(steps))];
    sum_ += seconds;
    most_ = std::max(most_, seconds);
    ++count_;
  }
  [[nodiscard]] GeneratorLag summary() const {
    GeneratorLag lag;
    if (count_ == 0) return lag;
    lag.mean_seconds = sum_ / static_cast<double>(count_);
    lag.most_seconds = most_;
    const auto beyond = static_cast<int64_t>(0.01 * static_cast<double>(count_));
    int64_t above = 0;
    size_t bucket = counts_.size();
    while (bucket > 0 && above + counts_[bucket - 1] <= beyond) above += counts_[--bucket];
    lag.p99_seconds = std::min(most_, 1e-6 * std::pow(kRatio, static_cast<double>(bucket)));
    return lag;
  }

 private:
  static constexpr double kRatio = 1.2;
  std::array<int64_t, 128> counts_{};
  double sum_ = 0;
  double most_ = 0;
  int64_t count_ = 0;
};

// Hundreds of streams are more files than the soft limit of some systems.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, 65536);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

struct Stream {
  const CurlLibrary* curl = nullptr;
  HttpStreams::Id id = 0;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  HttpHandler* handler = nullptr;
  const Clock::time_point* arrived = nullptr;
  LagHistogram* lags = nullptr;
  const double* lag_seconds = nullptr;
  std::string body;
  double stall_seconds = 0;
  Clock::time_point heard;  // when bytes came last
  size_t most_bytes = 0;
  size_t bytes = 0;
  size_t header_bytes = 0;
  bool is_too_large = false;
  bool is_refused = false;
};

HttpEnd end_of(const Stream& stream, CURLcode code) {
  HttpEnd end;
  stream.curl->easy_getinfo(stream.easy, CURLINFO_RESPONSE_CODE, &end.status);
  if (stream.is_too_large) {
    end.fault = HttpFault::too_large;
    end.words = "the answer is larger than it may be";
    return end;
  }
  if (stream.is_refused) {
    end.fault = HttpFault::refused;
    return end;
  }
  if (code == CURLE_OK) return end;
  end.words = stream.curl->easy_strerror(code);
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
      end.fault = HttpFault::connect;
      break;
    case CURLE_OPERATION_TIMEDOUT:
      end.fault = HttpFault::stall;
      end.words = "nothing came for too long";
      break;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
      end.fault = HttpFault::cut;
      end.words = "the connection ended before the answer did";
      break;
    default:
      end.fault = HttpFault::other;
  }
  return end;
}

}  // namespace

struct HttpStreams::State {
  const CurlLibrary& curl;
  CURLM* multi = nullptr;
  int epoll = -1;
  std::map<Id, std::unique_ptr<Stream>> streams;
  Id next_id = 1;
  std::optional<Clock::time_point> timer;
  Clock::time_point arrived = Clock::now();  // when epoll returned last
  Clock::time_point looked = arrived;        // for streams that are stalled
  double lag_seconds = 0;                    // bound of this turn
  LagHistogram lags;
  Clock::time_point lag_since = Clock::now();
  double waited_seconds = 0;

  explicit State(const CurlLibrary& library) : curl(library), multi(library.multi_init()) {}
  ~State() {
    for (auto& [id, stream] : streams) release(*stream);
    if (multi != nullptr) curl.multi_cleanup(multi);
    if (epoll >= 0) close(epoll);
  }

  void release(Stream& stream) const {
    curl.multi_remove_handle(multi, stream.easy);
    curl.easy_cleanup(stream.easy);
    curl.slist_free_all(stream.headers);
  }

  void watch(curl_socket_t socket, int what) const {
    epoll_event event{};
    event.data.fd = socket;
    if (what == CURL_POLL_REMOVE) {
      epoll_ctl(epoll, EPOLL_CTL_DEL, socket, &event);
      return;
    }
    if (what == CURL_POLL_IN || what == CURL_POLL_INOUT) event.events |= EPOLLIN;
    if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT) event.events |= EPOLLOUT;
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, socket, &event) != 0 && errno == ENOENT) {
      epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event);
    }
  }

  static int on_socket(CURL* /*easy*/, curl_socket_t socket, int what, void* state,
                       void* /*mine*/) {
    static_cast<State*>(state)->watch(socket, what);
    return 0;
  }

  static int on_timer(CURLM* /*multi*/, long milliseconds, void* state) {
    auto& timer = static_cast<State*>(state)->timer;
    if (milliseconds < 0) {
      timer.reset();
    } else {
      timer = Clock::now() + std::chrono::milliseconds(milliseconds);
    }
    return 0;
  }

  static size_t on_header(char* /*bytes*/, size_t size, size_t count, void* mine) {
    auto& stream = *static_cast<Stream*>(mine);
    stream.header_bytes += size * count;
    if (stream.header_bytes <= kMostHeaderBytes) return size * count;
    stream.is_too_large = true;
    return 0;
  }

  static size_t on_body(char* bytes, size_t size, size_t count, void* mine) {
    auto& stream = *static_cast<Stream*>(mine);
    const size_t length = size * count;
    stream.bytes += length;
    stream.heard = *stream.arrived;
    if (stream.bytes > stream.most_bytes) {
      stream.is_too_large = true;
      return 0;
    }
    stream.lags->add(*stream.lag_seconds);
    long status = 0;
    stream.curl->easy_getinfo(stream.easy, CURLINFO_RESPONSE_CODE, &status);
    if (stream.handler->on_bytes({bytes, length}, status, *stream.arrived)) return length;
    stream.is_refused = true;
    return 0;
  }

  // Whether libcurl had something to do; a new stream's request is sent so.
  bool fire_timer() {
    if (!timer || Clock::now() < *timer) return false;
    timer.reset();
    int running = 0;
    curl.multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
    return true;
  }

  // libcurl's own limit looks at a mean of five seconds; this one is exact to kLook.
  void end_stalled() {
    constexpr auto kLook = std::chrono::milliseconds(100);
    if (arrived < looked + kLook) return;
    looked = arrived;
    std::vector<Id> stalled;
    for (const auto& [id, stream] : streams) {
      if (seconds_between(stream->heard, arrived) > stream->stall_seconds) stalled.push_back(id);
    }
    for (const Id id : stalled) {
      const auto at = streams.find(id);
      if (at == streams.end()) continue;  // a handler of another one cancelled it
      const std::unique_ptr<Stream> stream = std::move(at->second);
      streams.erase(at);
      HttpEnd end{HttpFault::stall, 0, "nothing came for too long"};
      curl.easy_getinfo(stream->easy, CURLINFO_RESPONSE_CODE, &end.status);
      release(*stream);
      stream->handler->on_end(end, arrived);
    }
  }

  void hand_out_ends() {
    int left = 0;
    while (CURLMsg* message = curl.multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      void* mine = nullptr;
      curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &mine);
      const auto at = streams.find(static_cast<Stream*>(mine)->id);
      const std::unique_ptr<Stream> stream = std::move(at->second);
      streams.erase(at);
      const HttpEnd end = end_of(*stream, code);
      release(*stream);
      stream->handler->on_end(end, arrived);
    }
  }
};

HttpStreams::HttpStreams(std::unique_ptr<State> state) : state_(std::move(state)) {}
HttpStreams::~HttpStreams() = default;

Result<std::unique_ptr<HttpStreams>> HttpStreams::make() {
  raise_file_limit();
  const Result<CurlLibrary>& library = CurlLibrary::loaded();
  if (!library) return library.error();
  auto state = std::make_unique<State>(*library);
  state->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (state->multi == nullptr || state->epoll < 0) {
    return Error{ErrorCode::unavailable, "libcurl or epoll does not start", {}, {}};
  }
  library->multi_setopt(state->multi, CURLMOPT_SOCKETFUNCTION, &State::on_socket);
  library->multi_setopt(state->multi, CURLMOPT_SOCKETDATA, state.get());
  library->multi_setopt(state->multi, CURLMOPT_TIMERFUNCTION, &State::on_timer);
  library->multi_setopt(state->multi, CURLMOPT_TIMERDATA, state.get());
  constexpr long kKeptConnections = 4096;
  library->multi_setopt(state->multi, CURLMOPT_MAXCONNECTS, kKeptConnections);
  return std::unique_ptr<HttpStreams>(new HttpStreams(std::move(state)));
}

HttpStreams::Id HttpStreams::start(const HttpRequest& request, HttpHandler& handler) {
  auto made = std::make_unique<Stream>();
  Stream& stream = *made;
  stream.id = state_->next_id++;
  const CurlLibrary& curl = state_->curl;
  stream.curl = &curl;
  stream.easy = curl.easy_init();
  HEADROOM_CHECK(stream.easy != nullptr, "libcurl makes a handle");
  stream.handler = &handler;
  stream.arrived = &state_->arrived;
  stream.lags = &state_->lags;
  stream.lag_seconds = &state_->lag_seconds;
  stream.body = request.body;
  stream.most_bytes = request.most_bytes;
  stream.stall_seconds = request.stall_seconds;
  stream.heard = Clock::now();
  CURL* const easy = stream.easy;
  const auto set = [&curl, easy](CURLoption option, auto value) {
    const CURLcode code = curl.easy_setopt(easy, option, value);
    HEADROOM_CHECK(code == CURLE_OK, "libcurl takes an option");
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_PROXY, "");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_seconds * 1e3));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.most_seconds * 1e3));
  set(CURLOPT_HEADERFUNCTION, &State::on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&stream));
  set(CURLOPT_WRITEFUNCTION, &State::on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&stream));
  set(CURLOPT_PRIVATE, static_cast<void*>(&stream));
  if (!request.body.empty()) {
    stream.headers = curl.slist_append(stream.headers, "Content-Type: application/json");
    stream.headers = curl.slist_append(stream.headers, "Expect:");  // no round trip before a body
    set(CURLOPT_POSTFIELDS, stream.body.c_str());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(stream.body.size()));
  }
  if (!request.api_key.empty()) {
    const std::string line = "Authorization: Bearer " + request.api_key;
    stream.headers = curl.slist_append(stream.headers, line.c_str());
  }
  if (stream.headers != nullptr) set(CURLOPT_HTTPHEADER, stream.headers);
  const Id id = stream.id;
  state_->streams.emplace(id, std::move(made));
  curl.multi_add_handle(state_->multi, easy);
  return id;
}

void HttpStreams::cancel(Id id) {
  const auto at = state_->streams.find(id);
  if (at == state_->streams.end()) return;
  state_->release(*at->second);
  state_->streams.erase(at);
}

size_t HttpStreams::running() const { return state_->streams.size(); }

namespace {

// Requests are sent at their times: to the microsecond where the kernel can and may (Linux 5.11),
// else to the millisecond.
int wait_for_events(int epoll, std::array<epoll_event, kEventsATurn>& events, double seconds) {
  timespec wait{};
  wait.tv_sec = static_cast<time_t>(seconds);
  wait.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
  const int count = epoll_pwait2(epoll, events.data(), kEventsATurn, &wait, nullptr);
  if (count >= 0 || errno == EINTR) return count;
  return epoll_wait(epoll, events.data(), kEventsATurn, static_cast<int>(std::ceil(seconds * 1e3)));
}

}  // namespace

void HttpStreams::turn(Clock::time_point deadline) {
  State& state = *state_;
  state.fire_timer();
  const Clock::time_point before = Clock::now();
  const Clock::time_point until = state.timer ? std::min(deadline, *state.timer) : deadline;
  const double wait = std::clamp(seconds_between(before, until), 0.0, 0.2);
  std::array<epoll_event, kEventsATurn> events{};
  const int count = wait_for_events(state.epoll, events, wait);
  const Clock::time_point now = Clock::now();
  // It slept: nothing was there before. It did not: anything may be as old as the last return.
  constexpr double kSlept = 30e-6;
  const double waited = seconds_between(before, now);
  const bool slept = waited > kSlept;
  state.lag_seconds = slept ? 0 : seconds_between(state.arrived, now);
  if (slept) state.waited_seconds += waited;
  state.arrived = now;
  int running = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    int what = 0;
    if ((event.events & EPOLLIN) != 0) what |= CURL_CSELECT_IN;
    if ((event.events & EPOLLOUT) != 0) what |= CURL_CSELECT_OUT;
    if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) what |= CURL_CSELECT_ERR;
    state.curl.multi_socket_action(state.multi, event.data.fd, what, &running);
  }
  state.hand_out_ends();
  state.end_stalled();
  // What handlers have started is sent now, not behind the next turn's bytes.
  if (state.fire_timer()) state.hand_out_ends();
}

void HttpStreams::reset_lag() {
  state_->lags = {};
  state_->lag_since = Clock::now();
  state_->waited_seconds = 0;
}

GeneratorLag HttpStreams::lag() const {
  GeneratorLag lag = state_->lags.summary();
  const double passed = seconds_between(state_->lag_since, Clock::now());
  if (passed > 0) lag.busy_share = std::clamp(1 - state_->waited_seconds / passed, 0.0, 1.0);
  return lag;
}

}  // namespace headroom::serving

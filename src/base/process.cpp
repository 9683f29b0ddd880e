#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/child.h"
#include "base/environment.h"

namespace headroom {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSpoken = 16'384;

Error unavailable(const std::string& program, std::string what) {
  return {ErrorCode::unavailable, std::move(what), program, {}};
}

// Hands on the lines of what comes piece by piece. A line longer than kSpoken is handed on in
// parts.
class Lines {
 public:
  explicit Lines(const std::function<bool(std::string_view)>& on_line) : on_line_(on_line) {}
  // False from where nobody wants to hear more.
  bool add(std::string_view piece) {
    if (!on_line_) return true;
    for (size_t end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
      rest_.append(piece.substr(0, end));
      flush();
      piece.remove_prefix(end + 1);
    }
    rest_.append(piece);
    if (rest_.size() > kSpoken) flush();
    return goes_on_;
  }

 private:
  void flush() {
    goes_on_ = goes_on_ && on_line_(rest_);
    rest_.clear();
  }
  const std::function<bool(std::string_view)>& on_line_;
  bool goes_on_ = true;
  std::string rest_;
};

enum class Heard { all, enough, too_long };

// Reads what the child says until it ends its stderr, is told to end, or its time is up.
Heard listen(int speech, Clock::time_point deadline, Lines& lines, std::string& spoken) {
  std::array<char, 4096> buffer{};
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Heard::too_long;
    pollfd watched{speech, POLLIN, 0};
    const int ready = poll(&watched, 1, static_cast<int>(std::min<long long>(left, 60'000)));
    if (ready < 0 && errno != EINTR) return Heard::all;
    if (ready <= 0) continue;
    const ssize_t count = read(speech, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Heard::all;
    const std::string_view piece(buffer.data(), static_cast<size_t>(count));
    const bool goes_on = lines.add(piece);
    spoken.append(piece);
    if (spoken.size() > 2 * kSpoken) spoken.erase(0, spoken.size() - kSpoken);
    if (!goes_on) return Heard::enough;
  }
}

// Waits until the deadline for a child that has closed its stderr; false when it is still there.
bool wait_for(Child& child, Clock::time_point deadline, int& status) {
  while (!child.has_ended(status)) {
    if (Clock::now() >= deadline) return false;
    usleep(2000);
  }
  return true;
}

}  // namespace

Result<ProcessResult> run_process(const ProcessOptions& options) {
  HEADROOM_CHECK(!options.arguments.empty(), "no program is named");
  const std::string& program = options.arguments[0];
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return unavailable(program, std::strerror(errno));
  Child child;
  const int failure =
      child.start(options.arguments, environment_with(options.environment), ends[1]);
  close(ends[1]);
  if (failure != 0) {
    close(ends[0]);
    return unavailable(program, std::string("cannot be started: ") + std::strerror(failure));
  }
  const Clock::time_point deadline = Clock::now() + options.timeout;
  ProcessResult result;
  int status = 0;
  Lines lines(options.on_line);
  const Heard heard = listen(ends[0], deadline, lines, result.spoken);
  if (heard == Heard::enough) child.kill(status);
  const bool ended = heard != Heard::too_long && wait_for(child, deadline, status);
  close(ends[0]);
  if (!ended) {
    child.kill(status);
    return unavailable(program,
                       "was stopped after " + std::to_string(options.timeout.count()) + " seconds");
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (result.spoken.size() > kSpoken) result.spoken.erase(0, result.spoken.size() - kSpoken);
  return result;
}

Result<TemporaryFile> TemporaryFile::make() {
  const char* folder = std::getenv("TMPDIR");
  std::string path =
      std::string(folder != nullptr && *folder != 0 ? folder : "/tmp") + "/headroom-XXXXXX";
  const int descriptor = mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0) {
    return Error{ErrorCode::unavailable, "no temporary file can be made", path, "set TMPDIR"};
  }
  unlink(path.c_str());
  return TemporaryFile(descriptor);
}

Result<void> TemporaryFile::write(std::string_view content) const {
  while (!content.empty()) {
    const ssize_t count = ::write(descriptor_, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return Error{ErrorCode::unavailable,
                   std::string("a temporary file cannot be written: ") + std::strerror(errno),
                   {},
                   "set TMPDIR"};
    }
    content.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

std::string TemporaryFile::path() const {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(descriptor_);
}

TemporaryFile::~TemporaryFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace headroom

#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

namespace headroom {
namespace {

constexpr int64_t kChunk = 64 * kKiB;
std::atomic<bool> is_written{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler reads it");

// An open descriptor that closes itself; standard input is borrowed, not owned.
class Descriptor {
 public:
  Descriptor(int fd, bool owned) : fd_(fd), owned_(owned) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (owned_ && fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  // Closes now and says whether that went well, as a full disk may show only here.
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd) == 0;
  }

 private:
  int fd_;
  bool owned_;
};

Error file_error(const std::string& path, const std::string& message, std::string hint = {}) {
  return Error{ErrorCode::bad_input, message, path, std::move(hint)};
}

Error system_error(const std::string& path, const char* doing) {
  return file_error(path, std::string(doing) + ": " + std::strerror(errno));
}

Result<void> write_all(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path, "cannot write");
    content.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

// What `path` stands for after symbolic links, so that the rename replaces the file itself.
std::string resolve_links(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr),
                                                             &std::free);
  return resolved ? std::string(resolved.get()) : path;
}

// Opens a new file beside `target` under a name that nobody uses, which it stores in `name`.
int create_beside(const std::string& target, std::string& name) {
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    name = target + "." + std::to_string(::getpid()) + "." + std::to_string(counter++);
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

Result<void> write_in_place(const std::string& path, std::string_view content) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC), true);
  if (file.get() < 0) return system_error(path, "cannot open for writing");
  return write_all(file.get(), content, path);
}

Result<void> write_and_rename(const std::string& target, std::optional<mode_t> mode,
                              std::string_view content) {
  std::string temporary;
  Descriptor file(create_beside(target, temporary), true);
  if (file.get() < 0) return system_error(target, "cannot create a file beside it");
  const auto fail = [&](Error error) {
    ::unlink(temporary.c_str());
    return error;
  };
  if (Result<void> written = write_all(file.get(), content, target); !written) {
    return fail(std::move(written).error());
  }
  if (mode && ::fchmod(file.get(), *mode) != 0) {
    return fail(system_error(target, "cannot set its mode"));
  }
  if (!file.close()) return fail(system_error(target, "cannot write"));
  if (::rename(temporary.c_str(), target.c_str()) != 0) {
    return fail(system_error(target, "cannot replace"));
  }
  return {};
}

}  // namespace

Result<std::string> read_file(const std::string& path, Bytes limit) {
  const bool standard_input = path == "-";
  const std::string name = standard_input ? "standard input" : path;
  if (path.find('\0') != std::string::npos) return file_error("", "a file name holds a zero byte");
  Descriptor file(standard_input ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC),
                  !standard_input);
  if (file.get() < 0) return system_error(name, "cannot open");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return system_error(name, "cannot read");
  if (S_ISDIR(status.st_mode)) return file_error(name, "is a directory, expected a file");
  const int64_t hard_limit = std::max<int64_t>(limit.count, 0);
  const Error too_large = file_error(name, "is larger than the limit of " + format_bytes(limit),
                                     "is this the right file?");
  if (S_ISREG(status.st_mode) && status.st_size > hard_limit) return too_large;

  std::string content;
  if (S_ISREG(status.st_mode)) content.reserve(static_cast<size_t>(status.st_size) + 1);
  for (;;) {
    const size_t before = content.size();
    // One byte beyond the limit tells "exactly at the limit" from "above it".
    const int64_t room = hard_limit - static_cast<int64_t>(before) + 1;
    const int64_t spare = static_cast<int64_t>(content.capacity() - before);
    content.resize(before + static_cast<size_t>(std::min(std::max(spare, kChunk), room)));
    const ssize_t n = ::read(file.get(), content.data() + before, content.size() - before);
    content.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(name, "cannot read");
    if (n == 0) return content;
    if (static_cast<int64_t>(content.size()) > hard_limit) return too_large;
  }
}

bool has_written() noexcept { return is_written; }

Result<void> check_writable(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return file_error(path, "is not a file name");
  }
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return file_error(path, "is a directory, expected a file");
  if (exists && !S_ISREG(status.st_mode)) {
    return ::access(path.c_str(), W_OK) == 0 ? Result<void>()
                                             : system_error(path, "cannot open for writing");
  }
  const std::string target = exists ? resolve_links(path) : path;
  const size_t slash = target.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return system_error(path, "cannot be created");
}

Result<void> write_file_atomic(const std::string& path, std::string_view content) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return file_error(path, "is not a file name");
  }
  is_written = true;
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return file_error(path, "is a directory, expected a file");
  if (exists && !S_ISREG(status.st_mode)) return write_in_place(path, content);
  if (!exists) return write_and_rename(path, std::nullopt, content);
  return write_and_rename(resolve_links(path), status.st_mode & 07777, content);
}

}  // namespace headroom

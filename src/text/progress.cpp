#include "text/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "text/utf8.h"

namespace headroom::text {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(500);
constexpr auto kInterval = std::chrono::milliseconds(100);
constexpr int kMaxBar = 40;
constexpr std::string_view kWipe = "\r\x1B[K";

}  // namespace

Progress::Progress(std::string label, int64_t total, const Terminal& terminal, bool quiet,
                   Sink sink, Clock clock)
    : label_(printable(label)),
      total_(total),
      columns_(terminal.columns),
      enabled_(terminal.animation && !quiet),
      sink_(std::move(sink)),
      clock_(std::move(clock)),
      next_(clock_() + kPatience) {}

Progress::~Progress() {
  if (drawn_) sink_(kWipe);
}

void Progress::update(int64_t done) {
  if (!enabled_) return;
  const auto now = clock_();
  if (now < next_) return;
  next_ = now + kInterval;
  draw(done);
}

void Progress::draw(int64_t done) {
  drawn_ = true;
  std::string line;
  if (total_ <= 0) {
    line = label_ + "  " + std::to_string(done);
  } else {
    const double part =
        std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
    const std::string percent = std::to_string(static_cast<int>(part * 100)) + "%";
    const std::string behind = note_.empty() ? std::string{} : "  " + note_;
    const int room = columns_ - display_width(label_) - display_width(behind) - 10;
    const int cells = std::clamp(room, 0, kMaxBar);
    const int full = static_cast<int>(part * cells);
    line = label_ + "  ";
    for (int i = 0; i < cells; ++i) line += i < full ? "█" : "░";
    line += (cells > 0 ? "  " : "") + percent + behind;
  }
  sink_(std::string(kWipe) + elide(line, std::max(columns_ - 1, 1)));
}

std::string time_left(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  constexpr double kMostHours = 1000;
  if (!std::isfinite(seconds) || seconds <= 0 || seconds > kMostHours * kHour) return {};
  if (seconds < kMinute) return "less than a minute left";
  if (seconds < 2 * kHour)
    return "about " + std::to_string(std::lround(seconds / kMinute)) + " min left";
  return "about " + std::to_string(std::lround(seconds / kHour)) + " h left";
}

Progress::Sink sink_for(int fd) {
  return [fd](std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(fd, text.data(), text.size());
      if (n <= 0) return;
      text.remove_prefix(static_cast<size_t>(n));
    }
  };
}

}  // namespace headroom::text

// A progress bar on one line of a terminal; nothing at all on a pipe or in a file.
//
// For loops that may take seconds: update() costs a clock reading and draws at most ten times a
// second, and nothing is drawn in the first half second, so short work stays silent. The line is
// wiped when the bar is destroyed. One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "text/terminal.h"

namespace headroom::text {

class Progress {
 public:
  using Sink = std::function<void(std::string_view)>;
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  // `terminal` is that of the sink (stderr); without animation, or with `quiet`, nothing is
  // written. `total` 0 means unknown: a count is shown in place of a bar.
  Progress(std::string label, int64_t total, const Terminal& terminal, bool quiet, Sink sink,
           Clock clock = std::chrono::steady_clock::now);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void update(int64_t done);
  // Of a loop that finds out on the way how much there is.
  void set_total(int64_t total) { total_ = total; }
  // Stands behind the bar from the next update on: "about 3 min left".
  void set_note(std::string note) { note_ = std::move(note); }

 private:
  void draw(int64_t done);

  std::string label_, note_;
  int64_t total_;
  int columns_;
  bool enabled_;
  bool drawn_ = false;
  Sink sink_;
  Clock clock_;
  std::chrono::steady_clock::time_point next_;
};

// "about 3 min left"; nothing where it cannot be told, or is over.
[[nodiscard]] std::string time_left(double seconds);

// A sink for a file descriptor; failures are ignored, as progress is not the answer.
[[nodiscard]] Progress::Sink sink_for(int fd);

}  // namespace headroom::text

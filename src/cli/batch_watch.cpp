#include "cli/batch_watch.h"

#include <csignal>
#include <ctime>

#include <algorithm>
#include <chrono>

#include "base/file.h"
#include "base/process.h"
#include "batch/batch.h"
#include "batch/watch.h"
#include "cli/batch_live.h"
#include "report/batch/watch.h"
#include "serving/server.h"
#include "text/command_words.h"
#include "text/number.h"

namespace headroom::cli {
namespace {

using batch::MetricsSample;
using batch::SliceFault;
using batch::WatchEvent;
using batch::WatchReport;
using serving::Clock;

constexpr int kExitSignal = 128;  // and the signal
constexpr auto kCommandTime = std::chrono::seconds(60);

volatile std::sig_atomic_t signal_told = 0;

// SIGINT and SIGTERM end the watch, for as long as this lives.
class EndBySignal {
 public:
  EndBySignal() {
    signal_told = 0;
    struct sigaction action {};
    action.sa_handler = [](int signal) { signal_told = signal; };
    sigaction(SIGINT, &action, &interrupt_);
    sigaction(SIGTERM, &action, &terminate_);
  }
  ~EndBySignal() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
  }
  EndBySignal(const EndBySignal&) = delete;
  EndBySignal& operator=(const EndBySignal&) = delete;

 private:
  struct sigaction interrupt_ {};
  struct sigaction terminate_ {};
};

// False where a signal came before.
bool wait_until(Clock::time_point moment) {
  constexpr auto kAtOnce = std::chrono::milliseconds(100);
  while (signal_told == 0 && Clock::now() < moment) {
    const auto left = std::min<Clock::duration>(moment - Clock::now(), kAtOnce);
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    const timespec pause{.tv_sec = 0, .tv_nsec = std::max<long>(0, nanoseconds)};
    nanosleep(&pause, nullptr);
  }
  return signal_told == 0;
}

struct WatchQuestion {
  serving::Endpoint endpoint;
  std::string api_key;
  double every_seconds = 5;
  std::optional<double> for_seconds;
  batch::WatchOptions options;
  std::string metrics_file;
  std::vector<std::string> command;
  bool is_json = false;
};

Result<WatchQuestion> watch_question(const Words& words, const batch::BatchQuestion& question) {
  WatchQuestion watch;
  HEADROOM_ASSIGN(watch.endpoint, serving::parse_endpoint(words.value("watch")));
  HEADROOM_ASSIGN(watch.api_key, api_key());
  watch.is_json = words.has("json");
  if (words.has("every")) {
    HEADROOM_ASSIGN(watch.every_seconds,
                    number_of<double>(words.value("every"), "every", 0.1, 3600));
  }
  if (words.has("for")) {
    HEADROOM_ASSIGN(watch.for_seconds, number_of<double>(words.value("for"), "for", 0.1, 1e9));
  }
  batch::WatchOptions& options = watch.options;
  options.slo = question.slo;
  options.min_efficiency = question.min_efficiency;
  if (options.slo && !options.slo->seconds && options.slo->multiple < 1) {
    return Error{ErrorCode::usage, "with --watch a multiple is 1 at least", "--slo",
                 "itl=2x@32, or a time, as itl=50ms"};
  }
  if (words.has("most-batch")) {
    HEADROOM_ASSIGN(options.most_batch, number_of<int64_t>(words.value("most-batch"), "most-batch",
                                                           2, serving::kMostConcurrency));
  }
  if (words.has("limit")) {
    HEADROOM_ASSIGN(options.limit, number_of<int64_t>(words.value("limit"), "limit", 1,
                                                      formats::kMostServingBatch));
  }
  if (words.has("metrics-file")) {
    watch.metrics_file = words.value("metrics-file");
    HEADROOM_TRY(check_writable(watch.metrics_file));
  }
  if (words.has("on-change")) {
    auto command = text::command_words(words.value("on-change"));
    if (command && command->empty()) {
      command = Error{ErrorCode::usage, "it names no command", {}, "--on-change 'notify.sh batch'"};
    }
    if (!command) {
      Error error = std::move(command).error();
      error.where = "--on-change";
      return error;
    }
    watch.command = *std::move(command);
  }
  return watch;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class Watch {
 public:
  Watch(WatchQuestion question, batch::Watcher watcher, serving::HttpStreams& streams,
        const Console& console)
      : question_(std::move(question)),
        watcher_(std::move(watcher)),
        streams_(&streams),
        console_(&console) {}
  Result<int> run();

 private:
  Result<MetricsSample> read();
  void trouble(const std::string& words);
  Result<void> take(const MetricsSample& after);
  Result<void> hand_over(const WatchReport& report);
  void run_command(const WatchReport& report);
  void tell_what_is_missing();

  WatchQuestion question_;
  batch::Watcher watcher_;
  serving::HttpStreams* streams_;
  const Console* console_;
  Clock::time_point began_ = Clock::now();
  std::optional<MetricsSample> before_;
  std::string trouble_;  // that was said last, and goes on
  int64_t changes_ = 0;
  bool is_known_ = false;
  bool is_missing_told_ = false;
};

Result<MetricsSample> Watch::read() {
  HEADROOM_ASSIGN(const std::string text,
                  serving::fetch_metrics(*streams_, question_.endpoint, question_.api_key));
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  return MetricsSample{seconds, serving::parse_metrics(text)};
}

// Once for as long as it is the same.
void Watch::trouble(const std::string& words) {
  if (words == trouble_) return;
  if (!words.empty()) {
    console_->note(words);
  } else {
    console_->note("it goes on");
  }
  trouble_ = words;
}

// Without a shell, one at a time, sixty seconds at most. What the server counts meanwhile is in the
// next slice.
void Watch::run_command(const WatchReport& report) {
  const auto number = [](double value) { return text::formatted("%.6g", value); };
  const auto limit = [](const std::optional<int64_t>& value) {
    return value ? std::to_string(*value) : std::string();
  };
  ProcessOptions options;
  options.arguments = question_.command;
  options.timeout = kCommandTime;
  options.environment = {{"HEADROOM_BATCH", limit(report.advice.batch)},
                         {"HEADROOM_BATCH_LOW", limit(report.advice.low)},
                         {"HEADROOM_BATCH_HIGH", limit(report.advice.high)},
                         {"HEADROOM_BATCH_BEFORE", limit(report.limit)},
                         {"HEADROOM_URL", question_.endpoint.base},
                         {"HEADROOM_API_KEY", ""}};
  if (report.at_opt) {
    options.environment.emplace_back("HEADROOM_ITL_MS",
                                     number(report.at_opt->itl_seconds.expected * 1e3));
    options.environment.emplace_back("HEADROOM_TOKENS_PER_SECOND",
                                     number(report.at_opt->throughput_tokens_per_second.expected));
  }
  const auto done = run_process(options);
  if (!done) {
    console_->complain(done.error());
  } else if (done->exit_code != 0) {
    console_->complain({ErrorCode::unavailable,
                        "it ended with " + std::to_string(done->exit_code) + ": " + done->spoken,
                        "--on-change",
                        {}});
  }
}

Result<void> Watch::hand_over(const WatchReport& report) {
  if (report.event == WatchEvent::change) ++changes_;
  is_known_ = is_known_ || report.event != WatchEvent::none;
  const report::WatchContext context{question_.endpoint.base, unix_seconds(), changes_};
  if (question_.is_json) {
    HEADROOM_TRY(console_->answer(report::watch_json(report, context).dump() + "\n"));
  } else if (report.event != WatchEvent::none) {
    HEADROOM_TRY(console_->answer(report::watch_line(report)));
  }
  if (!question_.metrics_file.empty()) {
    // A full disk is no reason to stop watching.
    const auto written =
        write_file_atomic(question_.metrics_file, report::watch_prometheus(report, context));
    if (!written) console_->complain(written.error());
  }
  const bool is_to_run = report.event == WatchEvent::change && !question_.command.empty();
  if (is_to_run) run_command(report);
  return {};
}

void Watch::tell_what_is_missing() {
  constexpr double kPatience = 60;
  if (watcher_.base() || is_missing_told_) return;
  if (std::chrono::duration<double>(Clock::now() - began_).count() < kPatience) return;
  is_missing_told_ = true;
  console_->note(text::formatted("how steps grow with what is in flight is not known yet: that "
                                 "varied by %.2f, and ",
                                 watcher_.spread_seen()) +
                 "2 is needed; or give --points FILE (--url --save-points makes one), or MODEL and "
                 "--device");
}

Result<void> Watch::take(const MetricsSample& after) {
  const batch::SliceReading reading = slice_between(*before_, after);
  before_ = after;
  if (reading.fault == SliceFault::restarted) watcher_.forget();
  trouble(std::string(words_of(reading.fault)));
  if (reading.fault != SliceFault::none) return {};
  HEADROOM_TRY(hand_over(watcher_.observe(reading.slice)));
  tell_what_is_missing();
  return {};
}

Result<int> Watch::run() {
  HEADROOM_ASSIGN(before_, read());
  if (!before_->metrics.itl_seconds) {
    return Error{ErrorCode::unavailable, std::string(words_of(SliceFault::no_figures)),
                 question_.endpoint.metrics(), "vLLM has it, and SGLang with --enable-metrics"};
  }
  const EndBySignal until;
  const auto every = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(question_.every_seconds));
  Clock::time_point next = Clock::now() + every;
  const auto is_over = [&] {
    const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
    return question_.for_seconds && seconds >= *question_.for_seconds;
  };
  while (!is_over() && wait_until(next)) {
    next = std::max(next + every, Clock::now());
    const auto after = read();
    if (signal_told != 0) break;
    if (after) {
      HEADROOM_TRY(take(*after));
    } else {
      const Error& error = after.error();
      trouble(error.where + ": " + error.message + "; it is asked again");
    }
  }
  if (signal_told != 0) return kExitSignal + static_cast<int>(signal_told);
  if (!is_known_) {
    console_->note("it ended before B_opt was known: " + std::to_string(batch::Watcher::kFirst) +
                   " readings with traffic are needed, and "
                   "a law of the steps");
    return exit_code_of(ErrorCode::partial);
  }
  return changes_ > 0 ? kExitNotPlainYes : kExitYes;
}

std::string law_words(const std::optional<batch::StepBase>& base) {
  if (!base) return "by a law that it learns from the traffic";
  return "by the law of " + base->source + " (" + std::string(name_of(base->provenance)) + ")";
}

}  // namespace

Result<int> watch_server(const Words& words, const Console& console,
                         const batch::BatchQuestion& question, const text::JsonView* config,
                         const timing::TimingModel& model) {
  if (!question.open_load.targets.empty()) {
    return Error{ErrorCode::usage, "what is watched is the mean time between tokens", "--slo",
                 "itl=50ms or itl=2x@32"};
  }
  HEADROOM_ASSIGN(WatchQuestion watch, watch_question(words, question));
  HEADROOM_ASSIGN(std::optional<batch::StepBase> base, batch::base_of(question, config, model));
  HEADROOM_ASSIGN(const auto streams, serving::HttpStreams::make());
  console.note(text::formatted("watching every %g s ", watch.every_seconds) + law_words(base) +
               ": " + watch.endpoint.base);
  batch::Watcher watcher(watch.options, std::move(base));
  return Watch(std::move(watch), std::move(watcher), *streams, console).run();
}

}  // namespace headroom::cli

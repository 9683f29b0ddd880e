#include "report/sample_ops.h"

#include <algorithm>

#include "ops/ops.h"

namespace headroom::report {
namespace {

using formats::TraceEventKind;

class Writer {
 public:
  explicit Writer(const char* words) : words_(words) {
    trace_.file = words;
    trace_.format = "Kineto";
    trace_.devices.push_back({words, 0, 0});
    trace_.tracks = {{"100", words, false}, {"0", "7", true}, {"0", words, true}};
  }

  void add(TraceEventKind kind, const std::string& name, int64_t start_us, int64_t span_us,
           uint32_t track, int64_t correlation = 0, const std::string& detail = "") {
    formats::TraceEvent event;
    event.kind = kind;
    event.name = trace_.names.intern(name);
    event.start_ns = start_us * 1000;
    event.duration_ns = span_us * 1000;
    event.track = track;
    event.correlation = correlation;
    if (!detail.empty()) event.detail = trace_.names.intern(detail);
    trace_.events.push_back(event);
  }

  // An operator every 20 us, whose kernel takes 5 to 40; each ninth is a collective.
  int64_t write(int operators) {
    int64_t host = 10;
    int64_t free[2] = {0, 0};
    for (int i = 0; i < operators; ++i) {
      const bool is_collective = i % 9 == 8;
      const bool is_mm = i % 3 == 0;
      const uint32_t stream = is_collective ? 1 : 0;
      const int64_t span = 5 + i * 7 % 36;
      const int64_t start = std::max(host + 9, free[stream] + 1);
      const std::string name = i % 5 == 4 ? words_ : is_mm ? "aten::mm" : "aten::add";
      add(TraceEventKind::host_operator, name, host, 15, 0, 0,
          is_mm ? R"([[512,512],[512,512]] ["float","float"])" : R"([[512,512]] ["float"])");
      add(TraceEventKind::call, "cudaLaunchKernel", host + 3, 4, 0, i + 1);
      add(TraceEventKind::kernel,
          is_collective ? "ncclDevKernel_AllReduce"
          : is_mm       ? "sgemm"
                        : "elementwise_kernel",
          start, span, stream + 1, i + 1);
      free[stream] = start + span;
      host += i % 50 == 49 ? 400 : 20;
    }
    return host;
  }

  formats::Trace take(int64_t end) {
    for (int step = 0; step < 3; ++step) {
      add(TraceEventKind::step, "ProfilerStep#" + std::to_string(step), end * step / 3, end / 3, 0);
    }
    std::stable_sort(trace_.events.begin(), trace_.events.end(), [](const auto& a, const auto& b) {
      return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
    });
    return std::move(trace_);
  }

 private:
  std::string words_;
  formats::Trace trace_;
};

}  // namespace

namespace {

ops::RecordedRun run_of(const char* words, int operators, const ops::OperatorRules& rules) {
  Writer writer(words);
  const int64_t end = writer.write(operators);
  return *ops::run_of(writer.take(end), rules);
}

}  // namespace

SampleOps sample_ops(const char* words, int operators) {
  const ops::OperatorRules rules = *ops::OperatorRules::load("");
  const ops::RecordedRun run = run_of(words, operators, rules);
  device::Device device;
  device.name = words;
  device.bandwidth = {BytesPerSecond{1e12}, Provenance::datasheet, words};
  device.dense_rates[static_cast<size_t>(device::Rate::fp32)] = {FlopsPerSecond{1e13},
                                                                 Provenance::datasheet, words};
  SampleOps sample{ops::answer(run, rules, {.device = &device}), ops::timeline_of(run)};
  sample.answer.notes.emplace_back(words);
  return sample;
}

ops::OpsComparison sample_comparison(const char* words) {
  const ops::OperatorRules rules = *ops::OperatorRules::load("");
  ops::OpsComparison comparison =
      ops::compare(run_of(words, 300, rules), run_of(words, 360, rules), rules, 5.0);
  comparison.notes.emplace_back(words);
  return comparison;
}

ops::RanksAnswer sample_ranks(const char* words) {
  ops::RanksAnswer answer;
  for (int i = 0; i < 3; ++i) {
    ops::RankTimes rank;
    rank.file = rank.device = words;
    rank.rank = i;
    rank.steps = 2;
    rank.step_ms = 50;
    rank.kernel_ms = 20 + 5 * i;
    rank.communication_ms = 20 - 5 * i;
    rank.transfer_ms = 5;
    rank.waiting_ms = rank.exposed_ms = 15 - 5 * i;
    rank.idle_ms = 10;
    rank.collectives = 4;
    rank.last_count = i == 2 ? 4 : 0;
    rank.caused_ms = i == 2 ? 30 : 0;
    answer.ranks.push_back(rank);
  }
  answer.collectives.push_back({words, 4, 3, 10, 5, 2});
  answer.straggler = 2;
  answer.straggler_pct = answer.matched_pct = 100;
  answer.notes.emplace_back(words);
  return answer;
}

ops::PredictedRun sample_predicted(const char* words) {
  ops::PredictedRun run;
  run.model = run.device = run.engine = words;
  run.batch = 8;
  run.seq = 1024;
  run.fits = false;
  run.needed = Bytes(48 * kGiB);
  run.available = Bytes(24 * kGiB);
  run.step_ms_low = 8;
  run.step_ms = 10;
  run.step_ms_high = 13;
  run.roofline_ms = 6;
  run.unchanged_ms = 12;
  run.parts = {
      {"gemm", "GEMM", 5, 7, 10, 70, 2e12, 3e9, 1.4, 1.5, 1.6, "extrapolated", words},
      {"host", "host and sampling", 2, 3, 4, 30, 0, 0, 1.1, 1.2, 1.3, "extrapolated", words}};
  run.notes.emplace_back(words);
  return run;
}

}  // namespace headroom::report

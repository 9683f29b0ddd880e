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

SampleOps sample_ops(const char* words, int operators) {
  const ops::OperatorRules rules = *ops::OperatorRules::load("");
  Writer writer(words);
  const int64_t end = writer.write(operators);
  const ops::RecordedRun run = *ops::run_of(writer.take(end), rules);
  device::Device device;
  device.name = words;
  device.bandwidth = {BytesPerSecond{1e12}, Provenance::datasheet, words};
  device.dense_rates[static_cast<size_t>(device::Rate::fp32)] = {FlopsPerSecond{1e13},
                                                                 Provenance::datasheet, words};
  SampleOps sample{ops::answer(run, rules, &device), ops::timeline_of(run)};
  sample.answer.notes.emplace_back(words);
  return sample;
}

}  // namespace headroom::report

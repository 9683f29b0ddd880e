// The trace event format: "Trace Event Format", the document of Chrome's catapult project; the
// events used are M (names), X (slices with a duration) and C (counters).
#include "pack/exports.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "text/csv.h"
#include "text/json.h"

namespace headroom::pack {
namespace {

// Moments of the recording in microseconds.
class Clock {
 public:
  explicit Clock(const PackAnswer& answer) {
    if (answer.recording) entry_us_ = &answer.recording->entry_us;
  }
  [[nodiscard]] bool has_times() const { return entry_us_ != nullptr && !entry_us_->empty(); }
  // Moment t is that of entry t - 1; before the first entry is when the recording begins.
  [[nodiscard]] int64_t us(int64_t moment) const {
    if (!has_times()) return moment;
    const auto last = static_cast<int64_t>(entry_us_->size());
    const int64_t entry = std::clamp<int64_t>(moment, 1, last) - 1;
    return (*entry_us_)[static_cast<size_t>(entry)];
  }

 private:
  const std::vector<int64_t>* entry_us_ = nullptr;
};

std::string site_of(const PackAnswer& answer, size_t request) {
  if (!answer.recording || request >= answer.recording->blocks.size()) return {};
  const SiteNames& sites = answer.recording->sites;
  const uint32_t site = sites.site_of(answer.recording->blocks[request].stack);
  return site == 0 ? std::string() : sites.site(site).words();
}

// For each request the lowest lane of its stream that is free while it lives.
std::vector<size_t> lanes_of(const PackAnswer& answer) {
  std::vector<size_t> order(answer.requests.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return answer.requests[a].request.lower < answer.requests[b].request.lower;
  });
  struct Stream {
    // Lanes in use by the moment in which they come free, and free ones.
    std::priority_queue<std::pair<int64_t, size_t>, std::vector<std::pair<int64_t, size_t>>,
                        std::greater<>>
        taken;
    std::priority_queue<size_t, std::vector<size_t>, std::greater<>> vacant;
    size_t count = 0;
  };
  std::vector<Stream> streams(answer.streams);
  std::vector<size_t> lanes(answer.requests.size());
  for (const size_t index : order) {
    const PlannedRequest& planned = answer.requests[index];
    Stream& stream = streams[static_cast<size_t>(planned.stream)];
    while (!stream.taken.empty() && stream.taken.top().first <= planned.request.lower) {
      stream.vacant.push(stream.taken.top().second);
      stream.taken.pop();
    }
    if (stream.vacant.empty()) stream.vacant.push(stream.count++);
    lanes[index] = stream.vacant.top();
    stream.vacant.pop();
    stream.taken.emplace(planned.request.upper, lanes[index]);
  }
  return lanes;
}

class TraceWriter {
 public:
  explicit TraceWriter(const PackAnswer& answer) : answer_(answer), clock_(answer) {}

  std::string write() {
    out_ =
        "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"source\":" + text::quote_json(answer_.file) +
        ",\"time\":" +
        (clock_.has_times() ? "\"microseconds since the first entry\""
                            : "\"one microsecond an entry, as none is recorded\"") +
        "},\"traceEvents\":[";
    name(0, "memory of device " + std::to_string(answer_.device));
    for (size_t i = 0; i < answer_.streams; ++i) {
      name(i + 1, "requests of stream " + std::to_string(i));
    }
    add_slices();
    add_live();
    add_held();
    return std::move(out_) + "\n]}\n";
  }

 private:
  void begin() {
    out_ += is_first_ ? "\n" : ",\n";
    is_first_ = false;
  }
  void name(size_t process, const std::string& words) {
    begin();
    out_ += R"({"ph":"M","name":"process_name","pid":)" + std::to_string(process) +
            R"(,"tid":0,"args":{"name":)" + text::quote_json(words) + "}}";
  }
  void counter(const char* what, int64_t time_us, int64_t bytes) {
    begin();
    out_ += R"({"ph":"C","pid":0,"tid":0,"name":")" + std::string(what) + R"(","ts":)" +
            std::to_string(time_us) + R"(,"args":{"bytes":)" + std::to_string(bytes) + "}}";
  }

  void add_slices() {
    const std::vector<size_t> lanes = lanes_of(answer_);
    for (size_t i = 0; i < answer_.requests.size(); ++i) {
      const PlannedRequest& planned = answer_.requests[i];
      const int64_t start = clock_.us(planned.request.lower);
      std::string label = site_of(answer_, i);
      if (label.empty()) label = format_bytes(Bytes(planned.request.size));
      begin();
      out_ += R"({"ph":"X","pid":)" + std::to_string(planned.stream + 1) + R"(,"tid":)" +
              std::to_string(lanes[i]) + R"(,"ts":)" + std::to_string(start) + R"(,"dur":)" +
              std::to_string(clock_.us(planned.request.upper) - start) + R"(,"name":)" +
              text::quote_json(label) + R"(,"args":{"id":)" + text::quote_json(planned.id) +
              R"(,"size_bytes":)" + std::to_string(planned.request.size) + R"(,"planned_offset":)" +
              std::to_string(planned.offset);
      if (answer_.recording && i < answer_.recording->blocks.size()) {
        out_ += R"(,"address":)" + std::to_string(answer_.recording->blocks[i].address);
      }
      out_ += "}}";
    }
  }

  // A counter at every moment at which the sum of `changes` differs from before.
  void add_counter(const char* what, std::vector<std::pair<int64_t, int64_t>> changes) {
    std::stable_sort(changes.begin(), changes.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    int64_t sum = 0;
    for (size_t i = 0; i < changes.size();) {
      const int64_t time_us = changes[i].first;
      for (; i < changes.size() && changes[i].first == time_us; ++i) {
        sum = checked_add(sum, changes[i].second).value_or(sum);
      }
      counter(what, time_us, sum);
    }
  }
  void add_live() {
    std::vector<std::pair<int64_t, int64_t>> changes;
    for (const PlannedRequest& planned : answer_.requests) {
      changes.emplace_back(clock_.us(planned.request.lower), planned.request.size);
      changes.emplace_back(clock_.us(planned.request.upper), -planned.request.size);
    }
    add_counter("requested", std::move(changes));
  }
  void add_held() {
    if (!answer_.recording) return;
    std::vector<std::pair<int64_t, int64_t>> changes;
    for (const memory::HeldRange& range : answer_.recording->held) {
      changes.emplace_back(clock_.us(range.lower), range.size);
      changes.emplace_back(clock_.us(range.upper), -range.size);
    }
    add_counter("reserved", std::move(changes));
  }

  const PackAnswer& answer_;
  Clock clock_;
  std::string out_;
  bool is_first_ = true;
};

}  // namespace

std::string chrome_trace_of(const PackAnswer& answer) { return TraceWriter(answer).write(); }

std::string requests_csv_of(const PackAnswer& answer) {
  const Clock clock(answer);
  text::CsvWriter writer(
      {"id", "lower", "upper", "size", "stream", "address", "begin_us", "end_us", "site"});
  for (size_t i = 0; i < answer.requests.size(); ++i) {
    const PlannedRequest& planned = answer.requests[i];
    const bool is_recorded = answer.recording && i < answer.recording->blocks.size();
    const auto time = [&](int64_t moment) {
      return clock.has_times() ? std::to_string(clock.us(moment)) : std::string();
    };
    writer.row({planned.id, std::to_string(planned.request.lower),
                std::to_string(planned.request.upper), std::to_string(planned.request.size),
                std::to_string(planned.stream),
                is_recorded ? std::to_string(answer.recording->blocks[i].address) : std::string(),
                time(planned.request.lower), time(planned.request.upper), site_of(answer, i)});
  }
  return writer.text();
}

}  // namespace headroom::pack

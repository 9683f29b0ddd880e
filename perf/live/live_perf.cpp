// What the load generator is worth: its stamps beside the server's own, and how much it can take.
//
//   headroom_live_perf truth STREAMS [SECONDS]          a server of this program, steps of ~40 ms
//   headroom_live_perf ceiling URL STREAMS SECONDS [INPUT OUTPUT]   a server elsewhere, so long
//
// One JSON object. `truth` puts the server's record of what it received and handed to the kernel
// through the same definitions (serving/load_summary.h) and the same window as the client's.
// `ceiling` counts chunks by second of this process's processor time, as python_client.py does;
// peers.py holds it against other load generators.
#include <sys/resource.h>

#include <cstdio>
#include <string>

#include "serving/load_summary.h"
#include "serving/testing/test_server.h"
#include "text/json.h"
#include "text/parse_number.h"

namespace headroom {
namespace {

using serving::LoadRun;
using serving::LoadSummary;
using text::Json;

[[noreturn]] void give_up(const std::string& words) {
  std::fprintf(stderr, "%s\n", words.c_str());
  std::exit(1);
}

template <typename T>
T need(Result<T> result) {
  if (!result) give_up(result.error().to_string());
  return std::move(result).value();
}

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

serving::LoadPlan plan_for(double seconds) {
  serving::LoadPlan plan;
  plan.lengths = {{.input_tokens = 50, .output_tokens = 60},
                  {.input_tokens = 100, .output_tokens = 140}};
  plan.most_seconds = seconds;
  return plan;
}

// The server's own record, in the client's window.
LoadRun run_of(const testing::TestServer& server, const LoadRun& client) {
  LoadRun run;
  run.concurrency = client.concurrency;
  run.window_begin = client.window_begin;
  run.window_end = client.window_end;
  const auto seconds = [&](testing::Clock::time_point at) {
    return std::chrono::duration<double>(at - client.began).count();
  };
  for (const testing::ServedRequest& served : server.records()) {
    serving::RequestRecord record;
    record.began = seconds(served.received);
    for (const auto& at : served.sent) record.arrived.push_back(seconds(at));
    if (!record.arrived.empty()) record.ended = record.arrived.back();
    record.is_finished = served.is_whole;
    record.output_asked = record.input_asked = 1;
    record.prompt_tokens = served.prompt_tokens;
    record.completion_tokens = served.tokens;
    run.requests.push_back(std::move(record));
  }
  return run;
}

Json figures(const LoadSummary& summary) {
  return Json::object()
      .set("ttft_count", summary.ttft.count)
      .set("ttft_mean_ms", summary.ttft.mean * 1e3)
      .set("ttft_p50_ms", summary.ttft.p50 * 1e3)
      .set("ttft_p99_ms", summary.ttft.p99 * 1e3)
      .set("itl_mean_ms", summary.itl_seconds * 1e3)
      .set("itl_p50_ms", summary.itl_chunks.p50 * 1e3)
      .set("itl_p99_ms", summary.itl_chunks.p99 * 1e3)
      .set("tpot_mean_ms", summary.tpot.mean * 1e3)
      .set("throughput_tokens_per_second", summary.throughput_tokens_per_second)
      .set("running_mean", summary.running_mean);
}

Json lag_json(const LoadSummary& summary) {
  return Json::object()
      .set("mean_ms", summary.lag.mean_seconds * 1e3)
      .set("p99_ms", summary.lag.p99_seconds * 1e3)
      .set("busy_pct", summary.lag.busy_share * 100);
}

Json truth(int64_t streams, double seconds) {
  const auto server = testing::TestServer::start(
      {.base_ms = 20, .per_sequence_ms = 0.08, .prefill_us = 2, .max_running = 4096});
  const auto http = need(serving::HttpStreams::make());
  serving::ServerQuestion question;
  question.endpoint = need(serving::parse_endpoint(server->url()));
  const serving::Server known = need(serving::probe_server(*http, question));
  LoadRun run;
  {
    serving::LoadGenerator generator(*http, known, plan_for(seconds));
    run = need(generator.measure(streams, {.least_seconds = seconds, .precision = 0}));
  }
  server->stop();
  const LoadSummary client = need(serving::summarise(run));
  const LoadSummary own = need(serving::summarise(run_of(*server, run)));
  return Json::object()
      .set("streams", streams)
      .set("window_seconds", client.window_seconds)
      .set("client", figures(client))
      .set("server", figures(own))
      .set("lag", lag_json(client))
      .set("is_void", client.is_void)
      .set("server_most_late_ms", server->most_late_seconds() * 1e3);
}

Json ceiling(const std::string& url, int64_t streams, const serving::LoadPlan& plan) {
  const double seconds = plan.most_seconds;
  const auto http = need(serving::HttpStreams::make());
  serving::ServerQuestion question;
  question.endpoint = need(serving::parse_endpoint(url));
  const serving::Server known = need(serving::probe_server(*http, question));
  serving::LoadGenerator generator(*http, known, plan);
  const double before = processor_seconds();
  const LoadRun run = need(generator.measure(streams, {.least_seconds = seconds, .precision = 0}));
  const double processor = processor_seconds() - before;
  double chunks = 0;
  for (const serving::RequestRecord& request : run.requests) {
    chunks += static_cast<double>(request.arrived.size());
  }
  return Json::object()
      .set("client", "headroom")
      .set("streams", streams)
      .set("chunks", chunks)
      .set("seconds", run.window_end)
      .set("processor_seconds", processor)
      .set("chunks_per_second", chunks / run.window_end)
      .set("chunks_per_processor_second", chunks / processor)
      .set("lag", lag_json(need(serving::summarise(run))));
}

double number(const char* word) {
  const auto value = text::parse_number<double>(word);
  if (!value) give_up(std::string("not a number: ") + word);
  return *value;
}

int64_t whole(const char* word) { return static_cast<int64_t>(number(word)); }

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  using namespace headroom;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() >= 2 && words[0] == "truth") {
    const double seconds = words.size() > 2 ? number(argv[3]) : 10;
    std::puts(truth(whole(argv[2]), seconds).dump().c_str());
  } else if ((words.size() == 4 || words.size() == 6) && words[0] == "ceiling") {
    serving::LoadPlan plan = plan_for(number(argv[4]));
    if (words.size() == 6) plan.lengths = {{whole(argv[5]), whole(argv[6])}};
    std::puts(ceiling(words[1], whole(argv[3]), plan).dump().c_str());
  } else {
    give_up(
        "headroom_live_perf truth STREAMS [SECONDS] | ceiling URL STREAMS SECONDS [INPUT OUTPUT]");
  }
  return 0;
}

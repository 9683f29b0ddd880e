#include "report/batch/watch.h"

#include <gtest/gtest.h>

namespace headroom::report {
namespace {

batch::WatchReport sample() {
  batch::WatchReport report;
  report.seconds = 600;
  report.in_flight = 48;
  report.itl_seconds = 0.044;
  report.throughput_tokens_per_second = 1090;
  report.waiting = 3;
  report.prompt_tokens_mean = 1500;
  report.output_tokens_mean = 338;
  report.is_known = true;
  report.source = "sweep.csv";
  report.advice = {.batch = 32, .low = 24, .high = 32};
  report.limit = 96;
  report.limit_after = 32;
  report.event = batch::WatchEvent::change;
  report.at_opt = batch::WatchFigures{{900, 1000, 1100}, {0.029, 0.032, 0.035}, 1.2};
  report.at_limit = batch::WatchFigures{{1100, 1250, 1400}, {0.07, 0.08, 0.09}, 3.6};
  return report;
}

TEST(WatchReport, AChangeSaysFromWhatToWhatAndWhatItPays) {
  const std::string line = watch_line(sample());
  EXPECT_EQ(line.rfind("change the batch limit from 96 to 32 (90 % interval 24 to 32): ", 0), 0U);
  EXPECT_NE(line.find("32 ms (29 to 35) between tokens, 1000 tokens/s"), std::string::npos) << line;
  EXPECT_NE(line.find("-20 % throughput and -60 % time between tokens"), std::string::npos) << line;
  EXPECT_NE(line.find("120 % full"), std::string::npos) << line;
  EXPECT_NE(line.find("prompts of 1500"), std::string::npos) << line;
}

TEST(WatchReport, NoBatchAtAll) {
  batch::WatchReport report = sample();
  report.advice = {};
  report.at_opt.reset();
  EXPECT_NE(watch_line(report).find("from 96 to none"), std::string::npos);
  report.event = batch::WatchEvent::first;
  EXPECT_EQ(watch_line(report).rfind("no batch meets the target", 0), 0U);
  EXPECT_TRUE(watch_json(report, {}).dump().find("\"at_batch_opt\":null") != std::string::npos);
}

TEST(WatchReport, PrometheusTextEscapesItsLabelAndHasWholeLines) {
  const std::string text = watch_prometheus(sample(), {"http://h/\"x\\\n", 1.5e9, 2});
  EXPECT_NE(text.find("headroom_batch_opt{url=\"http://h/\\\"x\\\\?\"} 32\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("headroom_batch_limit{"), std::string::npos);
  EXPECT_NE(text.find("headroom_batch_changes_total{url=\"http://h/\\\"x\\\\?\"} 2\n"),
            std::string::npos);
  EXPECT_EQ(text.back(), '\n');
}

}  // namespace
}  // namespace headroom::report

#include "report/run.h"

#include <gtest/gtest.h>

namespace headroom::report {
namespace {

constexpr int64_t kGiBytes = int64_t{1} << 30;

run::RunAnswer one(run::Outcome outcome) {
  run::ProcessReport process;
  process.outcome = outcome;
  process.ended = true;
  process.pid = 41;
  process.rank = 0;
  run::DeviceFigures device;
  device.peak_allocated = Bytes(50 * kGiBytes);
  device.peak_reserved = Bytes(60 * kGiBytes);
  process.devices.push_back(device);
  run::RunAnswer answer;
  answer.started = true;
  answer.processes.push_back(process);
  return answer;
}

TEST(RunText, ALineForARankThatWasServed) {
  run::RunAnswer answer = one(run::Outcome::served);
  run::DeviceFigures& device = answer.processes[0].devices[0];
  device.reserved_before = Bytes(60 * kGiBytes);
  device.reserved_after = Bytes(51 * kGiBytes);
  device.requests = 1000;
  device.planned = 980;
  device.reused = 15;
  device.fallen_back = 5;
  device.outside = Bytes(2 * kGiBytes);
  EXPECT_EQ(run_text(answer, {}),
            "headroom: rank 0, cuda:0: 60.00 GiB reserved, 51.00 GiB with the plan (-15.0 %); "
            "98.0 % planned, 1.5 % reused, 0.5 % fallen back; 2.00 GiB outside our reach\n");
  text::Terminal terminal;
  terminal.columns = 100;
  EXPECT_EQ(run_text(answer, terminal),
            "headroom: rank 0, cuda:0: 60.00 GiB reserved, 51.00 GiB with the plan (-15.0 %); 98.0 "
            "% planned, 1.5\n"
            "          % reused, 0.5 % fallen back; 2.00 GiB outside our reach\n");
  terminal.columns = 60;
  EXPECT_EQ(run_text(answer, terminal),
            "headroom: rank 0, cuda:0: 60.00 GiB reserved, 51.00 GiB with\n"
            "          the plan (-15.0 %); 98.0 % planned, 1.5 % reused,\n"
            "          0.5 % fallen back; 2.00 GiB outside our reach\n");
}

TEST(RunText, WhyThereIsNoPlanAndWhereItCameFrom) {
  run::RunAnswer answer = one(run::Outcome::served);
  run::DeviceFigures& device = answer.processes[0].devices[0];
  device.iterations = 1;
  device.plan_reason = "no iterations found yet";
  EXPECT_NE(
      run_text(answer, {}).find("; no plan served (saw 1 iteration; no iterations found yet)"),
      std::string::npos);
  device.requests = device.planned = 10;
  device.plan_source = "kept";
  EXPECT_NE(run_text(answer, {}).find("; a kept plan: 100.0 % planned, "), std::string::npos);
}

TEST(RunText, PyTorchsOwnInTheSameWords) {
  EXPECT_EQ(run_text(one(run::Outcome::off), {}),
            "headroom: rank 0, cuda:0: 60.00 GiB reserved, 50.00 GiB allocated at the peak; "
            "PyTorch's own allocator\n");
}

TEST(RunText, AKilledProcessSaysSo) {
  run::RunAnswer answer = one(run::Outcome::recorded);
  answer.processes[0].ended = false;
  answer.processes[0].rank.reset();
  answer.processes[0].recordings = {"r/a.hrec"};
  answer.signal = 9;
  EXPECT_EQ(run_text(answer, {}),
            "headroom: process 41, cuda:0: 60.00 GiB reserved, 50.00 GiB allocated at the peak; "
            "recorded 0 iterations; killed: this is what it had told\n"
            "headroom: recording: r/a.hrec\n"
            "headroom: the command was ended by signal 9\n");
}

TEST(RunText, NothingToDoIsOneLine) {
  run::RunAnswer answer;
  answer.started = true;
  EXPECT_EQ(run_text(answer, {}),
            "headroom: nothing to do: no Python process of this command imported torch\n");
  answer.exit_code = 137;  // nobody can tell then
  EXPECT_EQ(
      run_text(answer, {}),
      "headroom: no figures: no Python process of this command imported torch, or none came to "
      "its end\n");
  answer.exit_code = 0;
  run::ProcessReport idle;
  idle.reason = "this PyTorch is built without CUDA";
  answer.processes = {idle, idle};
  EXPECT_EQ(run_text(answer, {}),
            "headroom: nothing to do: no CUDA was used by the 2 processes that imported torch "
            "(this PyTorch is built without CUDA)\n");
}

TEST(RunText, ARefusalIsNotNothing) {
  run::RunAnswer answer = one(run::Outcome::refused);
  answer.processes[0].devices.clear();
  answer.processes[0].reason = "CUDA was used before";
  EXPECT_EQ(run_text(answer, {}), "headroom: rank 0: not installed: CUDA was used before\n");
}

TEST(RunJson, FiguresThatAreNotThereAreNull) {
  const text::Json json = run_json(one(run::Outcome::off));
  const text::Json& device = json.find("processes")->items()[0].find("devices")->items()[0];
  EXPECT_TRUE(device.find("reserved_after_bytes")->is_null());
  EXPECT_EQ(device.find("peak_reserved_bytes")->as_int(), 60 * kGiBytes);
}

}  // namespace
}  // namespace headroom::report

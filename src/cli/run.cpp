#include "run/run.h"

#include <algorithm>
#include <array>

#include "base/file.h"
#include "cli/verb.h"
#include "report/run.h"

namespace headroom::cli {
namespace {

constexpr int kExitOurs = 125;  // as `timeout` and `env` have it; 126 and 127 are a shell's

Error usage(std::string message, std::string hint) {
  return Error{ErrorCode::usage, std::move(message), "", std::move(hint)};
}

// What a script may need that an allocator behind PyTorch's C interface cannot serve; the glue
// (python/headroom/run/needs.py) knows the same words.
constexpr std::array<std::string_view, 6> kNeeds{"cudnn-benchmark", "cuda-graph-trees", "cuda-ipc",
                                                 "mempool",         "profiler-memory",  "all"};

Result<std::vector<std::string>> accepted_needs(std::string words) {
  std::vector<std::string> accepted;
  while (!words.empty()) {
    const size_t end = std::min(words.find(','), words.size());
    const std::string word = words.substr(0, end);
    if (std::find(kNeeds.begin(), kNeeds.end(), word) == kNeeds.end()) {
      return usage("--accept knows no '" + word.substr(0, 80) + "'",
                   "cudnn-benchmark, cuda-graph-trees, cuda-ipc, mempool, profiler-memory, all");
    }
    accepted.push_back(word);
    words.erase(0, end + 1);
  }
  return accepted;
}

Result<run::RunQuestion> question_of(const Words& words) {
  run::RunQuestion question;
  question.command = words.command;
  if (question.command.empty() || question.command.front().empty()) {
    return usage("which command?", "headroom run -- python train.py");
  }
  const int modes = int{words.has("record")} + int{words.has("plan")} + int{words.has("off")};
  if (modes > 1) return usage("--record, --plan and --off are three ways: take one", "");
  if (words.has("record")) question.mode = run::Mode::record;
  if (words.has("plan")) question.mode = run::Mode::serve;
  if (words.has("off")) question.mode = run::Mode::off;
  question.record_folder = words.value("record");
  question.plan_file = words.value("plan");
  question.measure_file = words.value("measure");
  if (question.measure_file == "-") return usage("--measure adds to a file", "");
  question.without_shim = words.has("no-shim");
  HEADROOM_ASSIGN(question.accepted, accepted_needs(words.value("accept")));
  return question;
}

// Stdout is the command's own, so the answer goes to stderr, or to the file that is named.
Result<void> hand_over(const run::RunAnswer& answer, const Words& words, const Console& console) {
  const bool has_file = words.has("output");
  const text::Terminal plain;
  const std::string content = words.has("json")
                                  ? report::run_json(answer).dump(2) + "\n"
                                  : report::run_text(answer, has_file ? plain : console.err);
  if (has_file) return write_file_atomic(words.value("output"), content);
  // What a program asked for is no remark.
  const bool is_wanted = words.has("json") || !console.quiet;
  if (is_wanted) std::fwrite(content.data(), 1, content.size(), stderr);
  return {};
}

Result<int> build_shim(const Words& words, const Console& console) {
  if (words.command.size() > 1) {
    return usage("--build-shim takes a Python alone", "headroom run --build-shim -- python3");
  }
  const std::string python = words.command.empty() ? "python3" : words.command.front();
  HEADROOM_ASSIGN(const ForegroundResult child, run::build_shim(python, words.has("json")));
  // Our module says why in its own words, with these exit codes (python/headroom/run/shim).
  const bool has_said = child.exit_code == kExitYes ||
                        child.exit_code == exit_code_of(ErrorCode::usage) ||
                        child.exit_code == exit_code_of(ErrorCode::unavailable);
  if (!child.started || !has_said) {
    const std::string ended = child.started
                                  ? "ended with exit code " + std::to_string(child.exit_code) +
                                        ", and the shim was not built"
                                  : "cannot be run: " + child.reason;
    console.complain({ErrorCode::unavailable, ended, python,
                      "headroom run --build-shim -- PYTHON names another"});
  }
  return child.exit_code;
}

Result<int> run_run(const Words& words, const Console& console) {
  if (words.has("build-shim")) return build_shim(words, console);
  HEADROOM_ASSIGN(const run::RunQuestion question, question_of(words));
  if (words.has("output")) HEADROOM_TRY(check_writable(words.value("output")));
  if (const Result<void> plan = run::check_plan(question); !plan) console.complain(plan.error());
  HEADROOM_ASSIGN(const run::RunAnswer answer, run::answer(question));
  if (!answer.started) {
    console.complain(
        {ErrorCode::unavailable, "cannot be run: " + answer.reason, question.command.front(), ""});
    return answer.exit_code;
  }
  // The command has run: what becomes of our words does not change how it ended.
  if (const Result<void> handed = hand_over(answer, words, console); !handed) {
    console.complain(handed.error());
  }
  return answer.exit_code;
}

}  // namespace

Verb run_verb() {
  Verb verb;
  verb.name = "run";
  verb.summary = "a PyTorch command with the planned allocator inside, nothing else changed";
  verb.operands = "[flags] -- COMMAND...";
  verb.takes_command = true;
  verb.failure_exit = kExitOurs;
  verb.examples = {
      {"headroom run -- python train.py --lr 3e-4",
       "records the first iterations, plans, serves from the plan; one line a rank at the end"},
      {"headroom run -- torchrun --nproc-per-node 8 train.py",
       "every process that it starts, as with accelerate launch; under Slurm: srun headroom run -- "
       "python train.py"},
      {"headroom run --off -- python train.py",
       "PyTorch's own allocator, in the same words: for comparison"},
      {"headroom run --record recordings -- python train.py",
       "only records; headroom pack recordings/*.hrec tells what a plan would give"},
      {"headroom run --plan step.plan -- python train.py",
       "serves from a plan of headroom pack; %r in the name is the rank, %d the device"},
      {"headroom run --build-shim -- python",
       "once for each PyTorch: compiles what serves cudnn.benchmark, CUDA-graph trees, MemPool and "
       "the profiler's memory events, too"},
      {"headroom run --off --measure mine.csv -- python train.py",
       "adds setting and peaks to a file for headroom fit --against mine.csv"},
  };
  verb.flags = {
      {"record", "DIR", "only record: one file a rank and device (docs/formats/recording.md)"},
      {"plan", "FILE", "serve from this plan; nothing is recorded and no other plan is made"},
      {"off", "", "leave PyTorch's allocator as it is, and tell what it did"},
      {"measure", "FILE.csv", "add the setting and the peaks as rows for fit --against"},
      {"accept", "NEED,...",
       "run although the script asks for something that this allocator cannot serve: "
       "cudnn-benchmark (stays off), cuda-graph-trees, cuda-ipc, mempool (raise where they are "
       "used), profiler-memory (shows no device memory), all; the shim serves all but cuda-ipc"},
      {"build-shim", "",
       "compile the shim for the PyTorch of the Python that is named (python3), with its headers "
       "and CUDA's; nothing is run"},
      {"no-shim", "", "do without the shim, though one was built"},
      {"json", "", "the answer as one JSON object, where the lines would stand"},
      {"output", "FILE", "write the answer there; without it it goes to stderr", 'o'},
      kQuietFlag,
      kNoColorFlag,
      kHelpFlag};
  verb.terms = {
      {"measured", "on one GPU at a time so far, H100 and H200: docs/run.md"},
      {"planned", "served at the address that the plan has for the request"},
      {"reused", "served in planned space that was idle"},
      {"fallen back", "served by best fit, as nothing in the plan matched"},
      {"outside our reach", "CUDA context, NCCL, other libraries, other processes"},
      {"shim", "our allocator behind PyTorch's C++ interface: see docs/run.md"},
      {"exit code", "the command's; 125 a failure of ours, 126 and 127 it cannot be started"}};
  verb.run = run_run;
  return verb;
}

}  // namespace headroom::cli

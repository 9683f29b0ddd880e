#include "pack/exports.h"
#include "pack/pack.h"

#include <cmath>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/version.h"
#include "cli/deliver.h"
#include "cli/verb.h"
#include "pack/comparison.h"
#include "pack/oom.h"
#include "pack/ranks.h"
#include "report/pack/html.h"
#include "report/pack/json.h"
#include "report/pack/oom_json.h"
#include "report/pack/oom_text.h"
#include "report/pack/ranks.h"
#include "report/pack/text.h"
#include "text/quantity.h"

namespace headroom::cli {
namespace {

// "80GiB", or bytes without a unit, as instances have them.
Result<Bytes> bytes(const std::string& word, std::string_view flag) {
  const bool is_bare = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
  if (!is_bare) return text::parse_bytes(word, "--" + std::string(flag));
  HEADROOM_ASSIGN(const int64_t count, number_of<int64_t>(word, flag, 0, memory::kMaxPackingBytes));
  return Bytes(count);
}

Result<pack::PackQuestion> question_of(const Words& words) {
  if (words.operands.empty()) {
    return Error{ErrorCode::usage, "which recording?", "",
                 "a snapshot of torch.cuda.memory._dump_snapshot(), a recording of Headroom's, a "
                 "profiler's trace with memory events, or a CSV instance"};
  }
  pack::PackQuestion question;
  question.file = words.operands.front();
  if (words.has("alignment")) {
    HEADROOM_ASSIGN(const Bytes alignment, bytes(words.value("alignment"), "alignment"));
    if (alignment.count < 1 || alignment.count > memory::kMaxPackingAlignment) {
      return Error{ErrorCode::usage, "--alignment takes 1 to 2^40 bytes", "", ""};
    }
    question.alignment = alignment.count;
  }
  if (words.has("gpu")) {
    HEADROOM_ASSIGN(const int64_t gpu, number_of<int64_t>(words.value("gpu"), "gpu", 0, 1 << 16));
    question.gpu = gpu;
  }
  if (words.has("capacity")) {
    HEADROOM_ASSIGN(const Bytes capacity, bytes(words.value("capacity"), "capacity"));
    question.capacity = capacity;
  }
  if (words.has("budget")) {
    HEADROOM_ASSIGN(const double seconds,
                    number_of<double>(words.value("budget"), "budget", 0.0, 1e6));
    question.budget_seconds = seconds;
  }
  if (words.has("seed")) {
    HEADROOM_ASSIGN(question.seed, number_of<uint64_t>(words.value("seed"), "seed"));
  }
  return question;
}

Result<void> write_beside(const Words& words, std::string_view flag, const std::string& content,
                          const Console& console) {
  const std::string path = words.value(flag);
  if (path == "-") return console.answer(content);
  HEADROOM_TRY(write_file_atomic(path, content));
  console.note("wrote " + path);
  return {};
}

// What stands on the command line is a file with the message, not a recording.
Result<int> run_oom(const Words& words, const Console& console) {
  for (const char* flag : {"csv", "chrome", "plan", "placements", "baseline", "capacity", "gpu"}) {
    if (!words.has(flag)) continue;
    return Error{ErrorCode::usage, "a message has no requests to be planned or written",
                 std::string("--") + flag, "give a recording without --oom"};
  }
  const std::string file = words.operands.empty() ? "-" : words.operands.front();
  HEADROOM_ASSIGN(const pack::OomAnswer answer, pack::explain_oom_file(file));
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) { return report::oom_text(answer, terminal); };
  forms.json = [&] { return report::oom_json(answer); };
  HEADROOM_TRY(deliver(forms, words, console));
  return answer.is_partial() ? exit_code_of(ErrorCode::partial) : kExitYes;
}

report::Page page_of(std::string title, std::vector<report::Section> sections, const Words& words) {
  return {std::move(title), "pack", std::string(version()), command_line("pack", words),
          std::move(sections)};
}

Result<int> run_ranks(const Words& words, const Console& console) {
  HEADROOM_ASSIGN(const pack::PackQuestion question, question_of(words));
  HEADROOM_ASSIGN(const pack::RanksAnswer answer, pack::answer_ranks(question, words.operands));
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) { return report::ranks_text(answer, terminal); };
  forms.json = [&] { return report::ranks_json(answer); };
  forms.page = [&] {
    return page_of("Memory of " + std::to_string(answer.ranks.size()) + " recordings",
                   report::ranks_sections(answer), words);
  };
  HEADROOM_TRY(deliver(forms, words, console));
  return answer.is_whole() ? kExitYes : exit_code_of(ErrorCode::partial);
}

Result<int> run_comparison(const Words& words, const Console& console) {
  HEADROOM_ASSIGN(const pack::PackQuestion question, question_of(words));
  HEADROOM_ASSIGN(const pack::Comparison comparison,
                  pack::compare(question, words.value("baseline")));
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::comparison_text(comparison, terminal);
  };
  forms.json = [&] { return report::comparison_json(comparison); };
  forms.page = [&] {
    return page_of("What grew in " + comparison.file, report::comparison_sections(comparison),
                   words);
  };
  HEADROOM_TRY(deliver(forms, words, console));
  if (comparison.is_partial) return exit_code_of(ErrorCode::partial);
  return comparison.grew() ? kExitNotPlainYes : kExitYes;
}

// Flags that ask for something else than what is looked at, or that concern one recording.
Result<void> check_together(const Words& words) {
  const bool are_several = words.operands.size() > 1;
  for (const char* const flag : {"plan", "placements", "csv", "chrome", "capacity"}) {
    if (words.has(flag) && (are_several || words.has("baseline"))) {
      return Error{ErrorCode::usage, "--" + std::string(flag) + " is about one recording", "", ""};
    }
  }
  if (are_several && words.has("oom")) {
    return Error{ErrorCode::usage, "--oom explains one file at a time", "", ""};
  }
  if (words.has("baseline") && (are_several || words.has("oom"))) {
    return Error{ErrorCode::usage, "--baseline compares two recordings", "",
                 "headroom pack LATER.pickle --baseline EARLIER.pickle"};
  }
  return {};
}

Result<void> write_exports(const Words& words, const pack::PackAnswer& answer,
                           const Console& console) {
  if (words.has("csv")) {
    HEADROOM_TRY(write_beside(words, "csv", pack::requests_csv_of(answer), console));
  }
  if (words.has("chrome")) {
    HEADROOM_TRY(write_beside(words, "chrome", pack::chrome_trace_of(answer), console));
  }
  return {};
}

// Written over each other, or over what is read, they would be lost.
Result<void> check_files_apart(const Words& words) {
  std::map<std::string, std::string> taken;
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto real = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(path, ignored), ignored).string();
  };
  for (const std::string& file : words.operands) taken.emplace(real(file), "what is read");
  if (words.has("baseline")) taken.emplace(real(words.value("baseline")), "what is read");
  for (const char* const flag : {"placements", "plan", "csv", "chrome", "html", "output"}) {
    if (!words.has(flag) || words.value(flag) == "-") continue;
    if (fs::is_other(fs::status(words.value(flag), ignored))) continue;  // a device or a pipe
    const auto [at, is_new] = taken.emplace(real(words.value(flag)), "--" + std::string(flag));
    if (is_new) continue;
    return Error{ErrorCode::usage, "would be written over " + at->second, words.value(flag),
                 "give --" + std::string(flag) + " a file of its own"};
  }
  return {};
}

// One of the files was asked for instead of the answer.
bool is_stdout_taken(const Words& words) {
  for (const char* const flag : {"placements", "plan", "csv", "chrome"}) {
    if (words.value(flag) == "-") return true;
  }
  return false;
}

Result<int> run_pack(const Words& words, const Console& console) {
  HEADROOM_TRY(check_places(words, {"placements", "plan", "csv", "chrome"}));
  HEADROOM_TRY(check_together(words));
  HEADROOM_TRY(check_files_apart(words));
  if (words.has("oom")) return run_oom(words, console);
  if (words.has("baseline")) return run_comparison(words, console);
  if (words.operands.size() > 1) return run_ranks(words, console);
  HEADROOM_ASSIGN(const pack::PackQuestion question, question_of(words));
  HEADROOM_ASSIGN(const pack::PackAnswer answer, pack::answer(question));
  if (words.has("placements")) {
    HEADROOM_TRY(write_beside(words, "placements", pack::placements_of(answer), console));
  }
  if (words.has("plan")) {
    HEADROOM_ASSIGN(const std::string plan, pack::plan_file_of(answer));
    HEADROOM_TRY(write_beside(words, "plan", plan, console));
  }
  HEADROOM_TRY(write_exports(words, answer, console));
  Forms forms;
  if (!is_stdout_taken(words) || words.has("output")) {
    forms.text = [&](const text::Terminal& terminal) {
      return report::pack_text(answer, terminal);
    };
  }
  forms.json = [&] { return report::pack_json(answer); };
  forms.page = [&] {
    return page_of("Memory of " + answer.file, report::pack_sections(answer), words);
  };
  HEADROOM_TRY(deliver(forms, words, console));
  if (answer.is_partial) return exit_code_of(ErrorCode::partial);
  return answer.fits() ? kExitYes : kExitNotPlainYes;
}

}  // namespace

Verb pack_verb() {
  Verb verb;
  verb.name = "pack";
  verb.summary = "what fragmentation costs a recorded run, and a plan without it";
  verb.operands = "FILE...";
  verb.most_operands = 100'000;
  verb.examples = {
      {"headroom pack snapshot.pickle", "a file of torch.cuda.memory._dump_snapshot()"},
      {"headroom pack memory.json.gz",
       "or a trace of torch.profiler.profile(profile_memory=True), which knows less"},
      {"headroom pack snapshot.pickle --plan step.plan", "and the plan, as a file"},
      {"headroom pack snapshot.pickle --html memory.html",
       "a page: who lay where and when, as it was and as planned"},
      {"headroom pack rank0.pickle rank1.pickle", "one line a rank, the worst first"},
      {"headroom pack snapshot.pickle --baseline earlier.pickle",
       "what grew since an earlier recording, and where; exit code 1 where more is reserved"},
      {"headroom pack --oom error.log",
       "explains a pasted out-of-memory message; without a file it is read from stdin"},
      {"headroom pack instance.csv --placements placed.csv",
       "an instance with the columns id,lower,upper,size: a request lives at lower <= t < upper"},
      {"headroom pack instance.csv --capacity 1048576 --json",
       "is there a plan below that many bytes?"},
  };
  verb.flags = {
      {"oom", "",
       "FILE is a text with an out-of-memory message of PyTorch: says who holds the "
       "memory and what to do"},
      {"baseline", "FILE", "hold the recording against this earlier one: what grew, and where"},
      {"gpu", "N", "of a recording with several GPUs; without it the one that reserved most"},
      {"alignment", "BYTES", "sizes and offsets are multiples of this: 512 for recordings, else 1"},
      {"capacity", "BYTES", "a plan of this size is good enough; exit code 1 where there is none"},
      {"budget", "SECONDS", "search that long; without it by effort, the same plan every time"},
      {"seed", "N", "of the searches"},
      {"placements", "FILE.csv", "write id,lower,upper,size,offset; - is stdout"},
      {"plan", "FILE",
       "write the plan of an iteration, binary (docs/formats/plan.md); - is stdout"},
      {"csv", "FILE.csv",
       "write the requests: id,lower,upper,size,stream,address,begin_us,end_us,site; - is stdout"},
      {"chrome", "FILE.json",
       "write them as a trace for chrome://tracing and ui.perfetto.dev; - is stdout"},
      kJsonFlag,
      kHtmlFlag,
      kOutputFlag,
      kQuietFlag,
      kNoColorFlag,
      kHelpFlag};
  verb.terms = {
      {"lower bound",
       "the most bytes that live at one moment, each request rounded up to the alignment, from its "
       "allocation until no stream uses it any more"},
      {"used, efficiency",
       "that, of all streams together, as a share of the most reserved: the same for the recorded "
       "run, every setting and the plan"},
      {"lost", "reserved and in no block: stranded beside one, or cached in whole segments"},
      {"exit code 5", "the file was cut, or part of it could not be read: this is about the rest"},
  };
  verb.run = run_pack;
  return verb;
}

}  // namespace headroom::cli

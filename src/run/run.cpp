#include "run/run.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/beside.h"
#include "base/environment.h"
#include "memory/plan/servable_plan.h"
#include "run/measured_file.h"
#include "run/process_report.h"

namespace headroom::run {
namespace {

namespace fs = std::filesystem;

std::string absolute(const std::string& path) {
  std::error_code failed;
  const fs::path whole = fs::absolute(path, failed);
  return failed ? path : whole.string();
}

// The same of a name in which a % is a sign: those of the folder that is put before it are none.
std::string absolute_pattern(const std::string& pattern) {
  if (fs::path(pattern).is_absolute()) return pattern;
  std::error_code failed;
  std::string folder;
  for (const char c : fs::current_path(failed).string()) {
    folder += c == '%' ? "%%" : std::string(1, c);
  }
  return folder + "/" + pattern;
}

// A folder of our own for the time of a run. Only the files that processes left in it go with it.
class ReportFolder {
 public:
  static Result<ReportFolder> make() {
    std::string path = environment_value("TMPDIR");
    path = absolute(path.empty() ? "/tmp" : path) + "/headroom-run-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) {
      return Error{ErrorCode::unavailable, "no temporary folder can be made", path, "set TMPDIR"};
    }
    return ReportFolder(std::move(path));
  }
  ReportFolder(ReportFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ReportFolder& operator=(ReportFolder&&) = delete;
  ~ReportFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit ReportFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : ",") + word;
  return line;
}

// $HEADROOM_CACHE, else the user's own cache folder; "" where there is neither, and nothing is
// kept.
std::string cache_folder() {
  if (std::string own = environment_value("HEADROOM_CACHE"); !own.empty()) return absolute(own);
  if (std::string users = environment_value("XDG_CACHE_HOME"); !users.empty()) {
    return absolute(users) + "/headroom";
  }
  const std::string home = environment_value("HOME");
  return home.empty() ? "" : home + "/.cache/headroom";
}

// With %r or %d in its name it is a file for each rank or device, which the allocator looks for.
bool is_one_file(const std::string& plan_file) { return plan_file.find('%') == std::string::npos; }

// A mistyped word would leave in place what it was to take away.
Result<void> check_stream_order() {
  const std::string word = environment_value("HEADROOM_RUN_STREAM_ORDER");
  if (word.empty() || word == "told" || word == "off") return {};
  return Error{ErrorCode::usage,
               "HEADROOM_RUN_STREAM_ORDER knows no '" + word + "'",
               {},
               "told, off, or nothing"};
}

// What can be known to be wrong before anything is started.
Result<void> check(const RunQuestion& question, const Parts& parts) {
  HEADROOM_TRY(check_stream_order());
  if (!question.measure_file.empty()) HEADROOM_TRY(check_measured_file(question.measure_file));
  if (question.mode == Mode::record) {
    std::error_code failed;
    fs::create_directories(question.record_folder, failed);
    if (access(question.record_folder.c_str(), W_OK | X_OK) != 0) {
      return Error{ErrorCode::unavailable, "recordings cannot be written there",
                   question.record_folder, std::strerror(errno)};
    }
  }
  if (question.mode == Mode::serve && is_one_file(question.plan_file) &&
      access(question.plan_file.c_str(), R_OK) != 0) {
    return Error{ErrorCode::bad_input, "the plan cannot be read", question.plan_file,
                 "headroom pack RECORDING --plan FILE writes one"};
  }
  if (question.mode != Mode::off && parts.library.empty()) {
    return Error{ErrorCode::unavailable, "libheadroom_torch.so is not beside the program",
                 program_path(),
                 "install both with `cmake --install`, or name it in HEADROOM_LIBRARY"};
  }
  return {};
}

}  // namespace

std::string_view name_of(Mode mode) {
  switch (mode) {
    case Mode::plan:
      return "run";
    case Mode::record:
      return "record";
    case Mode::serve:
      return "serve";
    case Mode::off:
      return "off";
  }
  return "off";
}

bool RunAnswer::used_a_device() const {
  for (const ProcessReport& process : processes) {
    if (process.outcome != Outcome::nothing && process.outcome != Outcome::refused) return true;
  }
  return false;
}

Result<Parts> find_parts() {
  static constexpr std::array<std::string_view, 2> kPackages{"share/headroom/python", "python"};
  static constexpr std::array<std::string_view, 4> kLibraries{
      "runtime/libheadroom_torch.so", "lib/libheadroom_torch.so", "lib64/libheadroom_torch.so",
      HEADROOM_LIBRARY_FOLDER "/libheadroom_torch.so"};
  Parts parts;
  const auto package = beside_program(kPackages, "headroom/run/start/sitecustomize.py");
  if (!package) {
    return Error{ErrorCode::unavailable, "Headroom's Python package is not beside its program",
                 program_path(), "install both with `cmake --install`, or run from the checkout"};
  }
  parts.package = *package;
  parts.library = environment_value("HEADROOM_LIBRARY");
  if (parts.library.empty()) parts.library = beside_program(kLibraries).value_or("");
  if (!parts.library.empty()) parts.library = absolute(parts.library);
  return parts;
}

std::vector<std::pair<std::string, std::string>> environment_for(const RunQuestion& question,
                                                                 const Parts& parts,
                                                                 const std::string& reports) {
  const std::string theirs = environment_value("PYTHONPATH");
  const std::string start = parts.package + "/headroom/run/start";
  std::vector<std::pair<std::string, std::string>> added{
      {"HEADROOM_RUN_MODE", std::string(name_of(question.mode))},
      {"HEADROOM_RUN_LIBRARY", parts.library},
      {"HEADROOM_RUN_REPORTS", reports},
      {"HEADROOM_RUN_ACCEPT", joined(question.accepted)},
      {"HEADROOM_RUN_MEASURE",
       question.measure_file.empty() ? "" : absolute(question.measure_file)},
      {"PYTHONPATH", theirs.empty() ? start : start + ":" + theirs}};
  // Set in any case: a run inside of another would inherit the outer one's.
  std::string folder;
  const std::string cache = cache_folder();
  if (question.mode == Mode::record) folder = absolute(question.record_folder);
  if (question.mode == Mode::plan && !cache.empty()) folder = cache + "/plans";
  added.emplace_back("HEADROOM_RUN_FOLDER", folder);
  added.emplace_back("HEADROOM_RUN_PLAN",
                     question.mode == Mode::serve ? absolute_pattern(question.plan_file) : "");
  // Else as the user has it.
  if (question.without_shim) added.emplace_back("HEADROOM_RUN_SHIM", "off");
  return added;
}

Result<ForegroundResult> build_shim(const std::string& python, bool as_json) {
  HEADROOM_ASSIGN(const Parts parts, find_parts());
  const std::string theirs = environment_value("PYTHONPATH");
  std::vector<std::string> command{python, "-m", "headroom.run.shim"};
  if (as_json) command.emplace_back("--json");
  return run_in_foreground(
      {command,
       {{"HEADROOM_RUN_MODE", ""},
        {"PYTHONPATH", theirs.empty() ? parts.package : parts.package + ":" + theirs}}});
}

Result<void> check_plan(const RunQuestion& question) {
  std::error_code failed;
  if (question.mode != Mode::serve || !is_one_file(question.plan_file) ||
      !fs::is_regular_file(question.plan_file, failed)) {
    return {};
  }
  const auto plan = memory::read_servable_plan(question.plan_file);
  if (plan) return {};
  Error error = plan.error();
  error.message = "the plan was refused: " + error.message;
  error.hint += (error.hint.empty() ? "" : "\n") + std::string("the run goes on without a plan");
  return error;
}

Result<RunAnswer> answer(const RunQuestion& question) {
  HEADROOM_ASSIGN(const Parts parts, find_parts());
  HEADROOM_TRY(check(question, parts));
  HEADROOM_ASSIGN(const ReportFolder reports, ReportFolder::make());
  const ForegroundResult child =
      run_in_foreground({question.command, environment_for(question, parts, reports.path())});
  RunAnswer answer;
  answer.command = question.command;
  answer.mode = name_of(question.mode);
  answer.started = child.started;
  answer.exit_code = child.exit_code;
  answer.signal = child.signal;
  answer.reason = child.reason;
  if (!child.started) return answer;
  answer.processes = read_reports(reports.path(), answer.notes);
  if (!question.measure_file.empty()) {
    const Result<size_t> rows = add_rows(answer.processes, question.measure_file);
    answer.notes.push_back(
        rows ? std::to_string(*rows) + (*rows == 1 ? " row added to " : " rows added to ") +
                   question.measure_file
             : "what was measured could not be written: " + rows.error().to_string());
  }
  return answer;
}

}  // namespace headroom::run

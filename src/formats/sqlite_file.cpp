#include "formats/sqlite_file.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>

namespace headroom::formats {
namespace {

constexpr int kLongestValue = 1 << 20;
constexpr int kMostColumns = 500;
constexpr int kProgressOps = 10'000;
// A row takes some ten operations and at least eight bytes; a query beyond this goes in circles.
constexpr int64_t kOpsPerByte = 64;
constexpr int64_t kOpsAtLeast = 10'000'000;
constexpr size_t kMostTables = 10'000;

// Compiling a query asks this for everything that the query touches.
int authorize(void* /*unused*/, int action, const char* /*a*/, const char* /*b*/,
              const char* /*database*/, const char* /*view*/) {
  return action == SQLITE_SELECT || action == SQLITE_READ ? SQLITE_OK : SQLITE_DENY;
}

std::string quoted(std::string_view identifier) {
  std::string out = "\"";
  for (const char c : identifier) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

// As a URI's path: a '?' in a name must not become an option.
std::string uri_of(const std::string& path) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string uri = "file:";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '/' || c == '.' || c == '_' || c == '-';
    if (is_plain) {
      uri += c;
    } else {
      uri += '%';
      uri += kDigits[byte >> 4];
      uri += kDigits[byte & 15];
    }
  }
  return uri + "?immutable=1&mode=ro";
}

}  // namespace

struct SqliteFile::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { sqlite3_close_v2(database); }

  static int on_progress(void* self) {
    auto* state = static_cast<State*>(self);
    state->ops_left -= kProgressOps;
    return state->ops_left < 0 ? 1 : 0;
  }

  [[nodiscard]] Error error(std::string_view message) const {
    return Error{ErrorCode::bad_input, std::string(message), name, ""};
  }

  // Bounds and refusals; before anything of the file is read.
  void restrain(int64_t file_bytes) {
    ops_left = kOpsAtLeast + kOpsPerByte * file_bytes;
    constexpr std::pair<int, int> kLimits[] = {{SQLITE_LIMIT_LENGTH, kLongestValue},
                                               {SQLITE_LIMIT_SQL_LENGTH, kLongestValue},
                                               {SQLITE_LIMIT_COLUMN, kMostColumns},
                                               {SQLITE_LIMIT_EXPR_DEPTH, 200},
                                               {SQLITE_LIMIT_COMPOUND_SELECT, 100},
                                               {SQLITE_LIMIT_VDBE_OP, 25'000},
                                               {SQLITE_LIMIT_ATTACHED, 0},
                                               {SQLITE_LIMIT_TRIGGER_DEPTH, 1},
                                               {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50},
                                               {SQLITE_LIMIT_WORKER_THREADS, 0}};
    for (const auto& [limit, value] : kLimits) sqlite3_limit(database, limit, value);
    constexpr std::pair<int, int> kSettings[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},      {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0}, {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
        {SQLITE_DBCONFIG_DQS_DML, 0},        {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0}};
    for (const auto& [setting, value] : kSettings) {
      sqlite3_db_config(database, setting, value, nullptr);
    }
    sqlite3_exec(database, "PRAGMA cell_size_check=1; PRAGMA cache_size=-2048; PRAGMA mmap_size=0",
                 nullptr, nullptr, nullptr);
    sqlite3_set_authorizer(database, authorize, nullptr);
    sqlite3_progress_handler(database, kProgressOps, on_progress, this);
  }

  sqlite3_stmt* prepare(const std::string& sql) const {
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(database, sql.c_str(), static_cast<int>(sql.size() + 1), &statement,
                       nullptr);
    return statement;
  }

  sqlite3* database = nullptr;
  std::string name;
  std::vector<std::string> tables;
  int64_t ops_left = 0;
};

SqliteFile::SqliteFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
SqliteFile::SqliteFile(SqliteFile&&) noexcept = default;
SqliteFile& SqliteFile::operator=(SqliteFile&&) noexcept = default;
SqliteFile::~SqliteFile() = default;

const std::vector<std::string>& SqliteFile::tables() const { return state_->tables; }
const std::string& SqliteFile::name() const { return state_->name; }
bool SqliteFile::has(std::string_view table) const {
  return std::find(state_->tables.begin(), state_->tables.end(), table) != state_->tables.end();
}

Result<SqliteFile> SqliteFile::open(const std::string& path) {
  auto state = std::make_unique<State>();
  state->name = path;
  struct stat status {};
  const bool is_there = stat(path.c_str(), &status) == 0;
  const int opened =
      sqlite3_open_v2(uri_of(path).c_str(), &state->database,
                      SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_FULLMUTEX, nullptr);
  if (!is_there || opened != SQLITE_OK) return state->error("cannot be read as a database");
  state->restrain(status.st_size);
  return prepared(std::move(state));
}

Result<SqliteFile> SqliteFile::from_bytes(std::string_view bytes, const std::string& name) {
  auto state = std::make_unique<State>();
  state->name = name;
  HEADROOM_CHECK(sqlite3_open(":memory:", &state->database) == SQLITE_OK, "SQLite cannot start");
  // The interface predates const; a read-only database is not written to.
  auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  const int opened =
      sqlite3_deserialize(state->database, "main", data, size, size, SQLITE_DESERIALIZE_READONLY);
  if (opened != SQLITE_OK) return state->error("cannot be read as a database");
  state->restrain(size);
  return prepared(std::move(state));
}

// Reads the schema. A virtual table has no root page, and is none of ours.
Result<SqliteFile> SqliteFile::prepared(std::unique_ptr<State> state) {
  sqlite3_stmt* statement =
      state->prepare("SELECT name FROM sqlite_master WHERE type='table' AND rootpage>0");
  if (statement == nullptr) {
    return state->error(std::string("is no database that can be read: ") +
                        sqlite3_errmsg(state->database));
  }
  int stepped = sqlite3_step(statement);
  for (; stepped == SQLITE_ROW && state->tables.size() < kMostTables;
       stepped = sqlite3_step(statement)) {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    if (text != nullptr) state->tables.emplace_back(text);
  }
  sqlite3_finalize(statement);
  if (stepped != SQLITE_DONE && state->tables.empty()) {
    return state->error(std::string("is no database that can be read: ") +
                        sqlite3_errmsg(state->database));
  }
  return SqliteFile(std::move(state));
}

bool SqliteFile::has_column(const std::string& table, std::string_view column) const {
  sqlite3_stmt* statement = state_->prepare("SELECT * FROM " + quoted(table) + " NOT INDEXED");
  bool found = false;
  for (int i = 0; statement != nullptr && i < sqlite3_column_count(statement); ++i) {
    const char* const name = sqlite3_column_name(statement, i);
    found |= name != nullptr && column == name;
  }
  sqlite3_finalize(statement);
  return found;
}

struct SqliteRows::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { sqlite3_finalize(statement); }

  sqlite3* database = nullptr;
  sqlite3_stmt* statement = nullptr;
  int64_t number = 0;
  std::optional<std::string> fault;
};

Result<SqliteRows> SqliteFile::rows(const std::string& table,
                                    const std::vector<std::string>& columns) const {
  std::string list;
  for (const std::string& column : columns) {
    list += list.empty() ? "" : ",";
    list += has_column(table, column) ? quoted(column) : "NULL";
  }
  auto rows = std::make_unique<SqliteRows::State>();
  rows->database = state_->database;
  rows->statement = state_->prepare("SELECT " + list + " FROM " + quoted(table) + " NOT INDEXED");
  if (rows->statement == nullptr) {
    return Error{ErrorCode::bad_input,
                 std::string("cannot be read: ") + sqlite3_errmsg(state_->database),
                 name() + ": table " + table.substr(0, 80), ""};
  }
  return SqliteRows(std::move(rows));
}

SqliteRows::SqliteRows(std::unique_ptr<State> state) : state_(std::move(state)) {}
SqliteRows::SqliteRows(SqliteRows&&) noexcept = default;
SqliteRows& SqliteRows::operator=(SqliteRows&&) noexcept = default;
SqliteRows::~SqliteRows() = default;

bool SqliteRows::next() {
  if (state_->fault) return false;
  const int stepped = sqlite3_step(state_->statement);
  ++state_->number;
  if (stepped == SQLITE_ROW) return true;
  if (stepped == SQLITE_INTERRUPT) state_->fault = "has more rows than its size can hold";
  if (stepped != SQLITE_DONE && !state_->fault) state_->fault = sqlite3_errmsg(state_->database);
  return false;
}

int64_t SqliteRows::number() const { return state_->number; }
const std::optional<std::string>& SqliteRows::fault() const { return state_->fault; }

std::optional<int64_t> SqliteRows::integer(size_t column) const {
  const int at = static_cast<int>(column);
  if (sqlite3_column_type(state_->statement, at) != SQLITE_INTEGER) return std::nullopt;
  return sqlite3_column_int64(state_->statement, at);
}

std::string_view SqliteRows::text(size_t column) const {
  const int at = static_cast<int>(column);
  if (sqlite3_column_type(state_->statement, at) != SQLITE_TEXT) return {};
  const auto* const text =
      reinterpret_cast<const char*>(sqlite3_column_text(state_->statement, at));
  const auto size = static_cast<size_t>(sqlite3_column_bytes(state_->statement, at));
  return text == nullptr ? std::string_view() : std::string_view(text, size);
}

bool is_sqlite(std::string_view begin) {
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  return begin.starts_with(kMagic);
}

}  // namespace headroom::formats

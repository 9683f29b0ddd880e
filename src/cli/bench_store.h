// The folder of `bench nongemm` and `bench decode`: records and traces, to go on with.
//
// Not synchronised. Every change replaces the file of records as a whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "bench/nongemm.h"

namespace headroom::cli {

Result<bench::NongemmRecords> read_bench_records(const std::string& file);

// One run of those that the trace holds, by `headroom ops`; `capture`: of the graphs that it
// launches, or ""; `shorter`: of fewer layers, what the run has beyond it is accounted for by
// itself; or "".
Result<bench::ProfiledRun> read_bench_profile(const std::string& file, const std::string& capture,
                                              const std::string& shorter);

// What is in the folder is not measured again.
class BenchStore {
 public:
  explicit BenchStore(std::string folder) : folder_(std::move(folder)) {}

  // Makes nothing yet. An Error where it cannot be written to, or holds no records of ours.
  Result<void> open();

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] const bench::NongemmRecords& records() const { return records_; }

  // Whether it was measured: whole, or in two depths; of a setting with a context in the depth that
  // is wanted, or in any.
  [[nodiscard]] bool has(const bench::NongemmSetting& setting,
                         std::optional<int64_t> layers = {}) const;

  // Makes the folder where it is missing: something is about to be measured. A usage Error where
  // the records are another machine's: those of two do not mix.
  Result<void> set_machine(const timing::Machine& machine);
  Result<void> add(const bench::NongemmRecord& record);

 private:
  [[nodiscard]] std::string file() const { return folder_ + "/results.jsonl"; }
  Result<void> write();

  std::string folder_;
  bench::NongemmRecords records_;
};

}  // namespace headroom::cli

// Records of `bench nongemm`: any bytes give records or an Error, and records an answer whose
// figures are finite and whose shares are shares.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bench/nongemm.h"
#include "report/bench_nongemm.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto records = headroom::bench::parse_nongemm_records(text, "fuzz");
  if (!records) {
    HEADROOM_CHECK(!records.error().message.empty(), "an error without words");
    return 0;
  }
  const auto answer = headroom::bench::answer_nongemm(*records);
  for (const auto& row : answer.rows) {
    HEADROOM_CHECK(std::isfinite(row.seconds) && row.seconds > 0, "a time that is one");
    for (const double pct : {row.gemm_pct, row.attention_pct, row.nongemm_pct, row.covered_pct,
                             row.paper_nongemm_pct.value_or(0)}) {
      HEADROOM_CHECK(pct >= 0 && pct <= 100 + 1e-6, "a share that is one");
    }
  }
  for (const auto& record : records->records) {
    const std::string line = headroom::bench::nongemm_record_json(record).dump();
    const auto again = headroom::bench::parse_nongemm_records(
        headroom::bench::nongemm_header(*records->machine).dump() + "\n" + line, "again");
    HEADROOM_CHECK(again.has_value() && again->records.size() == 1, "what is written is read");
  }
  (void)headroom::report::nongemm_text(answer, {}, headroom::text::Terminal{});
  (void)headroom::report::nongemm_json(answer, {});
  return 0;
}

// A server's metrics: any bytes give figures in range, or none.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "serving/server_metrics.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto metrics =
      headroom::serving::parse_metrics({reinterpret_cast<const char*>(data), size});
  for (const auto& figure :
       {metrics.running, metrics.waiting, metrics.preemptions, metrics.prompt_tokens,
        metrics.output_tokens, metrics.answered, metrics.itl_seconds, metrics.itl_count}) {
    HEADROOM_CHECK(!figure || *figure >= 0, "a count");
  }
  HEADROOM_CHECK(!metrics.kv_share || (*metrics.kv_share >= 0 && *metrics.kv_share <= 1),
                 "a share");
  return 0;
}

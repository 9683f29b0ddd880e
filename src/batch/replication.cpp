#include "batch/replication.h"

#include "base/check.h"

namespace headroom::batch {

double replication_speedup(int count, double host_gap) {
  HEADROOM_CHECK(count >= 1 && host_gap >= 0 && host_gap < 1, "servers and a share of a step");
  const double demand = 1 - host_gap;  // of the GPU, in steps of one server alone
  double queue = 0;
  double throughput = 0;
  for (int servers = 1; servers <= count; ++servers) {
    const double response = demand * (1 + queue);
    throughput = servers / (host_gap + response);
    queue = throughput * response;
  }
  return throughput;
}

}  // namespace headroom::batch

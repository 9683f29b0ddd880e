// Plan files: any bytes give a plan that the checker takes, or an Error with a place; what is read
// is written again as it was, and can be served from. Bytes that do not begin as a plan does are
// taken as what lies between heading and checksum, or no change would get past the checksum.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "memory/plan/plan_checker.h"
#include "memory/plan/plan_file.h"
#include "memory/plan/plan_server.h"

namespace {

using namespace headroom;

void use(const memory::MemoryPlan& plan) {
  HEADROOM_CHECK(memory::check_plan(plan), "a plan that was let through");
  const auto written = memory::plan_file(plan);
  HEADROOM_CHECK(written, "a plan that was read and cannot be written");
  const auto again = memory::parse_plan_file(*written, "again");
  HEADROOM_CHECK(again && *again == plan, "a plan changed by being written and read");
  if (plan.signatures.empty()) return;
  memory::PlanServer server(plan);
  for (uint32_t i = 0; i < 200; ++i) {
    const auto& slots = plan.signatures[i % plan.signatures.size()].slots;
    if (slots.empty()) continue;
    const memory::PlannedSlot& slot = slots[i % slots.size()];
    const auto served = server.allocate(slot.stream, slot.largest);
    const bool is_taken = served.source != memory::PlanServer::Source::none;
    if (is_taken && i % 3 == 0) server.release(served.offset);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const bool is_whole = bytes.starts_with("HDRMPLAN");
  const auto plan =
      is_whole ? memory::parse_plan_file(bytes, "fuzz") : memory::parse_plan_payload(bytes, "fuzz");
  if (plan) {
    use(*plan);
  } else {
    HEADROOM_CHECK(!plan.error().where.empty(), "an error without a place");
  }
  return 0;
}

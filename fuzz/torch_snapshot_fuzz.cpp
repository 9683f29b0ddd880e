// PyTorch snapshots: any bytes give a snapshot or an Error, and any snapshot can be replayed,
// exactly or up to a named divergence, with every setting that changes the path.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/torch_snapshot.h"
#include "memory/snapshot_replay.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  formats::ByteSource source(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  const auto snapshot = formats::parse_torch_snapshot(source);
  if (!snapshot) {
    HEADROOM_CHECK(!snapshot.error().where.empty(), "an error without a place");
    return 0;
  }
  for (const memory::Snapshot& device : snapshot->devices) {
    memory::SnapshotReplayOptions options;
    if (snapshot->settings) options.settings = *snapshot->settings;
    static_cast<void>(memory::replay_snapshot(device, options));
    options.settings.expandable_segments = !options.settings.expandable_segments;
    static_cast<void>(memory::replay_snapshot(device, options));
  }
  return 0;
}

// The pickle is read item by item: what is appended to a list is recognised by its keys, turned
// into a plain struct under that list's id, and dropped. When the document is complete, the root
// says which list was what.
//
// Keys and versions: torch/cuda/memory.py, torch/csrc/cuda/memory_snapshot.cpp and Module.cpp.
#include "formats/torch_snapshot.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/units.h"
#include "formats/pickle.h"
#include "text/gzip.h"

namespace headroom::formats {
namespace {

using memory::AllocatorSettings;
using memory::BlockState;
using memory::Snapshot;
using memory::SnapshotBlock;
using memory::SnapshotSegment;
using memory::TraceAction;
using memory::TraceEntry;

constexpr int64_t kMaxDevices = 1024;
constexpr int64_t kMaxUnpackedBytes = int64_t{1} << 36;
constexpr size_t kMaxNotes = 100;
constexpr size_t kMostShown = 100;  // bytes of a text of the file in a note

Error bad(std::string message) {
  return Error{ErrorCode::bad_input, std::move(message), "", "is it a PyTorch memory snapshot?"};
}

// One list's items, by the list's place in the document.
template <typename T>
using ByList = std::unordered_map<int64_t, std::vector<T>>;

template <typename T>
std::vector<T> take_list(ByList<T>& lists, const PickleValue* list) {
  if (list == nullptr || list->kind != PickleKind::list) return {};
  const auto at = lists.find(list->payload);
  if (at == lists.end()) return {};
  std::vector<T> items = std::move(at->second);
  lists.erase(at);
  return items;
}

TraceAction action_of(std::string_view name) {
  for (int i = 0; i < static_cast<int>(TraceAction::other); ++i) {
    const auto action = static_cast<TraceAction>(i);
    if (memory::trace_action_name(action) == name) return action;
  }
  return TraceAction::other;
}

class SnapshotReader {
 public:
  // The empty call stack and the empty text come first.
  SnapshotReader() {
    result_.stacks.emplace_back();
    result_.texts.emplace_back();
  }

  Result<PickleVerdict> consume(PickleDocument& document, PickleValue list, PickleValue item) {
    if (item.kind != PickleKind::dict) return PickleVerdict::keep;
    document_ = &document;
    const int64_t id = list.payload;
    if (document.find(item, "filename") != nullptr) return add_frame(id, item);
    if (document.find(item, "action") != nullptr) return add_entry(id, item);
    if (document.find(item, "blocks") != nullptr) return add_segment(id, item);
    if (document.find(item, "state") != nullptr) return add_block(id, item);
    if (document.find(item, "real_size") != nullptr) return add_history(id, item);
    if (document.find(item, "stage") != nullptr) return add_annotation(id, item);
    return PickleVerdict::keep;
  }

  Result<TorchSnapshot> finish(PickleDocument& document) {
    document_ = &document;
    const PickleValue root = document.root();
    const PickleValue* segments = &root;  // torch.cuda.memory_snapshot(): the list alone
    if (root.kind == PickleKind::dict) segments = document.find(root, "segments");
    if (segments == nullptr || segments->kind != PickleKind::list) {
      return bad("no list of segments");
    }
    if (const PickleValue* const maker = document.find(root, "generated_by")) {
      note("generated, not recorded: " + std::string(document.text(*maker).substr(0, kMostShown)));
    }
    std::map<int64_t, Snapshot> devices;
    for (Placed<SnapshotSegment>& segment : take_list(segments_, segments)) {
      devices[segment.device].segments.push_back(std::move(segment.value));
    }
    if (!document.items(*segments).empty()) return bad("a segment that is not one");
    HEADROOM_TRY(place_traces(document.find(root, "device_traces"), devices));
    for (auto& [number, device] : devices) {
      device.device = number;
      result_.devices.push_back(std::move(device));
    }
    result_.annotations = take_list(annotations_, document.find(root, "external_annotations"));
    if (const PickleValue* const settings = document.find(root, "allocator_settings")) {
      HEADROOM_TRY(read_settings(*settings));
    }
    return std::move(result_);
  }

 private:
  template <typename T>
  struct Placed {
    int64_t device = 0;
    T value;
  };

  void note(std::string text) {
    if (result_.notes.size() < kMaxNotes) result_.notes.push_back(std::move(text));
  }

  // An integer of a dict; `fallback` where the key is absent.
  Result<int64_t> integer(PickleValue dict, std::string_view key,
                          std::optional<int64_t> fallback = std::nullopt) const {
    const PickleValue* const value = document_->find(dict, key);
    if (value == nullptr && fallback) return *fallback;
    if (value == nullptr) return bad("'" + std::string(key) + "' is missing");
    if (value->kind == PickleKind::integer) return value->payload;
    if (value->kind == PickleKind::none && fallback) return *fallback;
    return bad("'" + std::string(key) + "' is not a whole number");
  }
  Result<int64_t> size(PickleValue dict, std::string_view key,
                       std::optional<int64_t> fallback = std::nullopt) const {
    HEADROOM_ASSIGN(const int64_t value, integer(dict, key, fallback));
    if (value < 0) return bad("'" + std::string(key) + "' is negative");
    return value;
  }

  uint32_t text_id(const PickleValue* value) {
    if (value == nullptr || value->kind != PickleKind::text) return 0;
    const std::string_view text = document_->text(*value);
    const auto [at, is_new] =
        text_ids_.try_emplace(value->payload, static_cast<uint32_t>(result_.texts.size()));
    if (is_new) result_.texts.emplace_back(text);
    return at->second;
  }

  // The call stack under `frames`, where the frames of that list were seen.
  uint32_t stack_of(PickleValue dict) const {
    const PickleValue* const frames = document_->find(dict, "frames");
    if (frames == nullptr || frames->kind != PickleKind::list) return 0;
    const auto at = stack_of_list_.find(frames->payload);
    return at == stack_of_list_.end() ? 0 : at->second;
  }

  // Frames are shared between stacks, and stacks between entries: each is kept once.
  Result<PickleVerdict> add_frame(int64_t list, PickleValue item) {
    const auto [frame, is_new_frame] =
        frame_of_dict_.try_emplace(item.payload, static_cast<uint32_t>(result_.frames.size()));
    if (is_new_frame) {
      HEADROOM_ASSIGN(const int64_t line, integer(item, "line", 0));
      result_.frames.push_back({text_id(document_->find(item, "name")),
                                text_id(document_->find(item, "filename")), line});
    }
    const auto [stack, is_new_stack] =
        stack_of_list_.try_emplace(list, static_cast<uint32_t>(result_.stacks.size()));
    if (is_new_stack) result_.stacks.emplace_back();
    result_.stacks[stack->second].push_back(frame->second);
    return PickleVerdict::leave_out;
  }

  Result<PickleVerdict> add_entry(int64_t list, PickleValue item) {
    TraceEntry entry;
    const PickleValue* const action = document_->find(item, "action");
    if (action->kind != PickleKind::text) return bad("'action' is not a text");
    entry.action = action_of(document_->text(*action));
    const bool is_oom = entry.action == TraceAction::out_of_memory;
    const bool is_other = entry.action == TraceAction::other;
    HEADROOM_ASSIGN(entry.address, size(item, is_oom ? "device_free" : "addr",
                                        is_other ? std::optional<int64_t>(0) : std::nullopt));
    HEADROOM_ASSIGN(entry.size,
                    size(item, "size", is_other ? std::optional<int64_t>(0) : std::nullopt));
    HEADROOM_ASSIGN(entry.stream, integer(item, "stream", 0));
    HEADROOM_ASSIGN(entry.time_us, integer(item, "time_us", 0));
    entry.stack = stack_of(item);
    traces_[list].push_back(entry);
    return PickleVerdict::recycle;
  }

  Result<PickleVerdict> add_history(int64_t list, PickleValue item) {
    HEADROOM_ASSIGN(const int64_t address, size(item, "addr"));
    HEADROOM_ASSIGN(const int64_t real_size, size(item, "real_size"));
    histories_[list].emplace_back(address, real_size);
    const uint32_t stack = stack_of(item);
    if (stack != 0) stack_of_history_.try_emplace(list, stack);  // the newest comes first
    return PickleVerdict::recycle;
  }

  Result<PickleVerdict> add_block(int64_t list, PickleValue item) {
    SnapshotBlock block;
    HEADROOM_ASSIGN(block.address, size(item, "address", 0));
    HEADROOM_ASSIGN(block.size, size(item, "size"));
    HEADROOM_ASSIGN(block.requested, size(item, "requested_size", 0));
    const PickleValue* const state = document_->find(item, "state");
    const std::string_view name = document_->text(*state);
    if (name == "inactive") {
      block.state = BlockState::free;
    } else if (name == "active_allocated") {
      block.state = BlockState::allocated;
    } else if (name == "active_pending_free" || name == "active_awaiting_free") {
      block.state = BlockState::pending;
    } else {
      return bad("unknown block state '" + std::string(name.substr(0, 40)) + "'");
    }
    block.stack = stack_of(item);
    const PickleValue* const history = document_->find(item, "history");
    if (history != nullptr && history->kind == PickleKind::list) {
      const auto stack = stack_of_history_.find(history->payload);
      if (block.stack == 0 && stack != stack_of_history_.end()) block.stack = stack->second;
      block.history = take_list(histories_, history);
    }
    blocks_[list].push_back(std::move(block));
    return PickleVerdict::recycle;
  }

  Result<PickleVerdict> add_segment(int64_t list, PickleValue item) {
    Placed<SnapshotSegment> placed;
    SnapshotSegment& segment = placed.value;
    HEADROOM_ASSIGN(placed.device, integer(item, "device", 0));
    if (placed.device < 0 || placed.device >= kMaxDevices) return bad("device out of range");
    HEADROOM_ASSIGN(segment.address, size(item, "address"));
    HEADROOM_ASSIGN(segment.total_size, size(item, "total_size"));
    HEADROOM_ASSIGN(segment.allocated_size, size(item, "allocated_size", 0));
    HEADROOM_ASSIGN(segment.active_size, size(item, "active_size", 0));
    HEADROOM_ASSIGN(segment.stream, integer(item, "stream", 0));
    const PickleValue* const type = document_->find(item, "segment_type");
    const std::string_view name = type == nullptr ? std::string_view{} : document_->text(*type);
    if (name != "small" && name != "large") return bad("'segment_type' is neither small nor large");
    segment.is_small = name == "small";
    const PickleValue* const expandable = document_->find(item, "is_expandable");
    segment.is_expandable = expandable != nullptr && expandable->kind == PickleKind::boolean &&
                            expandable->payload == 1;
    if (const PickleValue* const pool = document_->find(item, "segment_pool_id")) {
      const auto pair = document_->items(*pool);
      if (pair.size() != 2 || pair[0].kind != PickleKind::integer ||
          pair[1].kind != PickleKind::integer) {
        return bad("'segment_pool_id' is not a pair of numbers");
      }
      segment.pool_first = pair[0].payload;
      segment.pool_second = pair[1].payload;
    }
    segment.stack = stack_of(item);
    segment.blocks = take_list(blocks_, document_->find(item, "blocks"));
    HEADROOM_TRY(place_blocks(segment));
    segments_[list].push_back(std::move(placed));
    return PickleVerdict::recycle;
  }

  // torch 2.0 gives blocks without addresses: they follow each other.
  static Result<void> place_blocks(SnapshotSegment& segment) {
    int64_t address = segment.address;
    for (SnapshotBlock& block : segment.blocks) {
      if (block.address == 0) block.address = address;
      const auto next = checked_add(block.address, block.size);
      if (!next) return bad("a block ends beyond the address space");
      address = *next;
    }
    return {};
  }

  Result<PickleVerdict> add_annotation(int64_t list, PickleValue item) {
    TorchAnnotation annotation;
    annotation.is_start = document_->text(*document_->find(item, "stage")) == "START";
    annotation.name = text_id(document_->find(item, "name"));
    HEADROOM_ASSIGN(annotation.device, integer(item, "device", 0));
    HEADROOM_ASSIGN(annotation.time_us, integer(item, "time_us", 0));
    annotations_[list].push_back(annotation);
    return PickleVerdict::recycle;
  }

  Result<void> place_traces(const PickleValue* traces, std::map<int64_t, Snapshot>& devices) {
    if (traces == nullptr) return {};
    if (traces->kind != PickleKind::list) return bad("'device_traces' is not a list");
    const auto lists = document_->items(*traces);
    for (size_t i = 0; i < lists.size(); ++i) {
      if (lists[i].kind != PickleKind::list) return bad("'device_traces' holds what is not a list");
      std::vector<TraceEntry> trace = take_list(traces_, &lists[i]);
      if (trace.empty()) continue;
      if (i >= static_cast<size_t>(kMaxDevices)) return bad("device out of range");
      devices[static_cast<int64_t>(i)].trace = std::move(trace);
    }
    return {};
  }

  // The text form knows max_non_split_rounding_mb and large_segment_size_mb, which the dict leaves
  // out; the dict has what is in force.
  Result<void> read_settings(PickleValue dict) {
    if (dict.kind != PickleKind::dict) return bad("'allocator_settings' is not a dict");
    AllocatorSettings settings;
    for (const std::string_view key : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
      const PickleValue* const text = document_->find(dict, key);
      if (text == nullptr || text->kind != PickleKind::text) continue;
      auto parsed = memory::parse_allocator_config(document_->text(*text));
      if (parsed) {
        settings = *parsed;
      } else {
        note(std::string(key) + " was passed over: " + parsed.error().to_string());
      }
    }
    HEADROOM_ASSIGN(const int64_t max_split, integer(dict, "max_split_size", -1));
    settings.max_split_size_bytes = max_split < 0 ? memory::kUnlimited : max_split;
    if (const PickleValue* const threshold =
            document_->find(dict, "garbage_collection_threshold")) {
      const double value = document_->real(*threshold);
      if (!(value >= 0 && value < 1)) return bad("'garbage_collection_threshold' is not in [0, 1)");
      settings.garbage_collection_threshold = value;
    }
    if (const PickleValue* const expandable = document_->find(dict, "expandable_segments")) {
      settings.expandable_segments = expandable->payload == 1;
    }
    if (const PickleValue* const divisions = document_->find(dict, "roundup_power2_divisions")) {
      HEADROOM_TRY(read_divisions(*divisions, settings));
    }
    result_.settings = settings;
    return {};
  }

  Result<void> read_divisions(PickleValue dict, AllocatorSettings& settings) const {
    for (size_t i = 0; i < settings.roundup_power2_divisions.size(); ++i) {
      HEADROOM_ASSIGN(const int64_t divisions, integer(dict, std::to_string(int64_t{1} << i), 0));
      if (divisions < 0 || (divisions & (divisions - 1)) != 0 || divisions > (1 << 20)) {
        return bad("'roundup_power2_divisions' is not a power of two");
      }
      settings.roundup_power2_divisions[i] = divisions;
    }
    return {};
  }

  PickleDocument* document_ = nullptr;
  TorchSnapshot result_;
  ByList<Placed<SnapshotSegment>> segments_;
  ByList<SnapshotBlock> blocks_;
  ByList<std::pair<int64_t, int64_t>> histories_;
  ByList<TraceEntry> traces_;
  ByList<TorchAnnotation> annotations_;
  std::unordered_map<int64_t, uint32_t> frame_of_dict_;
  std::unordered_map<int64_t, uint32_t> stack_of_list_;
  std::unordered_map<int64_t, uint32_t> stack_of_history_;
  std::unordered_map<int64_t, uint32_t> text_ids_;
};

}  // namespace

Result<TorchSnapshot> parse_torch_snapshot(ByteSource& source) {
  SnapshotReader reader;
  const PickleSink sink = [&reader](PickleDocument& document, PickleValue list, PickleValue item) {
    return reader.consume(document, list, item);
  };
  HEADROOM_ASSIGN(PickleDocument document, read_pickle(source, sink));
  auto snapshot = reader.finish(document);
  if (!snapshot && snapshot.error().where.empty()) {
    Error error = std::move(snapshot).error();
    error.where = source.name();
    return error;
  }
  return snapshot;
}

Result<TorchSnapshot> read_torch_snapshot(const std::string& path) {
  HEADROOM_ASSIGN(ByteSource source, ByteSource::open(path));
  if (!text::is_gzip(source.peek(2))) return parse_torch_snapshot(source);
  HEADROOM_ASSIGN(const std::string content, text::read_input(path, Bytes{kMaxUnpackedBytes}));
  ByteSource unpacked(content, path);
  return parse_torch_snapshot(unpacked);
}

}  // namespace headroom::formats

// Writes a generated training run, one rank a file: as a snapshot of PyTorch's, or as a recording
// of our own where the name ends in .hrec. It says that it is generated: in the key `generated_by`,
// which PyTorch does not write, and in every frame's file.
//
// Usage: headroom_generate_recording OUT.pickle|OUT.hrec [name=value ...]
//   names: the fields of memory/generated/training_run.h's TrainingShape; begin_at=EVENT and
//   keep_entries=N of its recording; conf=PYTORCH_CUDA_ALLOC_CONF.
#include <charconv>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "memory/generated/generated_snapshot.h"
#include "memory/generated/training_run.h"
#include "memory/recording/writer.h"
#include "tools/pickle_writer.h"

namespace {

using namespace headroom;
using namespace headroom::memory;

constexpr std::string_view kGeneratedBy = "headroom_generate_recording: nobody recorded this";

struct Order {
  generated::TrainingShape shape;
  generated::SnapshotOptions options;
  std::string conf;
};

std::optional<int64_t> number(std::string_view word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 0) return std::nullopt;
  return value;
}

bool set(Order& order, std::string_view name, std::string_view word) {
  if (name == "conf") {
    order.conf = word;
    return true;
  }
  const auto value = number(word);
  if (!value) return false;
  generated::TrainingShape& shape = order.shape;
  const std::map<std::string_view, int64_t*> counts = {
      {"iterations", &shape.iterations},
      {"layers", &shape.layers},
      {"hidden", &shape.hidden},
      {"vocabulary", &shape.vocabulary},
      {"batch", &shape.batch},
      {"sequence", &shape.sequence},
      {"shortest_sequence", &shape.shortest_sequence},
      {"sequence_step", &shape.sequence_step},
      {"micro_batches", &shape.micro_batches},
      {"experts", &shape.experts},
      {"experts_per_token", &shape.experts_per_token},
      {"stages", &shape.stages},
      {"model_chunks", &shape.model_chunks},
      {"rank", &shape.rank},
      {"evaluate_every", &shape.evaluate_every},
      {"evaluation_batches", &shape.evaluation_batches}};
  const std::map<std::string_view, bool*> switches = {{"recomputes", &shape.recomputes},
                                                      {"communicates", &shape.communicates},
                                                      {"keeps_gradients", &shape.keeps_gradients}};
  if (const auto count = counts.find(name); count != counts.end()) {
    *count->second = *value;
  } else if (const auto flag = switches.find(name); flag != switches.end()) {
    *flag->second = *value != 0;
  } else if (name == "seed") {
    shape.seed = static_cast<uint64_t>(*value);
  } else if (name == "begin_at") {
    order.options.first_event = static_cast<size_t>(*value);
  } else if (name == "keep_entries") {
    order.options.keep_entries = static_cast<size_t>(*value);
  } else {
    return false;
  }
  return true;
}

// The labels as frames of a file that nobody wrote.
class SnapshotWriter {
 public:
  explicit SnapshotWriter(const std::vector<std::string>& labels) : labels_(labels) {}

  std::string write(const Snapshot& snapshot, const std::string& conf) && {
    out_.begin_dict();
    out_.text("generated_by");
    out_.text(kGeneratedBy);
    out_.text("segments");
    out_.begin_list();
    for (const SnapshotSegment& segment : snapshot.segments) write(segment);
    out_.end_list();
    out_.text("device_traces");
    out_.begin_list();
    out_.begin_list();
    for (const TraceEntry& entry : snapshot.trace) write(entry);
    out_.end_list();
    out_.end_list();
    out_.text("allocator_settings");
    out_.begin_dict();
    out_.text("PYTORCH_CUDA_ALLOC_CONF");
    out_.text(conf);
    out_.end_dict();
    out_.end_dict();
    return std::move(out_).finish();
  }

 private:
  void field(std::string_view key, int64_t value) {
    out_.text(key);
    out_.integer(value);
  }
  void frames(uint32_t stack) {
    out_.text("frames");
    out_.begin_list();
    if (stack != 0) {
      out_.begin_dict();
      out_.text("name");
      out_.text(labels_[stack]);
      out_.text("filename");
      out_.text("generated.py");
      field("line", stack);
      out_.end_dict();
    }
    out_.end_list();
  }
  void write(const SnapshotSegment& segment) {
    out_.begin_dict();
    field("device", 0);
    field("address", segment.address);
    field("total_size", segment.total_size);
    field("allocated_size", segment.allocated_size);
    field("active_size", segment.active_size);
    field("stream", segment.stream);
    out_.text("segment_type");
    out_.text(segment.is_small ? "small" : "large");
    out_.text("segment_pool_id");
    out_.pair(0, 0);
    out_.text("is_expandable");
    out_.boolean(segment.is_expandable);
    out_.text("blocks");
    out_.begin_list();
    for (const SnapshotBlock& block : segment.blocks) write(block);
    out_.end_list();
    out_.end_dict();
  }
  void write(const SnapshotBlock& block) {
    out_.begin_dict();
    field("address", block.address);
    field("size", block.size);
    field("requested_size", block.requested);
    out_.text("state");
    out_.text(block.state == BlockState::allocated ? "active_allocated"
              : block.state == BlockState::pending ? "active_pending_free"
                                                   : "inactive");
    frames(block.stack);
    out_.end_dict();
  }
  void write(const TraceEntry& entry) {
    out_.begin_dict();
    out_.text("action");
    out_.text(trace_action_name(entry.action));
    field("addr", entry.address);
    field("size", entry.size);
    field("stream", entry.stream);
    field("time_us", entry.time_us);
    frames(entry.stack);
    out_.end_dict();
  }

  const std::vector<std::string>& labels_;
  PickleWriter out_;
};

std::optional<RecordKind> kind_of(TraceAction action) {
  switch (action) {
    case TraceAction::alloc:
      return RecordKind::alloc;
    case TraceAction::free_requested:
      return RecordKind::free_requested;
    case TraceAction::free_completed:
      return RecordKind::free_completed;
    case TraceAction::segment_alloc:
      return RecordKind::segment_alloc;
    case TraceAction::segment_free:
      return RecordKind::segment_free;
    case TraceAction::segment_map:
      return RecordKind::segment_map;
    case TraceAction::segment_unmap:
      return RecordKind::segment_unmap;
    default:
      return std::nullopt;
  }
}

// With a mark where each iteration begins.
Result<void> write_recording(const std::string& path, const generated::TrainingRun& run,
                             const generated::GeneratedSnapshot& made, const Order& order) {
  RecordingIdentity identity;
  identity.rank = static_cast<int32_t>(order.shape.rank);
  HEADROOM_ASSIGN(const auto writer, RecordingWriter::open(path, identity));
  writer->setting("generated_by", kGeneratedBy);
  writer->setting("PYTORCH_CUDA_ALLOC_CONF", order.conf);
  size_t iteration = 0;
  const std::vector<TraceEntry>& trace = made.snapshot.trace;
  for (size_t i = 0; i < trace.size(); ++i) {
    const TraceEntry& entry = trace[i];
    const int64_t time_ns = (entry.time_us - trace[0].time_us) * 1000;
    for (; iteration < run.iterations.size(); ++iteration) {
      const size_t first = made.entry_of_event[run.iterations[iteration]];
      if (first == generated::kNotRecorded) continue;
      if (first > i) break;
      writer->event(RecordKind::iteration,
                    {.address = static_cast<int64_t>(iteration), .time_ns = time_ns});
    }
    const auto kind = kind_of(entry.action);
    if (!kind) continue;
    uint32_t stack = 0;
    if (entry.stack != 0) {
      const RecordingWriter::Frame frame{run.labels[entry.stack], "generated.py",
                                         static_cast<int32_t>(entry.stack)};
      stack = writer->stack({&frame, 1});
    }
    writer->event(*kind, {.stream = entry.stream,
                          .stack = stack,
                          .address = entry.address,
                          .size = entry.size,
                          .time_ns = time_ns});
  }
  writer->close();
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Order order;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos ||
        !set(order, word.substr(0, equals), word.substr(equals + 1))) {
      std::fprintf(stderr, "what is '%s'?\n", argv[i]);
      return 2;
    }
  }
  const auto settings = parse_allocator_config(order.conf);
  if (argc < 2 || !settings) {
    std::fprintf(stderr, "usage: %s OUT.pickle [name=value ...]\n", argv[0]);
    return 2;
  }
  const generated::TrainingRun run = generated::generate_training_run(order.shape);
  order.options.settings = *settings;
  order.options.release_delay = run.release_delay;
  const auto made = generated::record_snapshot(run.trace, order.options);
  if (std::string_view(argv[1]).ends_with(".hrec")) {
    const auto written = write_recording(argv[1], run, made, order);
    if (!written) std::fprintf(stderr, "%s\n", written.error().to_string().c_str());
    return written ? 0 : 1;
  }
  std::ofstream out(argv[1], std::ios::binary);
  out << SnapshotWriter(run.labels).write(made.snapshot, order.conf);
  std::fprintf(stderr, "%s: generated, %zu entries, %zu iterations\n", argv[1],
               made.snapshot.trace.size(), run.iterations.size());
  return out.flush() ? 0 : 1;
}

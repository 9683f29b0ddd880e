#include "step/gemini.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "step/gemini_chunks.h"
#include "step/transform/colossal_tensor.h"

namespace headroom::step {

namespace {

using memory::Category;
using model::Parameter;
using op::DType;
using op::Tensor;

// Who holds a parameter: all ranks, or those alone that have the same part of it.
enum Holders : size_t { kAll, kPart };

struct Chunk {
  Holders holders = kAll;
  int64_t elements = 0;
  int64_t share = 0;
  bool stays_whole = false;
  size_t parameters = 0;
  size_t reduced = 0;  // of them, whose gradients are in it
  bool is_whole = true;
  Tensor whole;   // in half precision; its storage comes and goes
  Tensor part;    // the rank's share, while the whole is not there
  Tensor wide;    // in float32, while it is filled
  Tensor master;  // the rank's share of that
};

// A parameter's place, in the order of what is trained.
struct Member {
  model::ValueId value = model::kNoValue;
  size_t chunk = 0;
  int64_t own = 0;  // elements in the rank's share
};

class Gemini final : public ParallelMethod {
 public:
  Gemini(const model::Graph& graph, const GeminiOptions& options, op::Eager& eager,
         Recorder& recorder)
      : options_(options), eager_(eager), recorder_(recorder), marks_(graph.instructions.size()) {
    place(graph);
    mark_uses(graph);
  }

  [[nodiscard]] bool keeps_parameters_whole() const override { return true; }
  [[nodiscard]] bool clips_gradients() const override { return true; }
  [[nodiscard]] const InstructionMarks* marks() const override { return &marks_; }

  std::vector<OptimizedParameter> construct(Frame&,
                                            std::vector<OptimizedParameter> whole) override {
    std::array<std::optional<size_t>, 2> filled;  // by holders
    for (size_t i = 0; i < members_.size(); ++i) {
      const size_t chunk = members_[i].chunk;
      std::optional<size_t>& last = filled[chunks_[chunk].holders];
      const Tensor wide = op::to(eager_, whole[i].tensor, DType::f32);
      if (last != chunk) {
        if (last) close(chunks_[*last]);
        open(chunks_[chunk], whole[i].tensor.dtype());
        last = chunk;
      }
      move_in(whole[i].tensor, wide, chunk);
    }
    for (const std::optional<size_t>& last : filled) {
      if (last) close(chunks_[*last]);
    }
    return masters_of(std::move(whole));
  }

  void begin_forward(const MicroBatch&, Frame&) override {}

  void before(uint32_t instruction, Frame&) override {
    for (const size_t chunk : uses_.at(instruction)) gather(chunks_[chunk]);
  }

  void accumulated(const Tensor& leaf) override {
    const auto at = chunk_of_.find(leaf.get());
    if (at == chunk_of_.end()) return;
    eager_.kernel(op::OpKind::copy, 0, leaf->grad.bytes(), leaf->grad.bytes());
    leaf->grad = Tensor();
    Chunk& chunk = chunks_[at->second];
    if (++chunk.reduced < chunk.parameters) return;
    chunk.reduced = 0;
    reduce(chunk);
    look_at(chunk.stays_whole ? chunk.whole : chunk.part);
  }

  void end_backward() override { recorder_.await_all(); }

  void run_optimizer(const std::function<void()>& step) override {
    for (const auto& [master, chunk] : masters_) {
      const Chunk& of = chunks_[chunk];
      master->grad = eager_.alias(of.stays_whole ? of.whole : of.part, master.sizes(), {1});
    }
    step();
    for (const auto& [master, chunk] : masters_) master->grad = Tensor();
    for (const Chunk& chunk : chunks_) {
      eager_.kernel(op::OpKind::copy, 0, chunk.master.bytes(), chunk.master.bytes() / 2);
    }
  }

 private:
  [[nodiscard]] Holders holders_of(const Parameter& parameter) const {
    return options_.tensor_ranks > 1 && is_colossal_divided(parameter) ? kPart : kAll;
  }
  [[nodiscard]] int64_t ranks_of(Holders holders) const {
    return holders == kPart ? options_.ranks : options_.ranks * options_.tensor_ranks;
  }

  [[nodiscard]] std::vector<ChunkSize> sizes_of(const model::Graph& graph) const {
    std::vector<ChunkGroup> groups{{ranks_of(kAll), {}}, {ranks_of(kPart), {}}};
    for (const Parameter& parameter : graph.parameters) {
      if (parameter.tied_to || !parameter.trainable) continue;
      groups[holders_of(parameter)].sizes.push_back(op::product(parameter.shape));
    }
    return chunk_sizes(groups);
  }

  // ChunkManager.register_tensor: into the last chunk of those holders, or into a new one.
  void place(const model::Graph& graph) {
    const std::vector<ChunkSize> sizes = sizes_of(graph);
    std::array<std::optional<size_t>, 2> filled;
    std::array<int64_t, 2> used{};
    for (const Parameter& parameter : graph.parameters) {
      if (parameter.tied_to || !parameter.trainable) continue;
      const Holders holders = holders_of(parameter);
      const int64_t elements = op::product(parameter.shape);
      std::optional<size_t>& last = filled[holders];
      if (!last || used[holders] + elements > chunks_[*last].elements) {
        last = chunks_.size();
        used[holders] = 0;
        chunks_.push_back(new_chunk(holders, sizes[holders], elements));
      }
      Chunk& chunk = chunks_[*last];
      const int64_t begin = std::exchange(used[holders], used[holders] + elements);
      const int64_t end = std::min(begin + elements, chunk.share);
      members_.push_back({parameter.value, *last, std::max<int64_t>(0, end - begin)});
      ++chunk.parameters;
    }
  }

  [[nodiscard]] Chunk new_chunk(Holders holders, const ChunkSize& size, int64_t first) const {
    const int64_t ranks = ranks_of(holders);
    Chunk chunk;
    chunk.holders = holders;
    chunk.elements = size.elements;
    if (first > size.elements) chunk.elements = (first + ranks - 1) / ranks * ranks;
    chunk.stays_whole = size.stays_whole;
    chunk.share = chunk.stays_whole ? chunk.elements : chunk.elements / ranks;
    return chunk;
  }

  // Before an operator runs, hooks see to it that its parameters are there.
  void mark_uses(const model::Graph& graph) {
    std::unordered_map<model::ValueId, size_t> chunk_of;
    for (const Member& member : members_) chunk_of[member.value] = member.chunk;
    for (uint32_t i = 0; i < graph.instructions.size(); ++i) {
      const model::Instruction& instruction = graph.instructions[i];
      if (instruction.kind != model::InstructionKind::operation) continue;
      for (const model::ValueId input : graph.operations[instruction.index].inputs) {
        const auto at = chunk_of.find(input);
        if (at == chunk_of.end()) continue;
        marks_[i].before = true;
        uses_[i].push_back(at->second);
      }
    }
  }

  void open(Chunk& chunk, DType type) {
    const CategoryScope scope(recorder_, Category::parameter);
    chunk.whole = eager_.empty({chunk.elements}, type);
    chunk.wide = eager_.empty({chunk.elements}, DType::f32);
  }

  // The parameter is a view of the chunk from here on, and its own block goes.
  void move_in(const Tensor& parameter, const Tensor& wide, size_t chunk) {
    eager_.kernel(op::OpKind::copy, 0, parameter.bytes(), parameter.bytes());
    eager_.kernel(op::OpKind::copy, 0, wide.bytes(), wide.bytes());
    parameter->storage = chunks_[chunk].whole->storage;
    chunk_of_[parameter.get()] = chunk;
  }

  // Of both a rank keeps its share.
  void close(Chunk& chunk) {
    if (chunk.stays_whole) {
      chunk.master = std::move(chunk.wide);
      recorder_.recategorize(chunk.master, Category::optimizer_state);
      return;
    }
    {
      const CategoryScope scope(recorder_, Category::parameter);
      chunk.part = eager_.empty({chunk.share}, chunk.whole.dtype());
      scatter(chunk);
    }
    const CategoryScope scope(recorder_, Category::optimizer_state);
    chunk.master = eager_.empty({chunk.share}, DType::f32);
    eager_.kernel(op::OpKind::copy, 0, chunk.master.bytes(), chunk.master.bytes());
    chunk.wide = Tensor();
  }

  void scatter(Chunk& chunk) {
    eager_.kernel(op::OpKind::copy, 0, chunk.part.bytes(), chunk.part.bytes());
    eager_.release_storage(chunk.whole);
    chunk.is_whole = false;
  }

  // What the optimizer steps of each: the rank's share, where it has one.
  std::vector<OptimizedParameter> masters_of(std::vector<OptimizedParameter> whole) {
    std::vector<OptimizedParameter> stepped;
    for (size_t i = 0; i < members_.size(); ++i) {
      const Member& member = members_[i];
      if (member.own == 0) continue;
      OptimizedParameter& parameter = stepped.emplace_back(std::move(whole[i]));
      parameter.tensor = eager_.alias(chunks_[member.chunk].master, {member.own}, {1});
      parameter.is_lm_head = false;  // its gradient's block is not its own (parallel_method.h)
      masters_.emplace_back(parameter.tensor, member.chunk);
    }
    return stepped;
  }

  // Chunk.access_chunk
  void gather(Chunk& chunk) {
    if (chunk.is_whole) return;
    {
      const CategoryScope scope(recorder_, Category::gathered);
      eager_.restore_storage(chunk.whole);
    }
    send(chunk, op::OpKind::all_gather, chunk.part.bytes(), chunk.whole.bytes());
    chunk.part = Tensor();
    chunk.is_whole = true;
  }

  // Chunk.reduce
  void reduce(Chunk& chunk) {
    const int64_t bytes = chunk.whole.bytes();
    if (chunk.stays_whole) {
      if (ranks_of(chunk.holders) > 1) send(chunk, op::OpKind::all_reduce, bytes, bytes);
      return;
    }
    {
      const CategoryScope scope(recorder_, Category::gradient);
      chunk.part = eager_.empty({chunk.share}, chunk.whole.dtype());
    }
    send(chunk, op::OpKind::reduce_scatter, bytes, chunk.part.bytes());
    eager_.release_storage(chunk.whole);
    chunk.is_whole = false;
  }

  // NCCL's block of all parts is there while they come or go.
  void send(const Chunk& chunk, op::OpKind kind, int64_t bytes_in, int64_t bytes_out) {
    Tensor parts;
    if (kind != op::OpKind::all_reduce) {
      const CategoryScope scope(recorder_, Category::communication);
      parts = eager_.empty({chunk.elements}, chunk.whole.dtype());
      eager_.kernel(op::OpKind::copy, 0, parts.bytes(), parts.bytes());
    }
    const bool is_among_all = options_.tensor_ranks > 1 && chunk.holders == kAll;
    const RankGroup group =
        is_among_all ? RankGroup{static_cast<int32_t>(ranks_of(kAll)), 1} : RankGroup{};
    recorder_.run_collective(kind, bytes_in, bytes_out, group);
  }

  // grad_handle: the average; whether there is an inf or a nan; the norm where gradients are
  // clipped.
  void look_at(const Tensor& gradients) {
    const op::GradMode no_grad(eager_, false);
    const CategoryScope scope(recorder_, Category::temporary);
    const int64_t elements = gradients.elements();
    eager_.kernel(op::OpKind::div, static_cast<double>(elements), gradients.bytes(),
                  gradients.bytes());
    {
      const Tensor magnitudes = eager_.empty({elements}, gradients.dtype());  // isinf takes abs
      eager_.kernel(op::OpKind::compare, 0, gradients.bytes(), magnitudes.bytes());
      const Tensor found = eager_.empty({elements}, DType::boolean);
      eager_.kernel(op::OpKind::compare, 0, magnitudes.bytes(), found.bytes());
    }
    {
      const Tensor found = eager_.empty({elements}, DType::boolean);
      eager_.kernel(op::OpKind::compare, 0, gradients.bytes(), found.bytes());
    }
    if (options_.clips) (void)op::to(eager_, gradients, DType::f32);
  }

  const GeminiOptions options_;
  op::Eager& eager_;
  Recorder& recorder_;
  InstructionMarks marks_;
  std::unordered_map<uint32_t, std::vector<size_t>> uses_;  // chunks, by instruction
  std::vector<Chunk> chunks_;
  std::vector<Member> members_;
  std::unordered_map<const op::TensorImpl*, size_t> chunk_of_;
  std::vector<std::pair<Tensor, size_t>> masters_;  // and the chunk of each
};

}  // namespace

std::unique_ptr<ParallelMethod> make_gemini(const model::Graph& graph, const GeminiOptions& options,
                                            op::Eager& eager, Recorder& recorder) {
  return std::make_unique<Gemini>(graph, options, eager, recorder);
}

}  // namespace headroom::step

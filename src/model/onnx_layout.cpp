// Operators of ONNX that move memory, or choose from it. Definitions: docs/Operators.md of
// onnx/onnx.
#include <algorithm>
#include <cmath>

#include "model/onnx_call.h"

namespace headroom::model {
namespace {

using op::DType;
using op::require;

// Moves what it makes: as much is read as written.
void move(OnnxCall& call) {
  const double made = call.bytes_written();
  call.launch_moving(made, made);
}
// The same, but for numbers of the graph.
void move_unknown(OnnxCall& call) {
  if (!call.out(0).has_values) move(call);
}

void run_transpose(OnnxCall& call) {
  const Sizes& input = call.in(0).sizes;
  Sizes order(input.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(input.size() - 1 - i);
  if (const OnnxAttribute* const given = call.find("perm")) order = given->integers;
  require(order.size() == input.size(), "an order of other dimensions");
  Sizes sizes;
  size_t moved = 0;  // dimensions of more than one element that change places
  int64_t last = -1;
  for (const int64_t axis : order) {
    const size_t at = axis_of(axis, input.size());
    sizes.push_back(input[at]);
    if (input[at] <= 1) continue;
    moved += static_cast<int64_t>(at) < last ? 1 : 0;
    last = static_cast<int64_t>(at);
  }
  if (moved == 0 && call.in(0).elements() > 0) return call.make_view(std::move(sizes));
  call.make(0, std::move(sizes), call.in(0).dtype);
  move(call);
}

void run_concat(OnnxCall& call) {
  Sizes sizes = call.in(0).sizes;
  const size_t axis = axis_of(call.integer("axis", 0), sizes.size());
  bool are_known = true;
  std::vector<double> values;
  sizes[axis] = 0;
  for (size_t i = 0; i < call.input_count(); ++i) {
    const OnnxValue& part = call.in(i);
    require(part.rank() == sizes.size(), "parts of other dimensions");
    sizes[axis] += part.sizes[axis];
    check_sizes(sizes);
    are_known = are_known && part.has_values && part.rank() == 1 &&
                values.size() + part.values.size() <= static_cast<size_t>(kMostKnownValues);
    if (are_known) values.insert(values.end(), part.values.begin(), part.values.end());
  }
  call.make(0, std::move(sizes), call.in(0).dtype);
  if (are_known) call.set_values(0, std::move(values));
  move_unknown(call);
}

void run_split(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  const size_t axis = axis_of(call.integer("axis", 0), input.rank());
  const auto count = static_cast<int64_t>(call.output_count());
  require(count > 0, "parts that nobody takes");
  const int64_t part = (input.sizes[axis] + count - 1) / count;
  const auto given = call.integers("split", 1);
  require(!given || given->size() == call.output_count(), "another number of parts");
  for (int64_t i = 0; i < count; ++i) {
    Sizes sizes = input.sizes;
    const int64_t left = std::max<int64_t>(input.sizes[axis] - i * part, 0);
    sizes[axis] = given ? (*given)[static_cast<size_t>(i)] : std::min(part, left);
    call.make(static_cast<size_t>(i), std::move(sizes), input.dtype);
  }
  move(call);
}

// One dimension of a slice, as Python counts: how many, and from where.
struct Cut {
  int64_t start = 0;
  int64_t count = 0;
  int64_t step = 1;
};

Cut cut_of(int64_t start, int64_t end, int64_t step, int64_t size) {
  require(step != 0 && step > -kMostElements && step < kMostElements, "a slice that does not move");
  const auto within = [&](int64_t at) {
    if (at < 0) at = at < -size ? -1 : at + size;  // before the first
    return at;
  };
  Cut cut;
  cut.step = step;
  if (step > 0) {
    cut.start = std::clamp<int64_t>(start < 0 && start < -size ? 0 : within(start), 0, size);
    const int64_t last = std::clamp<int64_t>(end < -size ? 0 : within(end), 0, size);
    cut.count = last > cut.start ? (last - cut.start + step - 1) / step : 0;
  } else {
    cut.start = std::clamp<int64_t>(within(start), -1, size - 1);
    const int64_t last = std::clamp<int64_t>(within(end), -1, size - 1);
    cut.count = cut.start > last ? (cut.start - last - step - 1) / -step : 0;
  }
  return cut;
}

void run_slice(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  const Sizes starts = call.sizes_asked("starts", 1);
  const Sizes ends = call.sizes_asked("ends", 2);
  const auto axes = call.integers("axes", 3);
  const auto steps = call.integers("steps", 4);
  require(starts.size() == ends.size() && starts.size() <= 64 &&
              (!axes || axes->size() == starts.size()) &&
              (!steps || steps->size() == starts.size()),
          "bounds that do not fit together");
  Sizes sizes = input.sizes;
  Cut last;
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t axis = axis_of(axes ? (*axes)[i] : static_cast<int64_t>(i), input.rank());
    last = cut_of(starts[i], ends[i], steps ? (*steps)[i] : 1, input.sizes[axis]);
    sizes[axis] = last.count;
  }
  const bool turns = std::ranges::any_of(steps.value_or(Sizes()), [](int64_t s) { return s < 0; });
  if (sizes == input.sizes && !turns) return call.make_view(std::move(sizes));
  call.make(0, std::move(sizes), input.dtype);
  if (input.has_values && input.rank() == 1 && starts.size() == 1) {
    std::vector<double> values;
    for (int64_t i = 0; i < last.count; ++i) {
      values.push_back(input.values[static_cast<size_t>(last.start + i * last.step)]);
    }
    call.set_values(0, std::move(values));
  }
  move_unknown(call);
}

void run_gather(OnnxCall& call) {
  const OnnxValue& data = call.in(0);
  const OnnxValue& indices = call.in(1);
  const size_t axis = axis_of(call.integer("axis", 0), data.rank());
  Sizes sizes(data.sizes.begin(), data.sizes.begin() + static_cast<std::ptrdiff_t>(axis));
  sizes.insert(sizes.end(), indices.sizes.begin(), indices.sizes.end());
  sizes.insert(sizes.end(), data.sizes.begin() + static_cast<std::ptrdiff_t>(axis) + 1,
               data.sizes.end());
  call.make(0, std::move(sizes), data.dtype);
  if (data.has_values && data.rank() == 1 && indices.has_values) {
    std::vector<double> values;
    for (const double index : indices.values) {
      const double place = index < 0 ? index + static_cast<double>(data.values.size()) : index;
      require(place >= 0 && place < static_cast<double>(data.values.size()), "an index outside");
      values.push_back(data.values[static_cast<size_t>(place)]);
    }
    call.set_values(0, std::move(values));
  }
  if (call.out(0).has_values) return;
  const double made = call.out(0).bytes();
  call.launch_moving(made + indices.bytes(), made);
}

// Where results are as large as the indices, or as the data that is written to.
void run_gather_elements(OnnxCall& call) {
  call.make(0, call.in(1).sizes, call.in(0).dtype);
  move(call);
}
void run_gather_nd(OnnxCall& call) {
  const OnnxValue& data = call.in(0);
  const Sizes& indices = call.in(1).sizes;
  require(!indices.empty() && call.integer("batch_dims", 0) == 0, "indices that are not followed");
  const int64_t depth = indices.back();
  require(depth >= 0 && depth <= static_cast<int64_t>(data.rank()), "indices that do not fit");
  Sizes sizes(indices.begin(), indices.end() - 1);
  sizes.insert(sizes.end(), data.sizes.begin() + depth, data.sizes.end());
  call.make(0, std::move(sizes), data.dtype);
  move(call);
}
void run_scatter(OnnxCall& call) {
  call.make(0, call.in(0).sizes, call.in(0).dtype);
  const double written = call.in(2).bytes();
  call.launch_moving(written + call.in(1).bytes(), written);
}

void run_expand(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  Sizes sizes = broadcast(input.sizes, call.sizes_asked("shape", 1));
  if (sizes == input.sizes) return call.make_view(std::move(sizes));
  call.make(0, std::move(sizes), input.dtype);
  const int64_t count = call.out(0).elements();
  if (input.has_values && input.elements() == 1 && count <= kMostKnownValues) {
    return call.set_values(0, std::vector<double>(static_cast<size_t>(count), input.values[0]));
  }
  call.launch_moving(input.bytes(), call.out(0).bytes());
}

void run_tile(OnnxCall& call) {
  Sizes sizes = call.in(0).sizes;
  const Sizes repeats = call.sizes_asked("repeats", 1);
  require(repeats.size() == sizes.size(), "repeats of other dimensions");
  for (size_t i = 0; i < sizes.size(); ++i) {
    check_sizes({sizes[i], repeats[i]});
    sizes[i] *= repeats[i];
  }
  call.make(0, std::move(sizes), call.in(0).dtype);
  move(call);
}

void run_pad(OnnxCall& call) {
  Sizes sizes = call.in(0).sizes;
  const Sizes pads = call.sizes_asked(call.has_attribute("paddings") ? "paddings" : "pads", 1);
  Sizes axes = call.integers("", 3).value_or(Sizes());
  if (axes.empty()) {
    for (size_t i = 0; i < sizes.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  require(pads.size() == 2 * axes.size(), "a border of other dimensions");
  for (size_t i = 0; i < axes.size(); ++i) {
    for (const int64_t border : {pads[i], pads[i + axes.size()]}) {
      require(std::abs(std::clamp(border, -kMostElements, kMostElements)) < kMostElements,
              "a border too wide");
      sizes[axis_of(axes[i], sizes.size())] += border;
    }
    check_sizes(sizes);
  }
  call.make(0, std::move(sizes), call.in(0).dtype);
  move(call);
}

// Images [batch, channels, height, width].
void run_blocks(OnnxCall& call) {
  Sizes sizes = call.in(0).sizes;
  const int64_t block = call.integer("blocksize", 1);
  require(sizes.size() == 4 && block >= 1 && block <= (1 << 20), "blocks that cannot be");
  const bool to_space = call.node().operation == "DepthToSpace";
  require(
      to_space ? sizes[1] % (block * block) == 0 : sizes[2] % block == 0 && sizes[3] % block == 0,
      "sizes that do not fit");
  sizes[1] = to_space ? sizes[1] / (block * block) : sizes[1];
  for (const size_t i : {size_t{2}, size_t{3}}) {
    sizes[i] = to_space ? sizes[i] : sizes[i] / block;
    check_sizes({sizes[i], block});
    if (to_space) sizes[i] *= block;
  }
  if (!to_space) {
    check_sizes({sizes[1], block, block});
    sizes[1] *= block * block;
  }
  call.make(0, std::move(sizes), call.in(0).dtype);
  move(call);
}

void run_resize(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  const bool is_old = call.node().operation == "Upsample" || call.opset() < 11;
  Sizes sizes = input.sizes;
  if (!is_old && call.has(3) && call.in(3).elements() > 0) {
    sizes = call.sizes_asked("", 3);
  } else {
    const auto scales = call.numbers("scales", is_old ? 1 : 2);
    require(scales && scales->size() == sizes.size(), "no sizes and no scales");
    for (size_t i = 0; i < sizes.size(); ++i) {
      const double size = std::floor(static_cast<double>(sizes[i]) * (*scales)[i]);
      require(size >= 0 && size <= static_cast<double>(kMostElements), "a scale that cannot be");
      sizes[i] = static_cast<int64_t>(size);
    }
  }
  require(sizes.size() == input.rank(), "sizes of other dimensions");
  call.make(0, std::move(sizes), input.dtype);
  call.launch_moving(input.bytes(), call.out(0).bytes());
}

void run_top_k(OnnxCall& call) {
  Sizes sizes = call.in(0).sizes;
  const Sizes k = call.has_attribute("k") ? Sizes{call.integer("k", 0)} : call.sizes_asked("", 1);
  require(k.size() == 1, "how many is not said");
  sizes[axis_of(call.integer("axis", -1), sizes.size())] = k[0];
  call.make(0, sizes, call.in(0).dtype);
  call.make(1, sizes, DType::i64);
  call.launch(0);
}

void run_one_hot(OnnxCall& call) {
  Sizes sizes = call.in(0).sizes;
  const Sizes depth = call.sizes_asked("", 1);
  require(depth.size() == 1, "how many classes is not said");
  const size_t axis = axis_of(call.integer("axis", -1), sizes.size() + 1);
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(axis), depth[0]);
  call.make(0, std::move(sizes), call.in(2).dtype);
  call.launch(0);
}

void run_by_data(OnnxCall& /*call*/) {
  throw op::Impossible{"how much it makes depends on data", "nothing but a run can say"};
}

constexpr NamedOnnxOperator kOperators[] = {
    {"Transpose", run_transpose},
    {"Concat", run_concat},
    {"Split", run_split},
    {"Slice", run_slice},
    {"Gather", run_gather},
    {"GatherElements", run_gather_elements},
    {"GatherND", run_gather_nd},
    {"ScatterND", run_scatter},
    {"ScatterElements", run_scatter},
    {"Expand", run_expand},
    {"Tile", run_tile},
    {"Pad", run_pad},
    {"DepthToSpace", run_blocks},
    {"SpaceToDepth", run_blocks},
    {"Resize", run_resize},
    {"Upsample", run_resize},
    {"TopK", run_top_k},
    {"OneHot", run_one_hot},
    {"NonZero", run_by_data},
    {"NonMaxSuppression", run_by_data},
    {"Unique", run_by_data},
    {"Compress", run_by_data},
};

}  // namespace

OnnxOperator find_onnx_layout(std::string_view operation) {
  return find_named(kOperators, operation);
}

}  // namespace headroom::model

// Operators of ONNX that move memory or only look at it in another shape; and those that say sizes,
// which are computed (onnx_run.h). Definitions: docs/Operators.md of onnx/onnx.
#include <algorithm>
#include <array>
#include <cmath>

#include "model/onnx_call.h"

namespace headroom::model {
namespace {

using op::DType;
using op::require;

constexpr int64_t kLargest = int64_t{1} << 50;

// Moves what it makes: as much is read as written.
void move(OnnxCall& call) {
  double made = 0;
  for (const OnnxValue& output : call.outputs()) made += output.is_there ? output.bytes() : 0;
  call.launch_moving(made, made);
}
// The same, but for numbers of the graph.
void move_unknown(OnnxCall& call) {
  if (call.output_count() > 0 && !call.out(0).has_values) move(call);
}

Sizes sizes_asked(const OnnxCall& call, std::string_view attribute, size_t input) {
  const auto asked = call.integers(attribute, input);
  require(asked.has_value(), "its sizes are missing");
  return *asked;
}

void run_reshape(OnnxCall& call) {
  const OnnxValue& input = call.in(0);
  Sizes sizes = sizes_asked(call, "shape", 1);
  require(sizes.size() <= 64, "a tensor of that many dimensions");
  const bool allows_zero = call.integer("allowzero", 0) != 0;
  std::optional<size_t> open;
  Sizes others;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 && !allows_zero) {
      require(i < input.rank(), "a size of the input that is not there");
      sizes[i] = input.sizes[i];
    }
    if (sizes[i] == -1) {
      require(!open, "two open sizes");
      open = i;
    } else {
      others.push_back(sizes[i]);
    }
  }
  check_sizes(others);
  if (open) {
    int64_t product = 1;
    for (const int64_t size : others) product *= size;
    require(product > 0 && input.elements() % product == 0, "another number of elements");
    sizes[*open] = input.elements() / product;
  }
  call.make_view(std::move(sizes));
}

void run_flatten(OnnxCall& call) {
  const Sizes& input = call.in(0).sizes;
  const int64_t axis = call.integer("axis", 1);
  const size_t at =
      axis == static_cast<int64_t>(input.size()) ? input.size() : axis_of(axis, input.size());
  Sizes sizes{1, 1};
  for (size_t i = 0; i < input.size(); ++i) sizes[i < at ? 0 : 1] *= input[i];
  call.make_view(std::move(sizes));
}

void run_squeeze(OnnxCall& call) {
  const Sizes& input = call.in(0).sizes;
  const auto axes = call.integers("axes", 1);
  std::vector<bool> goes(input.size());
  for (size_t i = 0; i < input.size(); ++i) goes[i] = !axes && input[i] == 1;
  for (const int64_t axis : axes.value_or(Sizes())) goes[axis_of(axis, input.size())] = true;
  Sizes sizes;
  for (size_t i = 0; i < input.size(); ++i) {
    if (!goes[i]) sizes.push_back(input[i]);
  }
  call.make_view(std::move(sizes));
}

void run_unsqueeze(OnnxCall& call) {
  const Sizes& input = call.in(0).sizes;
  const Sizes axes = sizes_asked(call, "axes", 1);
  const size_t rank = input.size() + axes.size();
  require(rank <= 64, "a tensor of that many dimensions");
  Sizes sizes(rank, 0);
  for (const int64_t axis : axes) {
    int64_t& size = sizes[axis_of(axis, rank)];
    require(size == 0, "a dimension named twice");
    size = 1;
  }
  size_t next = 0;
  for (int64_t& size : sizes) {
    if (size == 0) size = input[next++];
  }
  call.make_view(std::move(sizes));
}

void run_identity(OnnxCall& call) {
  call.make_view(call.in(0).sizes);
  call.make(1, call.in(0).sizes, DType::boolean);  // Dropout's mask
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
  require(step != 0 && step > -kLargest && step < kLargest, "a slice that does not move");
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
  const Sizes starts = sizes_asked(call, "starts", 1);
  const Sizes ends = sizes_asked(call, "ends", 2);
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
  if (call.output_count() == 0 || call.out(0).has_values) return;
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
  Sizes sizes = broadcast(input.sizes, sizes_asked(call, "shape", 1));
  if (sizes == input.sizes) return call.make_view(std::move(sizes));
  call.make(0, std::move(sizes), input.dtype);
  if (call.output_count() == 0 || !call.out(0).is_there) return;
  const int64_t count = call.out(0).elements();
  if (input.has_values && input.elements() == 1 && count <= kMostKnownValues) {
    return call.set_values(0, std::vector<double>(static_cast<size_t>(count), input.values[0]));
  }
  call.launch_moving(input.bytes(), call.out(0).bytes());
}

void run_tile(OnnxCall& call) {
  Sizes sizes = call.in(0).sizes;
  const Sizes repeats = sizes_asked(call, "repeats", 1);
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
  const Sizes pads = sizes_asked(call, call.has_attribute("paddings") ? "paddings" : "pads", 1);
  Sizes axes = call.integers("", 3).value_or(Sizes());
  if (axes.empty()) {
    for (size_t i = 0; i < sizes.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  require(pads.size() == 2 * axes.size(), "a border of other dimensions");
  for (size_t i = 0; i < axes.size(); ++i) {
    for (const int64_t border : {pads[i], pads[i + axes.size()]}) {
      require(std::abs(std::clamp(border, -kLargest, kLargest)) < kLargest, "a border too wide");
      sizes[axis_of(axes[i], sizes.size())] += border;
    }
    check_sizes(sizes);
  }
  call.make(0, std::move(sizes), call.in(0).dtype);
  move(call);
}

void run_shape(OnnxCall& call) {
  const Sizes& input = call.in(0).sizes;
  const auto rank = static_cast<int64_t>(input.size());
  const auto place = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = place(std::clamp(call.integer("start", 0), -kLargest, kLargest));
  const int64_t end = place(std::clamp(call.integer("end", rank), -kLargest, kLargest));
  std::vector<double> values;
  for (int64_t i = start; i < end; ++i) {
    values.push_back(static_cast<double>(input[static_cast<size_t>(i)]));
  }
  call.make(0, {static_cast<int64_t>(values.size())}, DType::i64);
  call.set_values(0, std::move(values));
}

void run_size(OnnxCall& call) {
  call.make(0, {}, DType::i64);
  call.set_values(0, {static_cast<double>(call.in(0).elements())});
}

void run_range(OnnxCall& call) {
  const auto start = call.numbers("", 0);
  const auto limit = call.numbers("", 1);
  const auto delta = call.numbers("", 2);
  require(start && limit && delta && start->size() == 1 && limit->size() == 1 &&
              delta->size() == 1 && (*delta)[0] != 0,
          "a range without bounds");
  const double count = std::max(std::ceil(((*limit)[0] - (*start)[0]) / (*delta)[0]), 0.0);
  require(count <= static_cast<double>(kLargest), "a range too long");
  call.make(0, {static_cast<int64_t>(count)}, call.in(0).dtype);
  if (count <= static_cast<double>(kMostKnownValues)) {
    std::vector<double> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = (*start)[0] + static_cast<double>(i) * (*delta)[0];
    }
    call.set_values(0, std::move(values));
  }
}

void run_constant_of_shape(OnnxCall& call) {
  const OnnxAttribute* const given = call.find("value");
  const bool has_value = given != nullptr && given->tensor.has_value();
  const DType dtype = has_value ? given->tensor->dtype.value_or(DType::f32) : DType::f32;
  const double value =
      has_value && given->tensor->values.size() == 1 ? given->tensor->values[0] : 0;
  call.make(0, sizes_asked(call, "", 0), dtype);
  if (call.output_count() == 0 || !call.out(0).is_there) return;
  const int64_t count = call.out(0).elements();
  if (count <= kMostKnownValues) {
    return call.set_values(0, std::vector<double>(static_cast<size_t>(count), value));
  }
  call.launch_moving(0, call.out(0).bytes());
}

void run_constant(OnnxCall& call) {
  for (const OnnxAttribute& attribute : call.node().attributes) {
    if (attribute.name == "value" && attribute.tensor) {
      call.make(0, attribute.tensor->sizes, attribute.tensor->dtype.value_or(DType::u8));
      if (attribute.tensor->has_values) call.set_values(0, attribute.tensor->values);
    } else if (attribute.name == "value_int" || attribute.name == "value_float") {
      const bool is_integer = attribute.name == "value_int";
      call.make(0, {}, is_integer ? DType::i64 : DType::f32);
      call.set_values(0, {is_integer ? static_cast<double>(attribute.integer) : attribute.number});
    } else if (attribute.name == "value_ints") {
      call.make(0, {static_cast<int64_t>(attribute.integers.size())}, DType::i64);
      call.set_values(0, {attribute.integers.begin(), attribute.integers.end()});
    } else if (attribute.name == "value_floats") {
      call.make(0, {static_cast<int64_t>(attribute.numbers.size())}, DType::f32);
      call.set_values(0, attribute.numbers);
    }
  }
  require(call.output_count() == 0 || call.out(0).is_there, "a constant of a kind not known here");
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
    sizes = sizes_asked(call, "", 3);
  } else {
    const auto scales = call.numbers("scales", is_old ? 1 : 2);
    require(scales && scales->size() == sizes.size(), "no sizes and no scales");
    for (size_t i = 0; i < sizes.size(); ++i) {
      const double size = std::floor(static_cast<double>(sizes[i]) * (*scales)[i]);
      require(size >= 0 && size <= static_cast<double>(kLargest), "a scale that cannot be");
      sizes[i] = static_cast<int64_t>(size);
    }
  }
  require(sizes.size() == input.rank(), "sizes of other dimensions");
  call.make(0, std::move(sizes), input.dtype);
  if (call.output_count() > 0) call.launch_moving(input.bytes(), call.out(0).bytes());
}

void run_top_k(OnnxCall& call) {
  Sizes sizes = call.in(0).sizes;
  const Sizes k = call.has_attribute("k") ? Sizes{call.integer("k", 0)} : sizes_asked(call, "", 1);
  require(k.size() == 1, "how many is not said");
  sizes[axis_of(call.integer("axis", -1), sizes.size())] = k[0];
  call.make(0, sizes, call.in(0).dtype);
  call.make(1, sizes, DType::i64);
  call.launch(0);
}

void run_one_hot(OnnxCall& call) {
  Sizes sizes = call.in(0).sizes;
  const Sizes depth = sizes_asked(call, "", 1);
  require(depth.size() == 1, "how many classes is not said");
  const size_t axis = axis_of(call.integer("axis", -1), sizes.size() + 1);
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(axis), depth[0]);
  call.make(0, std::move(sizes), call.in(2).dtype);
  call.launch(0);
}

void run_by_data(OnnxCall& /*call*/) {
  throw op::Impossible{"how much it makes depends on data", "nothing but a run can say"};
}

struct Named {
  std::string_view name;
  OnnxOperator run;
};
constexpr std::array kOperators{Named{"Reshape", run_reshape},
                                Named{"Flatten", run_flatten},
                                Named{"Squeeze", run_squeeze},
                                Named{"Unsqueeze", run_unsqueeze},
                                Named{"Identity", run_identity},
                                Named{"Dropout", run_identity},
                                Named{"Transpose", run_transpose},
                                Named{"Concat", run_concat},
                                Named{"Split", run_split},
                                Named{"Slice", run_slice},
                                Named{"Gather", run_gather},
                                Named{"GatherElements", run_gather_elements},
                                Named{"GatherND", run_gather_nd},
                                Named{"ScatterND", run_scatter},
                                Named{"ScatterElements", run_scatter},
                                Named{"Expand", run_expand},
                                Named{"Tile", run_tile},
                                Named{"Pad", run_pad},
                                Named{"Shape", run_shape},
                                Named{"Size", run_size},
                                Named{"Range", run_range},
                                Named{"ConstantOfShape", run_constant_of_shape},
                                Named{"Constant", run_constant},
                                Named{"DepthToSpace", run_blocks},
                                Named{"SpaceToDepth", run_blocks},
                                Named{"Resize", run_resize},
                                Named{"Upsample", run_resize},
                                Named{"TopK", run_top_k},
                                Named{"OneHot", run_one_hot},
                                Named{"NonZero", run_by_data},
                                Named{"NonMaxSuppression", run_by_data},
                                Named{"Unique", run_by_data},
                                Named{"Compress", run_by_data}};

}  // namespace

OnnxOperator find_onnx_layout(std::string_view operation) {
  for (const Named& one : kOperators) {
    if (one.name == operation) return one.run;
  }
  return nullptr;
}

}  // namespace headroom::model

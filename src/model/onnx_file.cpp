#include "model/onnx_file.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/file.h"
#include "base/units.h"
#include "text/wire_message.h"

namespace headroom::model {
namespace {

using op::DType;
using text::WireField;
using text::WireMessage;
using Kind = WireField::Kind;

constexpr Bytes kMostBytes{int64_t{2} * kGiB};  // as much as a message of protocol buffers holds
// In memory, of all items that the file has together, whose bytes in it may be a hundred times
// fewer.
constexpr int64_t kMostKept = int64_t{512} * kMiB;
constexpr size_t kMostValues = 4096;  // of a tensor whose values are kept
constexpr size_t kMostRank = 64;
constexpr size_t kMostName = 4096;

struct NamedType {
  int64_t number;
  DType dtype;
};
// TensorProto.DataType. Unsigned types are as large as the signed ones, which is all that matters.
constexpr std::array kTypes{
    NamedType{1, DType::f32},  NamedType{2, DType::u8},      NamedType{3, DType::i8},
    NamedType{4, DType::i16},  NamedType{5, DType::i16},     NamedType{6, DType::i32},
    NamedType{7, DType::i64},  NamedType{9, DType::boolean}, NamedType{10, DType::f16},
    NamedType{11, DType::f64}, NamedType{12, DType::i32},    NamedType{13, DType::i64},
    NamedType{14, DType::c64}, NamedType{16, DType::bf16},   NamedType{17, DType::f8},
    NamedType{18, DType::f8},  NamedType{19, DType::f8},     NamedType{20, DType::f8},
    NamedType{21, DType::u8},  NamedType{22, DType::i8},     NamedType{23, DType::f8}};

// UINT4, INT4 and FLOAT4E2M1: two elements in a byte.
bool is_half_byte(int64_t number) { return number >= 21 && number <= 23; }

std::string text_of(const WireField& field) {
  return std::string(field.bytes.substr(0, kMostName));
}

double number_of(uint64_t bits, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return std::bit_cast<float>(static_cast<uint32_t>(bits));
    case DType::f64:
      return std::bit_cast<double>(bits);
    case DType::i32:
      return static_cast<int32_t>(bits);
    case DType::i16:
      return static_cast<int16_t>(bits);
    case DType::i8:
      return static_cast<int8_t>(bits);
    default:
      return static_cast<double>(static_cast<int64_t>(bits));
  }
}

bool has_numbers(DType dtype) {
  return dtype != DType::f16 && dtype != DType::bf16 && dtype != DType::f8 && dtype != DType::c64;
}

class Parser {
 public:
  explicit Parser(std::string file) { model_.file = std::move(file); }

  Result<OnnxModel> parse(std::string_view bytes) {
    WireMessage message(bytes);
    WireField field;
    bool has_graph = false;
    while (message.next(field)) {
      if (field.number == 2 && field.kind == Kind::bytes) model_.producer = text_of(field);
      if (field.number == 8 && field.kind == Kind::bytes) HEADROOM_TRY(read_opset(field));
      if (field.number != 7 || field.kind != Kind::bytes) continue;
      has_graph = true;
      HEADROOM_TRY(read_graph(field));
    }
    if (message.failed()) return broken(message.place());
    if (!has_graph || model_.nodes.empty()) {
      return Error{ErrorCode::bad_input, "holds no graph of operators", model_.file,
                   "an ONNX model, as torch.onnx.export() writes it"};
    }
    return std::move(model_);
  }

 private:
  [[nodiscard]] Error broken(size_t at) const {
    return {ErrorCode::bad_input, "is no ONNX model, or one that was cut",
            model_.file + ": byte " + std::to_string(at), "export or copy it again"};
  }
  [[nodiscard]] Error error(const WireField& field, std::string message) const {
    return {ErrorCode::bad_input, std::move(message),
            model_.file + ": byte " + std::to_string(field.at), ""};
  }

  // Calls `take` with each field; its Error, or that the bytes are no message.
  template <typename Take>
  Result<void> each(const WireField& outer, Take take) const {
    WireMessage message(outer.bytes, outer.at);
    WireField field;
    while (message.next(field)) HEADROOM_TRY(take(field));
    if (message.failed()) return broken(message.place());
    return {};
  }

  // Before an item of so many bytes is kept.
  Result<void> account(const WireField& field, size_t bytes) {
    kept_ += static_cast<int64_t>(bytes);
    if (kept_ > kMostKept) return error(field, "a graph that large is not believed");
    return {};
  }

  // One integer, or a packed list of them.
  Result<void> add_integers(const WireField& field, size_t most, std::vector<int64_t>& list) {
    if (field.kind == Kind::integer) {
      if (list.size() == most) return error(field, "a list of that many numbers is not believed");
      list.push_back(static_cast<int64_t>(field.value));
      return account(field, sizeof(int64_t));
    }
    if (field.kind != Kind::bytes) return error(field, "expected integers");
    WireMessage packed(field.bytes, field.at);
    uint64_t value = 0;
    while (packed.next_integer(value)) {
      if (list.size() == most) return error(field, "a list of that many numbers is not believed");
      list.push_back(static_cast<int64_t>(value));
    }
    if (packed.failed()) return broken(packed.place());
    return account(field, list.size() * sizeof(int64_t));
  }

  // Floats or doubles: one, or packed.
  Result<void> add_numbers(const WireField& field, DType dtype, std::vector<double>& list) {
    const size_t size = dtype == DType::f64 ? 8 : 4;
    if (field.kind == Kind::fixed32 || field.kind == Kind::fixed64) {
      if (list.size() < kMostValues) list.push_back(number_of(field.value, dtype));
      return account(field, sizeof(double));
    }
    if (field.kind != Kind::bytes) return error(field, "expected numbers");
    for (size_t at = 0; at + size <= field.bytes.size() && list.size() < kMostValues; at += size) {
      list.push_back(raw_number(field.bytes.substr(at, size), dtype));
    }
    return account(field, list.size() * sizeof(double));
  }

  static double raw_number(std::string_view bytes, DType dtype) {
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      bits |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
    }
    return number_of(bits, dtype);
  }

  Result<void> read_opset(const WireField& outer) {
    std::string domain;
    int64_t version = 0;
    HEADROOM_TRY(each(outer, [&](const WireField& field) -> Result<void> {
      if (field.number == 1 && field.kind == Kind::bytes) domain = text_of(field);
      if (field.number == 2) version = static_cast<int64_t>(field.value);
      return {};
    }));
    if (domain.empty() || domain == "ai.onnx") model_.opset = version;
    return {};
  }

  template <typename T>
  Result<void> append(const WireField& field, std::vector<T>& list, Result<T> item) {
    if (!item) return item.error();
    HEADROOM_TRY(account(field, sizeof(T)));
    list.push_back(std::move(*item));
    return {};
  }

  Result<void> read_graph(const WireField& outer) {
    return each(outer, [&](const WireField& field) -> Result<void> {
      if (field.kind != Kind::bytes) return {};
      switch (field.number) {
        case 1:
          return append(field, model_.nodes, read_node(field));
        case 5:
          return append(field, model_.weights, read_tensor(field));
        case 11:
          return append(field, model_.inputs, read_declared(field));
        case 12:
        case 13:
          return append(field, model_.known, read_declared(field));
        default:
          return {};
      }
    });
  }

  Result<OnnxNode> read_node(const WireField& outer) {
    OnnxNode node;
    HEADROOM_TRY(each(outer, [&](const WireField& field) -> Result<void> {
      if (field.kind != Kind::bytes) return {};
      if (field.number == 1 || field.number == 2) {
        std::vector<std::string>& names = field.number == 1 ? node.inputs : node.outputs;
        if (const auto kept = account(field, sizeof(std::string)); !kept) return kept;
        names.push_back(text_of(field));
      }
      if (field.number == 3) node.name = text_of(field);
      if (field.number == 4) node.operation = text_of(field);
      if (field.number == 7) node.domain = text_of(field);
      if (field.number == 5) return read_attribute(field, node);
      return {};
    }));
    if (node.operation.empty()) return error(outer, "an operator without a name");
    return node;
  }

  Result<void> read_attribute(const WireField& outer, OnnxNode& node) {
    OnnxAttribute attribute;
    HEADROOM_TRY(each(outer, [&](const WireField& field) -> Result<void> {
      switch (field.number) {
        case 1:
          attribute.name = text_of(field);
          return {};
        case 2:
          attribute.number = number_of(field.value, DType::f32);
          return {};
        case 3:
          attribute.integer = static_cast<int64_t>(field.value);
          return {};
        case 4:
          attribute.text = text_of(field);
          return {};
        case 5: {
          HEADROOM_ASSIGN(attribute.tensor, read_tensor(field));
          return {};
        }
        case 6:
        case 11:
          node.has_graph = true;
          return {};
        case 7:
          return add_numbers(field, DType::f32, attribute.numbers);
        case 8:
          return add_integers(field, kMostValues, attribute.integers);
        default:
          return {};
      }
    }));
    if (node.attributes.size() == kMostValues) return error(outer, "that many attributes");
    HEADROOM_TRY(account(outer, sizeof(OnnxAttribute)));
    node.attributes.push_back(std::move(attribute));
    return {};
  }

  Result<OnnxTensor> read_tensor(const WireField& outer) {
    OnnxTensor tensor;
    std::string_view raw;
    std::vector<double> numbers;
    std::vector<int64_t> integers;
    HEADROOM_TRY(each(outer, [&](const WireField& field) -> Result<void> {
      switch (field.number) {
        case 1:
          return add_integers(field, kMostRank, tensor.sizes);
        case 2:
          tensor.dtype = onnx_dtype(static_cast<int64_t>(field.value));
          tensor.is_half_byte = is_half_byte(static_cast<int64_t>(field.value));
          return {};
        case 4:
          return add_numbers(field, DType::f32, numbers);
        case 5:
        case 7:
          // Of a large tensor the values are not wanted.
          return field.bytes.size() > 10 * kMostValues
                     ? Result<void>()
                     : add_integers(field, 10 * kMostValues, integers);
        case 8:
          tensor.name = text_of(field);
          return {};
        case 9:
          raw = field.bytes;
          return {};
        case 10:
          return add_numbers(field, DType::f64, numbers);
        default:
          return {};
      }
    }));
    HEADROOM_ASSIGN(const size_t count, count_of(outer, tensor));
    for (const int64_t value : integers) numbers.push_back(static_cast<double>(value));
    keep_values(raw, std::move(numbers), count, tensor);
    return tensor;
  }

  // How many elements the sizes say, as far as that is of interest.
  Result<size_t> count_of(const WireField& outer, const OnnxTensor& tensor) const {
    int64_t count = 1;
    for (const int64_t size : tensor.sizes) {
      if (size < 0) return error(outer, "a negative size");
      const auto product = checked_multiply(count, size);
      if (!product) return error(outer, "a tensor larger than can be counted");
      count = *product;
    }
    return static_cast<size_t>(count);
  }

  static void keep_values(std::string_view raw, std::vector<double> numbers, size_t count,
                          OnnxTensor& tensor) {
    if (!tensor.dtype || count > kMostValues || !has_numbers(*tensor.dtype)) return;
    if (tensor.is_half_byte) return;
    const auto size = static_cast<size_t>(op::element_size(*tensor.dtype));
    if (!raw.empty() && raw.size() == count * size) {
      numbers.clear();
      for (size_t i = 0; i < count; ++i) {
        numbers.push_back(raw_number(raw.substr(i * size, size), *tensor.dtype));
      }
    }
    if (numbers.size() != count) return;
    tensor.has_values = true;
    tensor.values = std::move(numbers);
  }

  Result<OnnxDeclared> read_declared(const WireField& outer) {
    OnnxDeclared declared;
    HEADROOM_TRY(each(outer, [&](const WireField& field) -> Result<void> {
      if (field.kind != Kind::bytes) return {};
      if (field.number == 1) declared.name = text_of(field);
      if (field.number != 2) return {};
      return each(field, [&](const WireField& type) -> Result<void> {
        if (type.number != 1 || type.kind != Kind::bytes) return {};  // no tensor
        return read_tensor_type(type, declared);
      });
    }));
    return declared;
  }

  Result<void> read_tensor_type(const WireField& outer, OnnxDeclared& declared) {
    return each(outer, [&](const WireField& field) -> Result<void> {
      if (field.number == 1) declared.dtype = onnx_dtype(static_cast<int64_t>(field.value));
      if (field.number != 2 || field.kind != Kind::bytes) return {};
      declared.has_shape = true;
      return each(field, [&](const WireField& item) -> Result<void> {
        if (item.number != 1 || item.kind != Kind::bytes) return {};
        if (declared.dimensions.size() == kMostRank) return error(item, "that many dimensions");
        HEADROOM_TRY(account(item, sizeof(OnnxDimension)));
        OnnxDimension dimension;
        HEADROOM_TRY(each(item, [&](const WireField& size) -> Result<void> {
          if (size.number == 1) dimension.size = static_cast<int64_t>(size.value);
          if (size.number == 2 && size.kind == Kind::bytes) dimension.name = text_of(size);
          return {};
        }));
        declared.dimensions.push_back(std::move(dimension));
        return {};
      });
    });
  }

  OnnxModel model_;
  int64_t kept_ = 0;
};

}  // namespace

std::optional<DType> onnx_dtype(int64_t number) {
  for (const NamedType& type : kTypes) {
    if (type.number == number) return type.dtype;
  }
  return std::nullopt;
}

bool is_onnx_name(std::string_view name) { return name.ends_with(".onnx"); }

Result<OnnxModel> parse_onnx(std::string_view bytes, std::string file) {
  return Parser(std::move(file)).parse(bytes);
}

Result<OnnxModel> read_onnx(const std::string& path) {
  HEADROOM_ASSIGN(const std::string bytes, read_file(path, kMostBytes));
  return parse_onnx(bytes, path);
}

}  // namespace headroom::model

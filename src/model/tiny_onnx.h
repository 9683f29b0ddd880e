// ONNX files made byte by byte, for tests: as the format is documented, so that nothing that reads
// them had a hand in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::model::tiny_onnx {

// A protocol buffer in the making.
inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}
inline std::string integer(uint64_t field, uint64_t value) {
  return varint(field << 3) + varint(value);
}
inline std::string bytes(uint64_t field, const std::string& content) {
  return varint(field << 3 | 2) + varint(content.size()) + content;
}

inline constexpr int kFloat = 1;
inline constexpr int kByte = 3;
inline constexpr int kInteger = 7;

inline std::string tensor(const std::string& name, int type, const std::vector<int64_t>& sizes,
                          const std::vector<int64_t>& values = {}) {
  std::string made;
  for (const int64_t size : sizes) made += integer(1, static_cast<uint64_t>(size));
  made += integer(2, static_cast<uint64_t>(type)) + bytes(8, name);
  std::string packed;
  for (const int64_t value : values) packed += varint(static_cast<uint64_t>(value));
  return packed.empty() ? made : made + bytes(7, packed);
}
inline std::string weight(const std::string& name, int type, const std::vector<int64_t>& sizes,
                          const std::vector<int64_t>& values = {}) {
  return bytes(5, tensor(name, type, sizes, values));
}

// A size, or a name where it is open.
inline std::string input(const std::string& name, int type, const std::vector<std::string>& sizes,
                         uint64_t field = 11) {
  std::string shape;
  for (const std::string& size : sizes) {
    const bool is_size = size[0] >= '0' && size[0] <= '9';
    shape += bytes(1, is_size ? integer(1, std::stoull(size)) : bytes(2, size));
  }
  const std::string type_of = integer(1, static_cast<uint64_t>(type)) + bytes(2, shape);
  return bytes(field, bytes(1, name) + bytes(2, bytes(1, type_of)));
}

inline std::string attribute(const std::string& name, const std::vector<int64_t>& values) {
  std::string made = bytes(1, name);
  for (const int64_t value : values) made += integer(8, static_cast<uint64_t>(value));
  return bytes(5, made);
}
inline std::string number(const std::string& name, int64_t value) {
  return bytes(5, bytes(1, name) + integer(3, static_cast<uint64_t>(value)));
}
inline std::string word(const std::string& name, const std::string& value) {
  return bytes(5, bytes(1, name) + bytes(4, value));
}

inline std::string node(const std::string& operation, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& more = "") {
  std::string made;
  for (const std::string& name : inputs) made += bytes(1, name);
  for (const std::string& name : outputs) made += bytes(2, name);
  return bytes(1, made + bytes(4, operation) + more);
}

inline std::string onnx_file(const std::string& graph) {
  return integer(1, 8) + bytes(2, "test") + bytes(7, graph) +
         bytes(8, bytes(1, "") + integer(2, 17));
}

}  // namespace headroom::model::tiny_onnx

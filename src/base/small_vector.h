// SmallVector<T, N>: values of a trivially copyable type, the first N of them without the heap.
//
// For the operands of operators: a graph has thousands of operators, most with one to three, and a
// few with hundreds. Moves and copies of short ones are copies of bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace headroom {

template <typename T, size_t N>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  SmallVector() = default;
  SmallVector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
  // NOLINTNEXTLINE(google-explicit-constructor): a list is a list
  SmallVector(const std::vector<T>& values) { assign(values.begin(), values.end()); }
  explicit SmallVector(size_t count, T value = {}) { resize(count, value); }
  SmallVector(const SmallVector& other) { assign(other.begin(), other.end()); }
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(const SmallVector& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this != &other) take(other);
    return *this;
  }
  ~SmallVector() = default;

  void push_back(T value) {
    if (size_ == capacity_) grow(size_t{capacity_} * 2);
    data()[size_++] = value;
  }
  void resize(size_t count, T value = {}) {
    if (count > capacity_) grow(count);
    for (size_t i = size_; i < count; ++i) data()[i] = value;
    size_ = static_cast<uint32_t>(count);
  }
  void clear() { size_ = 0; }

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T* data() { return heap_ ? heap_.get() : inline_; }
  [[nodiscard]] const T* data() const { return heap_ ? heap_.get() : inline_; }

  T& operator[](size_t i) {
    HEADROOM_CHECK(i < size_, "SmallVector index out of range");
    return data()[i];
  }
  const T& operator[](size_t i) const {
    HEADROOM_CHECK(i < size_, "SmallVector index out of range");
    return data()[i];
  }
  [[nodiscard]] const T& front() const { return (*this)[0]; }
  [[nodiscard]] const T& back() const { return (*this)[size_ - 1]; }

  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  template <typename Iterator>
  void assign(Iterator first, Iterator last) {
    const auto count = static_cast<size_t>(std::distance(first, last));
    size_ = 0;
    if (count > capacity_) grow(count);
    std::copy(first, last, data());
    size_ = static_cast<uint32_t>(count);
  }
  void take(SmallVector& other) noexcept {
    heap_ = std::move(other.heap_);
    std::copy_n(other.inline_, N, inline_);
    size_ = other.size_;
    capacity_ = other.capacity_;
    other.size_ = 0;
    other.capacity_ = N;
  }
  void grow(size_t capacity) {
    HEADROOM_CHECK(capacity <= UINT32_MAX, "SmallVector of too many");
    auto larger = std::make_unique<T[]>(capacity);
    std::copy_n(data(), size_, larger.get());
    heap_ = std::move(larger);
    capacity_ = static_cast<uint32_t>(capacity);
  }

  std::unique_ptr<T[]> heap_;  // null: in place
  uint32_t size_ = 0;
  uint32_t capacity_ = N;
  T inline_[N] = {};
};

}  // namespace headroom

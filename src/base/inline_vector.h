// InlineVector<T, N>: at most N values of a trivially copyable type, kept in place.
//
// For shapes and attributes, of which a step makes tens of thousands: no heap, cheap to copy.
// Going past N is a bug of the caller, so code that takes sizes from input checks them first.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "base/check.h"

namespace headroom {

template <typename T, size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && N < 256);

 public:
  InlineVector() = default;
  InlineVector(std::initializer_list<T> values) {
    for (const T& value : values) push_back(value);
  }

  void push_back(T value) {
    HEADROOM_CHECK(size_ < N, "InlineVector is full");
    values_[size_++] = value;
  }
  void pop_back() {
    HEADROOM_CHECK(size_ > 0, "InlineVector is empty");
    --size_;
  }
  void insert(size_t at, T value) {
    HEADROOM_CHECK(size_ < N && at <= size_, "InlineVector insert out of range");
    for (size_t i = size_; i > at; --i) values_[i] = values_[i - 1];
    values_[at] = value;
    ++size_;
  }
  void erase(size_t at) {
    HEADROOM_CHECK(at < size_, "InlineVector erase out of range");
    for (size_t i = at; i + 1 < size_; ++i) values_[i] = values_[i + 1];
    --size_;
  }
  void clear() { size_ = 0; }

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  static constexpr size_t capacity() { return N; }

  T& operator[](size_t i) {
    HEADROOM_CHECK(i < size_, "InlineVector index out of range");
    return values_[i];
  }
  const T& operator[](size_t i) const {
    HEADROOM_CHECK(i < size_, "InlineVector index out of range");
    return values_[i];
  }
  [[nodiscard]] const T& back() const { return (*this)[size_ - 1]; }
  T& back() { return (*this)[size_ - 1]; }

  T* begin() { return values_.data(); }
  T* end() { return values_.data() + size_; }
  const T* begin() const { return values_.data(); }
  const T* end() const { return values_.data() + size_; }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<T, N> values_{};
  uint8_t size_ = 0;
};

}  // namespace headroom

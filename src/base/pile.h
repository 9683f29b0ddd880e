// Pile: a growing array of plain values, for loops that cannot afford a check at every push.
//
// reserve_more(n) makes room, then n values may be pushed without a look. What is reserved is not
// touched, also not by growing, so room costs address space only (realloc would copy the room too).
// For trivially copyable types.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace headroom {

template <typename T>
class Pile {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  // REQUIRES: index < size().
  [[nodiscard]] T& operator[](size_t index) { return items_.get()[index]; }
  [[nodiscard]] const T& operator[](size_t index) const { return items_.get()[index]; }
  [[nodiscard]] T& back() { return items_.get()[size_ - 1]; }
  // REQUIRES: count <= size().
  [[nodiscard]] std::span<const T> last(size_t count) const {
    return {items_.get() + size_ - count, count};
  }

  void reserve_more(size_t count) {
    if (capacity_ - size_ >= count) return;
    // Room costs nothing until it is used and moving does, so the first steps are large.
    const size_t factor = capacity_ < kManyItems ? 8 : 2;
    const size_t capacity = std::max(2 * (size_ + count), factor * capacity_);
    if (capacity > static_cast<size_t>(-1) / sizeof(T)) throw std::bad_alloc();
    std::unique_ptr<T, Release> grown(static_cast<T*>(std::malloc(capacity * sizeof(T))));
    if (grown == nullptr) throw std::bad_alloc();
    if (size_ > 0) std::memcpy(static_cast<void*>(grown.get()), items_.get(), size_ * sizeof(T));
    items_ = std::move(grown);
    capacity_ = capacity;
  }
  // REQUIRES: room was reserved.
  void push(T value) { items_.get()[size_++] = value; }
  void drop(size_t count) { size_ -= count; }
  // For a loop that pushes through a pointer of its own: where the next value goes, and where it
  // went. REQUIRES: as many fit as were pushed.
  [[nodiscard]] T* end() { return items_.get() + size_; }
  void set_end(const T* end) { size_ = static_cast<size_t>(end - items_.get()); }

 private:
  static constexpr size_t kManyItems = size_t{1} << 18;
  struct Release {
    void operator()(T* items) const { std::free(items); }
  };
  std::unique_ptr<T, Release> items_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace headroom

// Ref<T>: a counted reference to a T that carries its own count in a member `refs`.
//
// The counts are part of what is modelled: PyTorch decides by them whether it may add a gradient in
// place or keep a gradient without copying it. Not thread-safe, one word, no allocation.
#pragma once

#include <cstdint>
#include <utility>

namespace headroom::op {

template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* target) : target_(target) {
    if (target_) ++target_->refs;
  }
  Ref(const Ref& other) : Ref(other.target_) {}
  Ref(Ref&& other) noexcept : target_(std::exchange(other.target_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(target_, other.target_);
    return *this;
  }
  ~Ref() {
    if (target_ && --target_->refs == 0) destroy(target_);
  }

  T* get() const { return target_; }
  T* operator->() const { return target_; }
  T& operator*() const { return *target_; }
  explicit operator bool() const { return target_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.target_ == b.target_; }

 private:
  T* target_ = nullptr;
};

}  // namespace headroom::op

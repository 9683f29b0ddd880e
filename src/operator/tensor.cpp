#include "operator/tensor.h"

#include <algorithm>

#include "operator/node.h"
#include "operator/sink.h"

namespace headroom::op {

void* Storage::operator new(size_t /*size*/) {
  return FreeList<sizeof(Storage)>::of_thread().allocate();
}
void Storage::operator delete(void* memory) {
  FreeList<sizeof(Storage)>::of_thread().release(memory);
}
void* TensorImpl::operator new(size_t /*size*/) {
  return FreeList<sizeof(TensorImpl)>::of_thread().allocate();
}
void TensorImpl::operator delete(void* memory) {
  FreeList<sizeof(TensorImpl)>::of_thread().release(memory);
}

void destroy(Storage* storage) {
  if (storage->buffer != kNoBuffer) storage->sink->on_free(storage->buffer);
  delete storage;
}

void destroy(TensorImpl* tensor) { delete tensor; }

int64_t Tensor::size(int dim) const {
  return get()->sizes[static_cast<size_t>(dim < 0 ? dim + rank() : dim)];
}
int64_t Tensor::elements() const { return product(get()->sizes); }
int64_t Tensor::bytes() const { return elements() * element_size(get()->dtype); }
bool Tensor::is_contiguous() const { return op::is_contiguous(get()->sizes, get()->strides); }

int64_t product(const Dims& sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (__builtin_mul_overflow(elements, size, &elements)) return INT64_MAX;
  }
  return elements;
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides = sizes;
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

bool is_contiguous(const Dims& sizes, const Dims& strides) {
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

bool is_non_overlapping_and_dense(const Dims& sizes, const Dims& strides) {
  if (is_contiguous(sizes, strides)) return true;
  InlineVector<uint8_t, kDimsMax> order;
  for (uint8_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](uint8_t a, uint8_t b) { return strides[a] < strides[b]; });
  int64_t expected = 1;
  for (const uint8_t dim : order) {
    if (strides[dim] != expected) return false;
    expected *= sizes[dim];
  }
  return true;
}

namespace {

// Dimensions from the fastest: channels, then space from the last on, then the batch.
InlineVector<uint8_t, kDimsMax> channels_last_order(size_t rank) {
  InlineVector<uint8_t, kDimsMax> order;
  order.push_back(1);
  for (size_t i = rank - 1; i >= 2; --i) order.push_back(static_cast<uint8_t>(i));
  order.push_back(0);
  return order;
}

}  // namespace

bool is_like_channels_last(const Dims& sizes, const Dims& strides) {
  if ((sizes.size() != 4 && sizes.size() != 5) || strides[1] == 0) return false;
  int64_t least = 0;
  for (const uint8_t dim : channels_last_order(sizes.size())) {
    if (sizes[dim] == 0 || strides[dim] < least) return false;
    if (dim == 0 && least == strides[1]) return false;  // ambiguous: no
    least = strides[dim];
    if (sizes[dim] > 1) least *= sizes[dim];
  }
  return true;
}

Dims channels_last_strides(const Dims& sizes) {
  Dims strides = sizes;
  int64_t stride = 1;
  for (const uint8_t dim : channels_last_order(sizes.size())) {
    strides[dim] = stride;
    stride *= std::max<int64_t>(sizes[dim], 1);
  }
  return strides;
}

}  // namespace headroom::op

// The operators, by the names PyTorch gives them: each runs forward on an Eager and, where a
// gradient is wanted, leaves a node that runs its backward the way PyTorch's derivative does.
//
// Backward formulas are written with these same functions, so the temporaries that PyTorch makes
// are made here too. Sizes are checked by whoever builds the graph; a mismatch here is a bug of
// ours.
//
// Sources: tools/autograd/derivatives.yaml, torch/csrc/autograd/FunctionsManual.cpp, and the
// composite operators in ATen/native (PyTorch 2.x). Kernels' inner scratch: scratch.h.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "operator/eager.h"

namespace headroom::op {

// --- views (view.cpp): no memory, except where a gradient must be padded back -------------------
Tensor view(Eager& e, const Tensor& self, const Dims& sizes);
Tensor reshape(Eager& e, const Tensor& self, const Dims& sizes);  // a view, or a copy where it must
Tensor transpose(Eager& e, const Tensor& self, int dim0, int dim1);
Tensor t(Eager& e, const Tensor& self);
Tensor permute(Eager& e, const Tensor& self, const Dims& order);
Tensor expand(Eager& e, const Tensor& self, const Dims& sizes);
Tensor unsqueeze(Eager& e, const Tensor& self, int dim);
Tensor squeeze(Eager& e, const Tensor& self, int dim);
Tensor slice(Eager& e, const Tensor& self, int dim, int64_t start, int64_t end, int64_t step = 1);
Tensor select(Eager& e, const Tensor& self, int dim, int64_t index);
std::vector<Tensor> split(Eager& e, const Tensor& self, std::span<const int64_t> sizes, int dim);
Tensor contiguous(Eager& e, const Tensor& self);
Tensor detach(Eager& e, const Tensor& self);
Tensor require_grad(const Tensor& self);  // requires_grad_(True): self, which wants one from now on
Tensor dtype_of(const Tensor& self);      // self.dtype: a tensor that has a type and nothing else
Tensor view_as_real(Eager& e, const Tensor& self);     // complex [...] as [..., 2]
Tensor view_as_complex(Eager& e, const Tensor& self);  // [..., 2] as complex [...]

// --- moving data (copy.cpp) --------------------------------------------------------------------
Tensor clone(Eager& e, const Tensor& self);  // keeps a dense layout
Tensor clone_contiguous(Eager& e, const Tensor& self);
Tensor to(Eager& e, const Tensor& self, DType dtype);  // self where the type is right already
// The same where a cast is wanted contiguous (memory_format=torch.contiguous_format).
Tensor to_contiguous(Eager& e, const Tensor& self, DType dtype);
void copy_into(Eager& e, const Tensor& destination, const Tensor& source);
Tensor zeros(Eager& e, const Dims& sizes, DType dtype);
Tensor zeros_like(Eager& e, const Tensor& self);
Tensor full(Eager& e, const Dims& sizes, DType dtype);
Tensor arange(Eager& e, int64_t count, DType dtype);
Tensor cat(Eager& e, std::span<const Tensor> tensors, int dim);
Tensor stack(Eager& e, std::span<const Tensor> tensors, int dim);
Tensor pad(Eager& e, const Tensor& self, std::span<const int64_t> padding);
Tensor repeat(Eager& e, const Tensor& self, const Dims& repeats);
Tensor triangle(Eager& e, const Tensor& self);  // triu and tril

// --- elementwise (elementwise.cpp) -------------------------------------------------------------
Tensor add(Eager& e, const Tensor& self, const Tensor& other);
Tensor sub(Eager& e, const Tensor& self, const Tensor& other);
Tensor mul(Eager& e, const Tensor& self, const Tensor& other);
Tensor div(Eager& e, const Tensor& self, const Tensor& other);
// The same with a Python number; an integer tensor meets a real number in float32.
Tensor add_scalar(Eager& e, const Tensor& self, double other);
Tensor mul_scalar(Eager& e, const Tensor& self, double other);
Tensor div_scalar(Eager& e, const Tensor& self, double other);
Tensor add_inplace(Eager& e, const Tensor& self, const Tensor& other);
Tensor neg(Eager& e, const Tensor& self);
Tensor pow(Eager& e, const Tensor& self, double exponent);
Tensor sqrt(Eager& e, const Tensor& self);
Tensor rsqrt(Eager& e, const Tensor& self);
Tensor exp(Eager& e, const Tensor& self);
Tensor log(Eager& e, const Tensor& self);
Tensor sin(Eager& e, const Tensor& self);
Tensor cos(Eager& e, const Tensor& self);
Tensor polar(Eager& e, const Tensor& radius, const Tensor& angle);  // no gradient
// With one bound or with two.
Tensor clamp(Eager& e, const Tensor& self, int bounds = 1);
// A comparison or a logical operator: a boolean of the broadcast sizes, no gradient.
Tensor compare(Eager& e, const Tensor& self, const Tensor* other);
Tensor where(Eager& e, const Tensor& condition, const Tensor& self, const Tensor& other);
Tensor masked_fill(Eager& e, const Tensor& self, const Tensor& mask);

// --- activations (activation.cpp) --------------------------------------------------------------
Tensor gelu(Eager& e, const Tensor& self, bool tanh_approximation);
// BLOOM's: an autograd function that keeps its input, written out in eager operators both ways.
Tensor gelu_bloom(Eager& e, const Tensor& self);
Tensor silu(Eager& e, const Tensor& self);
Tensor relu(Eager& e, const Tensor& self);
Tensor sigmoid(Eager& e, const Tensor& self);
Tensor tanh(Eager& e, const Tensor& self);
Tensor softplus(Eager& e, const Tensor& self);
Tensor softmax(Eager& e, const Tensor& self, int dim, std::optional<DType> dtype = {});
Tensor log_softmax(Eager& e, const Tensor& self, int dim, std::optional<DType> dtype = {});
Tensor dropout(Eager& e, const Tensor& self, double probability, bool train);

// --- reductions (reduction.cpp) ----------------------------------------------------------------
Tensor sum(Eager& e, const Tensor& self, std::span<const int> dims, bool keepdim);
Tensor mean(Eager& e, const Tensor& self, std::span<const int> dims, bool keepdim);
Tensor amax(Eager& e, const Tensor& self, int dim, bool keepdim);
Tensor argmax(Eager& e, const Tensor& self, int dim);
// torch.linalg.norm along a dimension, which goes; of what needs no gradient.
Tensor vector_norm(Eager& e, const Tensor& self, int dim);
Tensor cumsum(Eager& e, const Tensor& self, int dim, std::optional<DType> dtype = {});
// Sums a gradient down to the sizes it was broadcast from; self where they are the same.
Tensor sum_to(Eager& e, const Tensor& self, const Dims& sizes);

// --- matrix products (matmul.cpp) --------------------------------------------------------------
Tensor mm(Eager& e, const Tensor& self, const Tensor& mat2);
Tensor addmm(Eager& e, const Tensor& bias, const Tensor& mat1, const Tensor& mat2);
Tensor bmm(Eager& e, const Tensor& self, const Tensor& mat2);
Tensor baddbmm(Eager& e, const Tensor& input, const Tensor& batch1, const Tensor& batch2,
               double alpha = 1);
Tensor matmul(Eager& e, const Tensor& self, const Tensor& other);
// torch.linalg.solve_triangular(self, other, upper=False, unitriangular=True): self [..., n, n],
// other [..., n, k], with the same leading dimensions.
Tensor solve_triangular(Eager& e, const Tensor& self, const Tensor& other);
// input [..., in], weight [out, in], bias [out] or undefined.
Tensor linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias);
// DeepSpeed's in its place (LinearFunctionForZeroStage3): one function, which keeps its input, even
// of a frozen weight, and the weight itself, not a view of the block that it has now.
Tensor zero3_linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias);

// --- float8 (float8_linear.cpp) ------------------------------------------------------------------
// torchao's Float8Linear with dynamic scales of whole tensors: what goes into a product is cast
// before each, both ways, and what comes out is of the input's type. What lies in a block of a byte
// an element, whatever its type, was cast before it was gathered. input [..., in], weight [out,
// in], bias [out] or undefined.
inline constexpr const char* kFloat8Product = "matmul_with_hp_or_float8_argsBackward";
// The maximum, then the cast: a tensor of f8, without history.
Tensor cast_to_float8(Eager& e, const Tensor& wide);
Tensor float8_linear(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias);

// --- quantized weights (quantized.cpp) ---------------------------------------------------------
enum class QuantizedFormat : uint8_t { nf4, nf4_double, int8, gptq };
struct QuantizedLinear {
  QuantizedFormat format = QuantizedFormat::nf4;
  int64_t in = 0;
  int64_t out = 0;
  DType unpacked = DType::bf16;  // nf4: the type the weight had before
  DType compute = DType::bf16;   // nf4: what the input is cast to
  bool keeps_input = false;  // nf4: the graph holds the input, though backward has no use for it
};
// bitsandbytes' Linear4bit and Linear8bitLt, auto-gptq's QuantLinear. bias may be undefined.
Tensor quantized_linear(Eager& e, const Tensor& input, const Tensor& bias,
                        const QuantizedLinear& module);
// A weight of 4 bits unpacked: GPTQ's as [in, out]; of bitsandbytes' the absolute maxima of its
// blocks, where they are quantized themselves, with their offset added in place, and the kernel
// that unpacks by them.
Tensor unpacked_gptq(Eager& e, const QuantizedLinear& q);
Tensor unpacked_maxima(Eager& e, const QuantizedLinear& q);
void unpack_nf4(Eager& e, const QuantizedLinear& q, const Tensor& weight);

// --- normalization (normalization.cpp) ---------------------------------------------------------
// Over the last dimension; weight and bias may be undefined.
Tensor layer_norm(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias);
Tensor rms_norm(Eager& e, const Tensor& input, const Tensor& weight);  // torch.nn.RMSNorm

// --- look-ups (indexing.cpp) -------------------------------------------------------------------
Tensor embedding(Eager& e, const Tensor& weight, const Tensor& indices);
// Of an embedding's weight of these sizes: rows of `grad` added where their indices say.
Tensor embedding_gradient(Eager& e, const Tensor& grad, const Tensor& indices, const Dims& sizes);
Tensor index_select(Eager& e, const Tensor& self, int dim, const Tensor& index);
// self[..., index], the index in dimension `dim`.
Tensor index(Eager& e, const Tensor& self, const Tensor& index, int dim = 0);
Tensor index_add(Eager& e, const Tensor& self, int dim, const Tensor& index, const Tensor& source);
// A number in the places that the index names along a dimension.
Tensor scatter(Eager& e, const Tensor& self, int dim, const Tensor& index);
Tensor gather(Eager& e, const Tensor& self, int dim, const Tensor& index);
// The two outputs of a sort or of top-k along the last dimension: values and int64 indices.
std::vector<Tensor> topk(Eager& e, const Tensor& self, int64_t k);
std::vector<Tensor> sort(Eager& e, const Tensor& self);
Tensor one_hot(Eager& e, const Tensor& self, int64_t classes);

// --- convolutions (convolution.cpp) --------------------------------------------------------------
struct Convolution {
  Dims stride;  // of each dimension of space
  Dims padding;
  int64_t groups = 1;
};
// input [batch, channels, space...], weight [out, channels / groups, kernel...]; bias may be empty.
Tensor convolution(Eager& e, const Tensor& input, const Tensor& weight, const Tensor& bias,
                   const Convolution& convolution);

// --- experts and routing (routing.cpp) ---------------------------------------------------------
// torch._grouped_mm: self [rows, in] sorted by group, mat2 [groups, in, out], offsets [groups].
Tensor grouped_mm(Eager& e, const Tensor& self, const Tensor& mat2, const Tensor& offsets);
// Integers stay integers; no gradient.
Tensor floor_divide(Eager& e, const Tensor& self, double other);
Tensor histogram(Eager& e, const Tensor& self, int64_t bins);  // torch.histc
// Indices of `count` true elements: [count, rank].
Tensor nonzero(Eager& e, const Tensor& self, int64_t count);
// self[first, second], two indices of the same length.
Tensor index_pairs(Eager& e, const Tensor& self, const Tensor& first, const Tensor& second);
// These write into `self` and return it under its new history; no memory but what the history
// needs.
Tensor index_put(Eager& e, const Tensor& self, const Tensor& index, const Tensor& value);
Tensor add_assign(Eager& e, const Tensor& self, const Tensor& other);
Tensor div_assign(Eager& e, const Tensor& self, const Tensor& other);
Tensor mul_assign(Eager& e, const Tensor& self, const Tensor& other);  // by a constant
Tensor mul_scalar_assign(Eager& e, const Tensor& self, double other);
Tensor div_scalar_assign(Eager& e, const Tensor& self, double other);
Tensor masked_fill_assign(Eager& e, const Tensor& self, const Tensor& mask);
Tensor clamp_assign(Eager& e, const Tensor& self, int bounds);
// transformers' PhimoeMultiplier: gate * midpoint, whose gradient goes to the scores alone.
Tensor sparse_mixer(Eager& e, const Tensor& scores, const Tensor& gate, const Tensor& chosen,
                    const Tensor& gates, const Tensor& midpoint);
Tensor scatter_assign(Eager& e, const Tensor& self, int dim, const Tensor& index,
                      const Tensor& source);
Tensor index_add_assign(Eager& e, const Tensor& self, int dim, const Tensor& index,
                        const Tensor& source);
// self[..., start:end, ...].copy_(source)
Tensor copy_slice(Eager& e, const Tensor& self, const Tensor& source, int dim, int64_t start,
                  int64_t end);
// self[..., index, ...].copy_(source)
Tensor copy_select(Eager& e, const Tensor& self, const Tensor& source, int dim, int64_t index);
// Values and int64 indices along a dimension.
std::vector<Tensor> max(Eager& e, const Tensor& self, int dim, bool keepdim);

// --- attention (attention.cpp) -----------------------------------------------------------------
struct AttentionOptions {
  double dropout = 0;
  bool causal = false;
  bool grouped = false;  // enable_gqa: fewer key and value heads than query heads
};
// torch.nn.functional.scaled_dot_product_attention; [batch, heads, sequence, head]; mask may be
// undefined. The kernel is the environment's, where it names one; else PyTorch's choice
// (attention_backend.h).
Tensor scaled_dot_product_attention(Eager& e, const Tensor& query, const Tensor& key,
                                    const Tensor& value, const Tensor& mask,
                                    const AttentionOptions& options);
// flash_attn_func of the flash-attn package; [batch, sequence, heads, head].
Tensor flash_attention(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                       const AttentionOptions& options);

// The same among `ranks` that have a part of each sequence, as PyTorch's context_parallel has it:
// keys and values of all are gathered, and each rank's are attended to by turns
// (ring_attention.cpp).
Tensor ring_attention(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                      bool causal, int64_t ranks);

// --- ranks that share experts out (expert_exchange.cpp) ------------------------------------------
// Of self [n, ...] each rank gets what is for its experts, and this one gets `rows` in their place.
// The gradients go back.
Tensor exchange_rows(Eager& e, const Tensor& self, int64_t rows);
// The host waits for what `self` holds; the same tensor.
Tensor read_back(Eager& e, const Tensor& self);

// --- a tensor-parallel rank's (parallel.cpp) -----------------------------------------------------
// What a column-parallel module takes: as it is. Its gradient is summed over the ranks.
Tensor parallel_input(Eager& e, const Tensor& self);
// A weight that every rank has whole and uses for its own part: the same, in place.
Tensor parallel_weight(Eager& e, const Tensor& self);
// The bias of a row-parallel module, as every rank adds it: a part of it, by a copy.
Tensor parallel_bias(Eager& e, const Tensor& self);
// What row-parallel modules answer with, summed over the ranks.
Tensor parallel_sum(Eager& e, const Tensor& self);
// The same in place, as Colossal-AI has it.
Tensor parallel_reduce(Eager& e, const Tensor& self);
// The ranks' parts of the last dimension, put together; it has `size` elements then.
Tensor parallel_gather(Eager& e, const Tensor& self, int64_t ranks, int64_t size);
// This rank's part of the last dimension of what every rank has whole.
Tensor parallel_split(Eager& e, const Tensor& self, int64_t ranks);
// This rank's rows of an embedding of `rows`. Its gradient is made whole on every rank, and stays
// so, or is cut to the rank's part: for who takes it in the weight's layout, or, of a weight that
// the head has too, where both gradients are added, until which the whole one lives.
enum class RowsGradient : uint8_t { whole, cut, cut_to_add };
struct EmbeddingRows {
  int64_t rows = 0;
  RowsGradient gradient = RowsGradient::whole;
  int64_t sequence_ranks = 1;  // that each keep their part of the sequence of what comes out
};
Tensor parallel_embedding(Eager& e, const Tensor& weight, const Tensor& indices,
                          const EmbeddingRows& rows);
// [batch, part, ...]: the ranks' parts of the sequence, put together; and back: the sum over the
// ranks, of which each has its part (parallel_sequence.cpp). In float8 what is gathered, of forward
// or of backward, is cast before, and comes in a block of a byte an element.
enum class Gathers : uint8_t { as_it_is, in_float8 };
Tensor parallel_gather_sequence(Eager& e, const Tensor& self, int64_t ranks,
                                Gathers how = Gathers::as_it_is);
Tensor parallel_scatter_sequence(Eager& e, const Tensor& self, int64_t ranks,
                                 Gathers how = Gathers::as_it_is);
// Mean cross entropy of logits [n, this rank's part of the classes], target [n]
// (parallel_loss.cpp).
Tensor parallel_loss(Eager& e, const Tensor& logits, const Tensor& target);

// --- losses (loss.cpp) -------------------------------------------------------------------------
// logits [n, classes], target [n]; a scalar.
Tensor nll_loss(Eager& e, const Tensor& log_probabilities, const Tensor& target);
Tensor cross_entropy(Eager& e, const Tensor& logits, const Tensor& target);

}  // namespace headroom::op

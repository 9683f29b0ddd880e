// PyTorch's wheels before 2.6: the std::string of before C++11.
#undef _GLIBCXX_USE_CXX11_ABI
#define _GLIBCXX_USE_CXX11_ABI 0
#include "runtime/torch_error_throw.h"

namespace headroom::runtime {

void throw_with_older_string(const TorchError& error, const char* message) {
  throw_torch_error(error, message);
}

}  // namespace headroom::runtime

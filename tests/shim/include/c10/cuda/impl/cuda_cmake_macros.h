// Stands in for a header that a CUDA build of PyTorch makes, and the CPU build lacks.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS

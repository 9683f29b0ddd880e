// A CUDA device that is never there. Under FakeTensorMode no kernel runs, but the autograd engine
// of PyTorch still asks the device's guard for streams and events, and the accelerator registry
// whether CUDA was built at all; a CPU-only build has neither and refuses the first
// `loss.backward()`. This shared object answers both with one stream and no-op events. It must be
// loaded before libtorch_cpu caches its hooks (i.e. before `import torch`): the registry is read
// once a process. Interfaces: c10/core/impl/DeviceGuardImplInterface.h,
// ATen/detail/CUDAHooksInterface.h (torch 2.13).
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

const c10::Device kDevice(c10::DeviceType::CUDA, 0);

c10::Stream the_stream() { return c10::Stream(c10::Stream::DEFAULT, kDevice); }

struct FakeCudaGuard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  // The base answers device -1, which the engine would pack into a stream and not read back.
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(c10::Device) const noexcept override { return the_stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return the_stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return the_stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return the_stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};

FakeCudaGuard fake_cuda_guard;
c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, &fake_cuda_guard);

}  // namespace

namespace at {
namespace {

// The registry looks the class up by this very name, so it may not be called anything else.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  bool isBuilt() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  void init() const override {}
  int getNumGPUs() const override { return 1; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace
}  // namespace at

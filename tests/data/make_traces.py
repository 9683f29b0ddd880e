#!/usr/bin/env python3
"""Makes the small traces of this folder.

trace_gpu.json      written by hand in the layout that PyTorch 2.6 and Kineto use on CUDA: two steps
                    of a small training run on one GPU, with a side stream, a graph and earlier work
trace_gpu_slow.json the same with a slower GEMM and one operator more: for comparisons
trace_cpu.json.gz   recorded with PyTorch's profiler on this machine's CPU (only with --record)

Usage: make_traces.py [--record]
"""

import argparse
import json
from pathlib import Path

import recorded

HERE = Path(__file__).resolve().parent
PID, MAIN, BACKWARD = 4100, 4100, 4188


class Trace:
    """Events of one process with one GPU, times in microseconds."""

    def __init__(self):
        self.events, self.correlation, self.external = [], 100, 0
        self.free = {7: 0.0, 20: 0.0}  # when each stream has done its work
        self.last = {}

    def event(self, cat, name, pid, tid, start, duration, **args):
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid,
                            "ts": round(start, 3), "dur": round(duration, 3), "args": args})

    def call(self, name, start, duration, tid=MAIN, **args):
        self.correlation += 1
        self.event("cuda_runtime", name, PID, tid, start, duration, cbid=211,
                   correlation=self.correlation, **args)
        return self.correlation

    def kernel(self, name, launched, duration, correlation, stream=7, cat="kernel"):
        start = max(launched + 5.0, self.free[stream] + 1.2)
        self.free[stream] = start + duration
        self.event(cat, name, 0, stream, start, duration, **{
            "External id": self.external, "device": 0, "stream": stream,
            "correlation": correlation, "grid": [8, 1, 1], "block": [128, 1, 1]})

    def operator(self, name, start, duration, kernel=None, kernel_us=0.0, stream=7, dims=(), tid=MAIN):
        self.external += 1
        self.event("cpu_op", name, PID, tid, start, duration, **{
            "External id": self.external, "Record function id": 0,
            "Input Dims": [list(d) for d in dims], "Input type": ["float"] * len(dims)})
        if kernel:
            at = start + duration * 0.5
            self.kernel(kernel, at + 4.0, kernel_us, self.call("cudaLaunchKernel", at, 4.0, tid), stream)

    def step(self, number, start, gemm_us, with_dropout):
        t = start + 10
        self.operator("aten::linear", t, 40, dims=[(64, 512), (512, 512)])
        self.operator("aten::addmm", t + 4, 30, "ampere_sgemm_128x64_tn", gemm_us,
                      dims=[(512,), (64, 512), (512, 512)])
        self.operator("aten::gelu", t + 50, 20,
                      "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>",
                      12.0, dims=[(64, 512)])
        if with_dropout:
            self.operator("aten::dropout", t + 72, 12, "fused_dropout_kernel_vec<float>", 9.0)
        self.operator("aten::native_layer_norm", t + 90, 25,
                      "void at::native::vectorized_layer_norm_kernel<float, float>", 8.0)
        self.operator("aten::scaled_dot_product_attention", t + 130, 60)
        self.operator("aten::_flash_attention_forward", t + 140, 40,
                      "void pytorch_flash::flash_fwd_kernel<64>", 30.0)
        self.operator("my_library::scan", t + 200, 25, "scan_in_chunks_v2", 6.0)
        self.operator("c10d::allreduce_", t + 230, 30, "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                      70.0, stream=20)
        correlation = self.call("cudaGraphLaunch", t + 270, 9)
        for name, us in [("ampere_sgemm_64x64_nn", 22.0), ("triton_poi_fused_add_mul_0", 5.0),
                         ("triton_red_fused_mean_rsqrt_1", 7.0)]:
            self.kernel(name, t + 279, us, correlation)
        self.operator("aten::mm", t + 300, 30, "ampere_sgemm_128x64_nt", gemm_us, tid=BACKWARD)
        correlation = self.call("cudaMemcpyAsync", t + 360, 6)
        self.kernel("Memcpy DtoH (Device -> Pinned)", t + 366, 2.5, correlation, cat="gpu_memcpy")
        end = max(t + 372, self.free[7] + 4)
        self.call("cudaStreamSynchronize", t + 368, end - t - 368)
        self.event("user_annotation", f"ProfilerStep#{number}", PID, MAIN, start, end + 20 - start)
        return end + 20

    def document(self, name):
        head = {"schemaVersion": 1, "cuda_runtime_version": 12060, "record_shapes": 1,
                "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB",
                                      "totalGlobalMem": 85100000000, "numSms": 108}],
                "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2}}
        tail = {"traceName": name, "displayTimeUnit": "ms", "baseTimeNanoseconds": 0}
        lines = ",\n".join("  " + json.dumps(event) for event in self.events)
        return (json.dumps(head)[:-1] + ',\n "traceEvents": [\n' + lines + "\n ],\n " +
                json.dumps(tail)[1:] + "\n")


def write_gpu(path, gemm_us, with_dropout):
    trace = Trace()
    trace.operator("aten::mm", 940, 30, "ampere_sgemm_128x64_nt", 90.0)  # before the first step
    time = 1000.0
    for number in (3, 4):
        time = trace.step(number, time, gemm_us, with_dropout)
    path.write_text(trace.document(path.name))


def record_cpu(path):
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.manual_seed(0)
    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    data = torch.randn(2, 16, 64)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=0, warmup=1, active=2, repeat=1)) as profiler:
        for _ in range(3):
            layer(data).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    source = path.with_suffix("")
    profiler.export_chrome_trace(str(source))
    recorded.keep(source, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="record trace_cpu.json.gz anew")
    options = parser.parse_args()
    write_gpu(HERE / "trace_gpu.json", 55.0, False)
    write_gpu(HERE / "trace_gpu_slow.json", 74.0, True)
    if options.record:
        record_cpu(HERE / "trace_cpu.json.gz")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes a Chakra execution trace of a training step on two GPUs, made up, in the form that chakra_converter gives one:
host operators with their own durations, kernels behind the operators that launched them, no times of start.

Usage: make_chakra.py FILE
"""

import sys
from pathlib import Path

import chakra_messages as chakra

SCHEMAS = {"aten::linear": "(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
           "aten::addmm": "(Tensor self, Tensor mat1, Tensor mat2) -> Tensor",
           "aten::softmax": ".int(Tensor self, int dim) -> Tensor", "aten::_softmax": "(Tensor self, int dim) -> Tensor",
           "c10d::allreduce_": "(Tensor[] tensors) -> (Tensor[], Work)", "aten::copy_": "(Tensor(a!) self) -> Tensor(a!)"}


class Writer:
    def __init__(self):
        self.nodes = []
        self.last = 0

    def add(self, name, duration, caller, is_host=True, kind=chakra.COMPUTE, **more):
        self.last += 1
        if is_host:
            more = {"rf_id": self.last, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0,
                    "op_schema": name + SCHEMAS[name] if name in SCHEMAS else "", "stream": 0} | more
        self.nodes.append(chakra.node(self.last, name, duration, kind, ctrl=[caller] if caller else [],
                                      data=[caller] if caller else [], is_cpu_op=is_host, **more))
        return self.last

    def kernel(self, name, duration, launcher, stream=7, **more):
        return self.add(name, duration, launcher, is_host=False, tid=1, stream=stream, **more)


def training_step():
    writer = Writer()
    floats = ["Tensor(float)"] * 3
    process = writer.add("[pytorch|profiler|execution_trace|process]", 0, 0, scope=7)
    writer.add("## process_group:init ##", 0, process, kind=chakra.METADATA)
    thread = writer.add("[pytorch|profiler|execution_trace|thread]", 0, process, scope=7)
    step = writer.add("ProfilerStep#3", 12, thread, scope=7)
    for width in (1024, 4096):
        shapes = [[width], [512, 1024], [1024, width]]
        linear = writer.add("aten::linear", 6, step, shapes=[shapes[1], [width, 1024], [width]], types=floats)
        addmm = writer.add("aten::addmm", 21, linear, shapes=shapes, types=floats)
        writer.kernel("ampere_sgemm_128x64_tn", width // 8, addmm)
    softmax = writer.add("aten::softmax", 3, step, shapes=[[512, 4096], [], []], types=["Tensor(float)", "Int", "None"])
    inner = writer.add("aten::_softmax", 9, softmax, shapes=[[512, 4096], [], []], types=["Tensor(float)", "Int", "Bool"])
    writer.kernel("void softmax_warp_forward<float, float, float, 12, false>(float*, float const*)", 38, inner)
    reduce = writer.add("c10d::allreduce_", 14, step, shapes=[[[4096, 1024]]], types=["GenericList[Tensor(float)]"])
    writer.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 402, reduce, stream=20,
                  kind=chakra.COLLECTIVE, comm_type=0, comm_size=16777216, pg_name="0")
    copy = writer.add("aten::copy_", 5, step, shapes=[[1], [1]], types=["Tensor(float)", "Tensor(float)"])
    writer.kernel("Memcpy DtoH (Device -> Pageable)", 2, copy)
    return chakra.framed([chakra.metadata(), *writer.nodes])


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(training_step())

#!/usr/bin/env python3
"""Records execution_trace.json.gz (torch.profiler.ExecutionTraceObserver) and, of the same run,
execution_kineto.json.gz (the profiler's trace, without shapes): a small layer on a CPU.

Usage: record_execution.py   (with torch 2.13; what the machine is does not matter)
"""

import tempfile
from pathlib import Path

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

import recorded

HERE = Path(__file__).resolve().parent


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    data = torch.randn(2, 16, 64)
    with tempfile.TemporaryDirectory() as folder:
        nodes, spans = Path(folder) / "nodes.json", Path(folder) / "spans.json"
        observer = ExecutionTraceObserver()
        observer.register_callback(str(nodes))
        with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer,
                     schedule=schedule(wait=0, warmup=1, active=2, repeat=1)) as profiler:
            for _ in range(3):
                layer(torch.cat([data, data], 1)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                profiler.step()
        observer.unregister_callback()
        profiler.export_chrome_trace(str(spans))
        recorded.keep(nodes, HERE / "execution_trace.json.gz")
        recorded.keep(spans, HERE / "execution_kineto.json.gz", spans_only=True)


if __name__ == "__main__":
    main()

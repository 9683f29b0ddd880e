#!/usr/bin/env python3
"""Makes the small databases of this folder. No recorded ones were at hand: they are written from the
documented schemas, with the tables and columns that a recording of the same would have.

nsight_systems.sqlite  as `nsys export --type sqlite` lays it out (NVIDIA's SQLite Schema Reference):
                       two steps marked by NVTX, operators as emit_nvtx names them, one copy, one
                       fill, two streams, a CUDA graph recorded as a whole
rocpd.db               as rocprofv3 writes it (schema 3 of rocprofiler-sdk): two runs merged into one
                       file, of HIP calls, kernels and a copy
rocprofv3.json         the same as the first of those runs, as JSON

Usage: make_databases.py
"""

import json
import sqlite3
from pathlib import Path

HERE = Path(__file__).resolve().parent
PID, TID = 4100, 4188
GLOBAL_TID = (1 << 56) | (PID << 24) | TID

NSIGHT = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT,
  totalMemory INTEGER, smCount INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, mangledName INTEGER, gridX INTEGER NOT NULL, blockX INTEGER NOT NULL,
  graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
  rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER,
  endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
"""

# One run of rocpd; {u} is its identifier.
ROCPD = """
CREATE TABLE "rocpd_string{u}" ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT NOT NULL,
  "string" TEXT NOT NULL UNIQUE ON CONFLICT ABORT);
CREATE TABLE "rocpd_info_agent{u}" ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT,
  "type" TEXT CHECK ("type" IN ('CPU', 'GPU')), "name" TEXT, "product_name" TEXT);
CREATE TABLE "rocpd_info_kernel_symbol{u}" ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  "kernel_name" TEXT, "display_name" TEXT);
CREATE TABLE "rocpd_event{u}" ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "category_id" INTEGER,
  "stack_id" INTEGER, "parent_stack_id" INTEGER, "correlation_id" INTEGER);
CREATE TABLE "rocpd_region{u}" ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "pid" INTEGER,
  "tid" INTEGER, "start" BIGINT, "end" BIGINT, "name_id" INTEGER, "event_id" INTEGER);
CREATE TABLE "rocpd_kernel_dispatch{u}" ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  "pid" INTEGER, "tid" INTEGER, "agent_id" INTEGER, "kernel_id" INTEGER, "dispatch_id" INTEGER,
  "queue_id" INTEGER, "stream_id" INTEGER, "start" BIGINT, "end" BIGINT, "event_id" INTEGER);
CREATE TABLE "rocpd_memory_copy{u}" ("id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "pid" INTEGER,
  "tid" INTEGER, "start" BIGINT, "end" BIGINT, "name_id" INTEGER, "dst_agent_id" INTEGER,
  "src_agent_id" INTEGER, "size" INTEGER, "queue_id" INTEGER, "stream_id" INTEGER,
  "event_id" INTEGER);
CREATE VIEW "rocpd_string_of{u}" AS SELECT * FROM "rocpd_string{u}";
"""

GEMM = "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x128x32_MI16x16x1"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


def make_nsight(path):
    path.unlink(missing_ok=True)
    base = sqlite3.connect(path)
    base.execute("PRAGMA page_size=512")  # smaller files
    base.executescript(NSIGHT)
    texts = ["cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaMemsetAsync_v3020",
             "cudaGraphLaunch_v10000", "sgemm_128x64_nn", "void sgemm_128x64_nn(float*, float*, int)",
             "vectorized_elementwise_kernel", ADD, "forward"]
    base.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(texts, 1))
    base.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H100 80GB HBM3', '', ?, 132)",
                 (85_520_809_984,))
    correlation = 0

    def launch(time, name, table, *work):
        nonlocal correlation
        correlation += 1
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,0,?,?,?,0,NULL)",
                     (time, time + 4_000, GLOBAL_TID, correlation, name))
        row = [correlation if value == "correlation" else value for value in work]
        base.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)

    def mark(start, end, text=None, number=None):
        base.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,59,NULL,NULL,NULL,?,?,NULL,?,0)",
                     (start, end, text, GLOBAL_TID, number))

    for step in range(2):
        at = 1_000_000 + step * 400_000
        mark(at, at + 390_000, f"step {step}")
        mark(at + 1_000, at + 200_000, None, 9)
        launch(at + 2_000, 2, "CUPTI_ACTIVITY_KIND_MEMCPY",
               at + 10_000, at + 18_000, 0, 1, 7, "correlation", 65_536, 1)
        mark(at + 20_000, at + 40_000, "aten::mm, seq = 3, op_id = 11, sizes = [[64, 512], [512, 64]]")
        launch(at + 25_000, 1, "CUPTI_ACTIVITY_KIND_KERNEL",
               at + 40_000, at + 140_000, 0, 1, 7, "correlation", PID << 24, 6, 5, None, 8, 256, None)
        mark(at + 45_000, at + 60_000, "aten::add, seq = 4, op_id = 12, sizes = [[64, 64], [64, 64]]")
        launch(at + 50_000, 1, "CUPTI_ACTIVITY_KIND_KERNEL",
               at + 141_000, at + 161_000, 0, 1, 7, "correlation", PID << 24, 8, 7, None, 8, 256, None)
        launch(at + 70_000, 3, "CUPTI_ACTIVITY_KIND_MEMSET",
               at + 80_000, at + 82_000, 0, 1, 13, "correlation", 0, 4_096)
        launch(at + 250_000, 4, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
               at + 260_000, at + 330_000, 0, 42, 43, 1, 7, "correlation")
    base.execute("INSERT INTO NVTX_EVENTS VALUES (1,NULL,34,NULL,NULL,NULL,'a mark',?,NULL,NULL,0)",
                 (GLOBAL_TID,))
    base.commit()
    base.execute("VACUUM")
    base.close()


def rocm_run():
    """Calls (name, start, end, stack), kernels (name, start, end, stack) and copies of one run."""
    calls, kernels, copies = [], [], []
    for i in range(3):
        at = 5_000_000 + i * 100_000
        calls += [("hipMemcpyAsync", at, at + 6_000, 3 * i + 1),
                  ("hipModuleLaunchKernel", at + 10_000, at + 15_000, 3 * i + 2),
                  ("hipLaunchKernel", at + 20_000, at + 25_000, 3 * i + 3)]
        copies.append((at + 9_000, at + 12_000, 3 * i + 1))
        kernels += [(GEMM, at + 18_000, at + 78_000, 3 * i + 2),
                    (ADD, at + 79_000, at + 89_000, 3 * i + 3)]
    return calls, kernels, copies


def make_rocpd(path):
    path.unlink(missing_ok=True)
    base = sqlite3.connect(path)
    base.execute("PRAGMA page_size=512")  # smaller files
    calls, kernels, copies = rocm_run()
    for pid, u in ((PID, "_00005ec1_4f5d_7c1a"), (PID + 1, "_00005ec2_4f5d_7c1b")):
        base.executescript(ROCPD.replace("{u}", u))
        texts = ["hipMemcpyAsync", "hipModuleLaunchKernel", "hipLaunchKernel", "train",
                 "MEMORY_COPY_HOST_TO_DEVICE"]
        base.executemany(f'INSERT INTO "rocpd_string{u}" VALUES (?, ?, ?)',
                         [(i, u, text) for i, text in enumerate(texts, 1)])
        base.executemany(f'INSERT INTO "rocpd_info_agent{u}" VALUES (?, ?, ?, ?, ?)',
                         [(1, u, "CPU", "cpu", "a processor"),
                          (2, u, "GPU", "gfx942", "AMD Instinct MI300X")])
        base.executemany(f'INSERT INTO "rocpd_info_kernel_symbol{u}" VALUES (?, ?, ?)',
                         [(1, GEMM + ".kd", GEMM), (2, "_ZN2at6native.kd", ADD)])
        event = 0

        def happened(stack):
            nonlocal event
            event += 1
            base.execute(f'INSERT INTO "rocpd_event{u}" VALUES (?, 1, ?, ?, 0)', (event, stack, stack))
            return event

        for name, start, end, stack in calls:
            base.execute(f'INSERT INTO "rocpd_region{u}" VALUES (NULL, ?, ?, ?, ?, ?, ?)',
                         (pid, TID, start, end, texts.index(name) + 1, happened(stack)))
        base.execute(f'INSERT INTO "rocpd_region{u}" VALUES (NULL, ?, ?, ?, ?, 4, NULL)',
                     (pid, TID, 4_990_000, 5_300_000))
        for i, (name, start, end, stack) in enumerate(kernels):
            base.execute(f'INSERT INTO "rocpd_kernel_dispatch{u}" VALUES (NULL,?,?,2,?,?,1,0,?,?,?)',
                         (pid, TID, 1 if name == GEMM else 2, i, start, end, happened(stack)))
        for start, end, stack in copies:
            base.execute(f'INSERT INTO "rocpd_memory_copy{u}" VALUES (NULL,?,?,?,?,5,2,1,4096,1,0,?)',
                         (pid, TID, start, end, happened(stack)))
    base.commit()
    base.execute("VACUUM")
    base.close()


def make_rocprof(path):
    calls, kernels, copies = rocm_run()
    names = ["hipMemcpyAsync", "hipModuleLaunchKernel", "hipLaunchKernel"]

    def record(kind, operation, start, end, stack, **more):
        return {"size": 64, "kind": kind, "operation": operation, "thread_id": TID,
                "correlation_id": {"internal": stack, "external": 0}, "start_timestamp": start,
                "end_timestamp": end, **more}

    document = {"rocprofiler-sdk-tool": [{
        "metadata": {"pid": PID},
        "agents": [{"id": {"handle": 101}, "type": 1, "product_name": "a processor", "cu_count": 64},
                   {"id": {"handle": 102}, "type": 2, "product_name": "AMD Instinct MI300X",
                    "cu_count": 304}],
        "strings": {"buffer_records": [
            {"kind": "HIP_RUNTIME_API", "operations": names},
            {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
            {"kind": "KERNEL_DISPATCH", "operations": ["KERNEL_DISPATCH_NONE"]}]},
        "kernel_symbols": [{"kernel_id": 1, "kernel_name": GEMM + ".kd", "formatted_kernel_name": GEMM},
                           {"kernel_id": 2, "kernel_name": "_ZN2at.kd", "formatted_kernel_name": ADD}],
        "buffer_records": {
            "kernel_dispatch": [
                record(2, 0, start, end, stack, stream_id={"handle": 0}, dispatch_info={
                    "agent_id": {"handle": 102}, "queue_id": {"handle": 1},
                    "kernel_id": 1 if name == GEMM else 2}) for name, start, end, stack in kernels],
            "hip_api": [record(0, names.index(name), start, end, stack)
                        for name, start, end, stack in calls],
            "memory_copy": [record(1, 1, start, end, stack, stream_id={"handle": 0},
                                   dst_agent_id={"handle": 102}, src_agent_id={"handle": 101})
                            for start, end, stack in copies]}}]}
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    make_nsight(HERE / "nsight_systems.sqlite")
    make_rocpd(HERE / "rocpd.db")
    make_rocprof(HERE / "rocprofv3.json")

"""The glue between PyTorch and libheadroom_torch.so, driven end to end without a GPU.

PyTorch is the installed one with a stand-in for what a CUDA build has in torch._C
(stand_in/stand_in_cuda.py); the library is the real one; the driver is the fake one of
src/runtime/fake. What PyTorch's C++ does with our functions is not tried here: perf/gpu is for that.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
pytestmark = pytest.mark.skipif("HEADROOM_BINARY" not in os.environ,
                                reason="HEADROOM_BINARY names no program")

# What every script here begins with: a "training" whose tensors are blocks of the allocator.
PRELUDE = """
import ctypes, json, os, sys
import torch
fake = ctypes.CDLL(os.environ["HEADROOM_CUDA_DRIVER"])
fake.headroom_fake_calls.restype = ctypes.c_int64
fake.headroom_fake_first_violation.restype = ctypes.c_char_p
alloc, delete = (torch._C._cuda_cudaCachingAllocator_raw_alloc,
                 torch._C._cuda_cudaCachingAllocator_raw_delete)
MIB = 1 << 20
SIZES = [3 * MIB, 700_000, 512, 20 * MIB + 5, 1 * MIB]

def train(iterations, stream=0):
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(iterations):
        blocks = [alloc(size, stream) for size in SIZES]
        while blocks:
            delete(blocks.pop())
        parameter.grad = torch.ones(1)
        optimizer.step()
"""


def libraries():
    folder = Path(os.environ["HEADROOM_BINARY"]).resolve().parents[1] / "runtime"
    return folder / "libheadroom_torch.so", folder / "libheadroom_fake_cuda.so"


@pytest.fixture
def surroundings(tmp_path):
    ours, driver = libraries()
    if not (ours.exists() and driver.exists()):
        pytest.skip(f"{ours.name} or {driver.name} is not built")
    return {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(HERE / "stand_in"),
            "HEADROOM_LIBRARY": str(ours), "HEADROOM_CUDA_DRIVER": str(driver),
            "HEADROOM_FAKE_CUDA": "devices=2,memory_mib=4096", "PYTHONDONTWRITEBYTECODE": "1",
            "HEADROOM_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def run(tmp_path, surroundings):
    """headroom run FLAGS -- python SCRIPT: what it did, and its answer."""
    def go(text, *flags, words=(), environment=None, code=0, cwd=tmp_path):
        path = tmp_path / "train.py"
        path.write_text(PRELUDE + textwrap.dedent(text))
        answer = tmp_path / "answer.json"
        answer.unlink(missing_ok=True)
        done = subprocess.run([os.environ["HEADROOM_BINARY"], "run", "--json", "-o", str(answer),
                               *flags, "--", sys.executable, str(path), *words],
                              capture_output=True, text=True, timeout=180, cwd=cwd,
                              stdin=subprocess.DEVNULL, check=False,
                              env={**surroundings, **(environment or {})})
        assert done.returncode == code, done.stderr
        done.answer = json.loads(answer.read_text())
        return done
    return go


def test_statistics_are_the_librarys_own(run):
    done = run("""
        assert fake.headroom_fake_calls(b"cuInit") == 0  # the swap made no CUDA call
        assert torch.cuda.memory_allocated() == 0
        torch.cuda.init()
        blocks = [alloc(size, 0) for size in SIZES]
        rounded = sum(-(-size // 512) * 512 for size in SIZES)
        assert torch.cuda.memory_allocated() == rounded
        assert torch.accelerator.memory_allocated() == rounded
        stats = torch.cuda.memory_stats()
        assert stats["requested_bytes.all.current"] == sum(SIZES)
        assert stats["allocation.all.current"] == stats["active.all.allocated"] == len(SIZES)
        reserved = torch.cuda.memory_reserved()
        assert reserved >= rounded and reserved % (2 * MIB) == 0
        assert "Allocated memory" in torch.cuda.memory_summary()
        segments = torch.cuda.memory_snapshot()
        assert sum(s["total_size"] for s in segments) == reserved
        active = [b for s in segments for b in s["blocks"] if b["state"] == "active_allocated"]
        assert sorted(b["requested_size"] for b in active) == sorted(SIZES)
        torch.cuda.memory._dump_snapshot("snapshot.pickle")
        for block in blocks:
            delete(block)
        assert torch.cuda.memory_allocated() == 0
        assert torch.cuda.max_memory_allocated() == torch.accelerator.max_memory_allocated() == rounded
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == 0
        torch.cuda.synchronize = lambda: None
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() < reserved
        torch.cuda.set_per_process_memory_fraction(0.5)
        assert torch.cuda.memory.get_per_process_memory_fraction() == 0.5
        assert torch.accelerator.get_memory_info()[1] == 4096 * MIB
        assert fake.headroom_fake_violations() == 0, fake.headroom_fake_first_violation()
        print("all true", rounded)
    """)
    assert done.stdout.startswith("all true")
    process, = done.answer["processes"]
    assert process["outcome"] == "served" and process["ended"] is True
    device, = process["devices"]
    # The peak of the whole run, though the program had reset it.
    assert device["peak_allocated_bytes"] == int(done.stdout.split()[-1])
    assert device["name"] == "Stand-in GPU" and device["memory_bytes"] == 4096 << 20


def test_a_snapshot_of_ours_is_one_that_pack_reads(run, tmp_path):
    run("""
        torch.cuda.init()
        kept = [alloc(size, 0) for size in SIZES]
        torch.cuda.memory._dump_snapshot("snapshot.pickle")
    """)
    packed = subprocess.run([os.environ["HEADROOM_BINARY"], "pack", "snapshot.pickle", "--json"],
                            capture_output=True, text=True, check=False, cwd=tmp_path)
    # It holds no history, so there is no plan; what matters is that it is read as what it is.
    assert packed.returncode in (0, 3, 5) and "Traceback" not in packed.stderr
    assert packed.returncode == 0 or "history" in packed.stderr, packed.stderr


def test_what_cannot_be_answered_says_so_where_it_is_used(run):
    done = run("""
        import warnings
        def refusal(call):
            try:
                call()
            except RuntimeError as error:
                return "not available under headroom run" in str(error)
        torch.cuda.init()
        assert refusal(lambda: torch._C._cuda_getCheckpointState(0, (0, 1)))
        assert refusal(lambda: torch.cuda.MemPool.__init__(None))
        assert refusal(lambda: torch.ones(1).untyped_storage()._share_cuda_())
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            setattr(torch.backends.cudnn, "bench" + "mark", True)  # unseen by the look
            setattr(torch.backends.cudnn, "bench" + "mark", True)
            torch.cuda.memory._record_memory_history()
        assert torch.backends.cudnn.benchmark is False
        words = [str(w.message) for w in told]
        assert len(words) == 2 and "cudnn.benchmark stays off" in words[0], words
        assert "--record" in words[1]
        print("said")
    """)
    assert done.stdout == "said\n"
    assert any("stays off" in note for note in done.answer["processes"][0]["notes"])


@pytest.mark.parametrize("environment, reason", [
    ({"STAND_IN": "no-release-setter"}, "has no set_release_pool"),
    ({"STAND_IN": "other-backend"}, "already another one (cudaMallocAsync)"),
    ({"STAND_IN": "hip"}, "ROCm"),
    ({"HEADROOM_LIBRARY": "/lib/x86_64-linux-gnu/libc.so.6"}, "is another version"),
    ({"HEADROOM_LIBRARY": "/nonexistent.so"}, "cannot be loaded"),
])
def test_a_refusal_names_its_reason_and_changes_nothing(run, environment, reason):
    done = run("""
        assert torch._C._cuda_getAllocator() is None
        print(torch.cuda.memory.MemPool.__init__.__module__, "goes on")
    """, environment=environment)
    assert done.stdout == "torch.cuda.memory goes on\n"
    process, = done.answer["processes"]
    assert process["outcome"] == "refused" and reason in process["reason"]


def test_children_that_are_forked_and_spawned(run):
    """A child forked before CUDA was used may use it, and is reported; one forked after may not."""
    done = run("""
        import multiprocessing
        def child(name):
            torch.cuda.init()
            block = alloc(5 * MIB, 0)
            sys.stdout.write(f"{name} {block != 0} {torch.cuda.memory_allocated() == 5 * MIB}\\n")
            sys.stdout.flush()

        def idle(_):
            sys.stdout.write("idle\\n")
            sys.stdout.flush()

        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                process = multiprocessing.get_context(method).Process(target=child, args=(method,))
                process.start()
                process.join()
                assert process.exitcode == 0
            torch.cuda.init()
            train(1)
            process = multiprocessing.get_context("fork").Process(target=idle, args=(0,))
            process.start()
            process.join()
            kept = alloc(MIB, 0)
            if os.fork() == 0:
                delete(kept)  # its parent's: nothing is done about it
                os._exit(0)
            assert os.wait()[1] == 0
            assert torch.cuda.memory_allocated() == MIB
            assert fake.headroom_fake_violations() == 0, fake.headroom_fake_first_violation()
    """, "--accept", "all")
    assert done.stdout.split("\n")[:3] == ["fork True True", "spawn True True", "idle"]
    used = [p for p in done.answer["processes"] if p["devices"]]
    assert [p["outcome"] for p in used] == ["served"] * 3
    assert len({p["pid"] for p in used}) == 3
    peaks = sorted(p["devices"][0]["peak_allocated_bytes"] for p in used)
    assert peaks[:2] == [5 << 20] * 2


def test_several_devices_and_an_end_with_everything_alive(run):
    done = run("""
        torch.cuda.init()
        kept = []
        for device in (0, 1):
            torch._C._cuda_setDevice(device)
            kept += [alloc((device + 1) * 8 * MIB, 0), alloc(MIB, 77)]
        assert torch.cuda.memory_allocated(0) == 9 * MIB and torch.cuda.memory_allocated(1) == 17 * MIB
        class Late:
            def __del__(self):
                delete(kept[0])  # while the interpreter goes
        sys.late = Late()
        print("end")
    """, environment={"STAND_IN_DEVICES": "2"})
    assert done.stdout == "end\n" and "Error" not in done.stderr
    process, = done.answer["processes"]
    assert [d["device"] for d in process["devices"]] == [0, 1]
    assert process["devices"][1]["peak_allocated_bytes"] == 17 << 20


def test_ranks_are_named_and_told_apart(run):
    done = run("""
        import subprocess
        if "RANK" not in os.environ:
            children = [subprocess.Popen([sys.executable, __file__], env={
                **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"})
                for rank in range(2)]
            sys.exit(max(child.wait() for child in children))
        torch.cuda.init()
        train(1)
    """)
    ranks = [(p["rank"], p["world_size"], p["outcome"]) for p in done.answer["processes"]]
    assert ranks == [(0, 2, "served"), (1, 2, "served"), (None, 1, "nothing")]


@pytest.mark.parametrize("rank_name, world_name", [
    ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE")])
def test_each_task_of_a_launcher_has_its_own_prefix(surroundings, tmp_path, rank_name, world_name):
    """srun headroom run -- python train.py: as many of us as tasks, side by side."""
    (tmp_path / "train.py").write_text(PRELUDE + "torch.cuda.init()\ntrain(2)\n")
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        surroundings.pop(name, None)
    tasks = [subprocess.Popen([os.environ["HEADROOM_BINARY"], "run", "--record", "recordings", "--",
                               sys.executable, "train.py"], cwd=tmp_path, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**surroundings, rank_name: str(rank), world_name: "2"})
             for rank in range(2)]
    for rank, task in enumerate(tasks):
        _, said = task.communicate(timeout=180)
        assert task.returncode == 0, said
        assert said.startswith(f"headroom: rank {rank}, cuda:0: "), said
    recordings = sorted(path.name for path in (tmp_path / "recordings").iterdir())
    assert [name.partition("-")[0] for name in recordings] == ["rank0", "rank1"]


@pytest.mark.parametrize("module, words", [
    ("torch.distributed.run", ["--nproc-per-node", "2", "--master-port", "0"]),
    ("accelerate.commands.launch", ["--multi_gpu", "--num_processes", "2", "--num_machines", "1",
                                    "--mixed_precision", "no", "--dynamo_backend", "no",
                                    "--main_process_port", "0"]),
])
def test_under_launchers_of_ranks(surroundings, tmp_path, module, words):
    pytest.importorskip(module.split(".")[0])
    (tmp_path / "train.py").write_text(PRELUDE + "torch.cuda.init()\nalloc(MIB, 0)\n")
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "run", "--", sys.executable, "-m",
                           module, *words, "train.py"],
                          capture_output=True, text=True, timeout=180, cwd=tmp_path, check=False,
                          env=surroundings)
    assert done.returncode == 0, done.stderr
    ours = [line for line in done.stderr.splitlines() if line.startswith("headroom: ")]
    assert len(ours) == 2  # the agent, which used no CUDA, is not mentioned
    assert ours[0].startswith("headroom: rank 0, cuda:0: 2.00 MiB reserved")
    assert ours[1].startswith("headroom: rank 1, cuda:0: ")


def test_a_killed_recording_is_one_that_pack_reads(run, tmp_path):
    done = run("""
        torch.cuda.init()
        train(6)
        os.kill(os.getpid(), 9)
    """, "--record", "recordings", code=137)
    process, = done.answer["processes"]
    assert (process["outcome"], process["ended"]) == ("recorded", False)
    assert process["devices"][0]["iterations"] >= 1  # what the first step had told
    recording, = (tmp_path / "recordings").iterdir()
    assert recording.name.startswith("rank0-cuda0-") and recording.suffix == ".hrec"
    packed = subprocess.run([os.environ["HEADROOM_BINARY"], "pack", str(recording), "--json"],
                            capture_output=True, text=True, check=False)
    assert packed.returncode == 5, packed.stderr  # partial: up to where the run was killed
    answer = json.loads(packed.stdout)
    assert answer["requests"] == 6 * 5
    assert "killed" in packed.stdout


@pytest.mark.parametrize("flags", [[], ["--record", "recordings"]])
def test_a_process_without_an_optimizer_has_told_its_figures_when_it_is_killed(run, flags):
    done = run("""
        import glob, time
        torch.cuda.init()
        kept = [alloc(16 * MIB, 0), alloc(8 * MIB, 0)]
        report = os.path.join(os.environ["HEADROOM_RUN_REPORTS"], "*.json")
        for _ in range(600):  # until it has told of them, and not for ever
            if '"peak_allocated_bytes": %d' % (24 * MIB) in open(*glob.glob(report)).read():
                break
            time.sleep(0.1)
        os.kill(os.getpid(), 9)
    """, *flags, code=137)
    process, = done.answer["processes"]
    device, = process["devices"]
    assert not process["ended"] and device["iterations"] == 0
    assert device["peak_allocated_bytes"] == device["peak_reserved_bytes"] == 24 << 20


def test_a_recording_that_ends_is_named_in_the_answer(run, tmp_path):
    done = run("torch.cuda.init()\ntrain(4)\n", "--record", "with %d in it")
    process, = done.answer["processes"]
    recording, = process["recordings"]
    assert Path(recording).is_file() and "with %d in it" in recording
    assert process["devices"][0]["iterations"] == 4


STEPS = """
    import time
    torch.cuda.init()
    persistent = [alloc(64 * MIB, 0) for _ in range(4)]
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    # Each larger block finds no hole, as a small one was left between: best fit needs room for all.
    for iteration in range(80):
        kept = []
        for request in range(12):
            large = alloc((2 + 2 * request) * MIB, 0)
            kept.append(alloc(MIB, 0))
            delete(large)
        while kept:
            delete(kept.pop())
        parameter.grad = torch.ones(1)
        optimizer.step()
        time.sleep(0.05)  # the planner's thread needs its turn
    assert fake.headroom_fake_violations() == 0, fake.headroom_fake_first_violation()
"""


def test_recorded_planned_by_pack_and_served(run, tmp_path):
    run(STEPS, "--record", "recordings")
    recording, = (tmp_path / "recordings").glob("*.hrec")
    packed = subprocess.run([os.environ["HEADROOM_BINARY"], "pack", str(recording), "--plan",
                             "step.plan"], capture_output=True, text=True, check=False,
                            cwd=tmp_path)
    assert packed.returncode in (0, 1), packed.stderr
    process, = run(STEPS, "--plan", "step.plan").answer["processes"]
    device, = process["devices"]
    assert device["plan_source"] == "file", process
    assert device["planned"] > 0.9 * device["requests"] > 0
    assert device["reserved_before_bytes"] is None  # nothing to compare with
    # A damaged plan is refused with a reason, and the run goes on.
    (tmp_path / "step.plan").write_bytes((tmp_path / "step.plan").read_bytes()[:100])
    done = run(STEPS, "--plan", "step.plan")
    damaged, = done.answer["processes"]
    assert done.stderr.startswith("headroom: error: step.plan, byte "), done.stderr
    assert any("the plan was refused" in note for note in damaged["notes"]), damaged
    assert damaged["ended"] and damaged["devices"][0]["planned"] == 0


def test_a_plan_of_other_work_is_told_of_however_short_the_run_was(run, tmp_path):
    run("torch.cuda.init()\ntrain(12)\n", "--record", "recordings")
    recording, = (tmp_path / "recordings").glob("*.hrec")
    subprocess.run([os.environ["HEADROOM_BINARY"], "pack", str(recording), "--plan", "step.plan"],
                   capture_output=True, check=True, cwd=tmp_path)
    done = run("torch.cuda.init()\nSIZES = [size + MIB for size in SIZES]\ntrain(3)\n", "--plan",
               "step.plan")
    device, = done.answer["processes"][0]["devices"]
    assert device["planned"] == 0
    assert device["plan_reason"] == ("the plan has not met an iteration of its own yet, in 15 "
                                     "requests")


def test_what_is_no_plan_is_told_before_the_run(run, tmp_path):
    (tmp_path / "step.plan").write_text("a plan, but none of ours")
    done = run("print('began', file=sys.stderr, flush=True)", "--plan", "step.plan", "--quiet")
    said, began, _ = done.stderr.partition("began\n")
    assert began and said.startswith("headroom: error: step.plan"), done.stderr
    assert "the plan was refused" in said and "the run goes on without a plan" in said
    whole = run("print(os.environ['HEADROOM_RUN_PLAN'])", "--plan", "%r/step.plan", "--quiet")
    assert whole.stderr == ""  # one for each rank: nobody knows which there will be


def test_a_folder_with_a_sign_in_its_name_is_where_the_plan_is(run, tmp_path):
    """The sign %d stands for a device in the name that --plan is given, and nowhere else."""
    folder = tmp_path / "100%done"
    folder.mkdir()
    (folder / "step.plan").write_text("a plan, but none of ours")
    done = run("torch.cuda.init()\ntrain(1)\n", "--plan", "step.plan", cwd=folder)
    note, = [note for note in done.answer["processes"][0]["notes"] if "refused" in note]
    assert f"{folder}/step.plan" in note, note


def test_the_second_run_begins_with_the_plan_of_the_first(run):
    first, = run(STEPS).answer["processes"][0]["devices"]
    assert first["plan_source"] == "made", first
    second, = run(STEPS).answer["processes"][0]["devices"]
    assert second["plan_source"] == "kept", second
    assert second["planned"] > first["planned"]
    assert second["peak_reserved_bytes"] <= first["peak_reserved_bytes"]


STREAMS = """
    import time
    torch.cuda.init()
    fake.headroom_fake_set_delay(ctypes.c_int64(1_000_000))  # the device is far behind
    main, side = torch.cuda.Stream(), torch.cuda.Stream(1)

    def touch(block, size, stream):
        fake.headroom_fake_work(ctypes.c_void_p(stream.cuda_stream), ctypes.c_uint64(block),
                                ctypes.c_int64(size))

    def take(size, stream):
        block = alloc(size, stream.cuda_stream)
        assert fake.headroom_fake_is_touched(ctypes.c_void_p(stream.cuda_stream),
                                             ctypes.c_uint64(block), ctypes.c_int64(size)) == 0
        touch(block, size, stream)
        return block

    def give(block, size, stream):
        touch(block, size, stream)
        delete(block)
        fake.headroom_fake_advance(ctypes.c_int64(1))

    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    sizes = [MIB + 4096 * i for i in range(20)]
    for _ in range(40):
        activations = [take(size, main) for size in sizes]
        side.wait_stream(main)
        reduced = [take(4 * MIB, side) for _ in range(6)]
        event = torch.cuda.Event()
        event.record(side)
        main.wait_event(event)
        for block in reduced:
            give(block, 4 * MIB, side)
        for block, size in zip(activations, sizes):
            give(block, size, main)
        states = [take(2 * MIB + 4096 * i, main) for i in range(16)]
        for i, block in enumerate(states):
            give(block, 2 * MIB + 4096 * i, main)
        parameter.grad = torch.ones(1)
        optimizer.step()
        time.sleep(0.02)  # the planner's thread needs its turn
    assert fake.headroom_fake_violations() == 0, fake.headroom_fake_first_violation()
"""


def test_memory_of_another_stream_is_used_as_the_program_has_them_wait(run, tmp_path):
    together, = run(STREAMS).answer["processes"][0]["devices"]
    apart, = run(STREAMS, environment={"HEADROOM_RUN_STREAM_ORDER": "off",
                                       "HEADROOM_CACHE": str(tmp_path / "another")}
                 ).answer["processes"][0]["devices"]
    assert together["plan_source"] == apart["plan_source"] == "made"
    assert together["reserved_after_bytes"] <= apart["reserved_after_bytes"] - 12 * (1 << 20)


def test_an_event_whose_handle_is_out_orders_nothing(run):
    run("""
        torch.cuda.init()
        alloc(512, 0)
        side, foreign = torch.cuda.Stream(1), torch.cuda.Stream(2)
        event = side.record_event()
        assert event._headroom_order[0] == 0 and event._headroom_order[1] > 0
        assert event.cuda_event == 0x77  # who has it may record it unseen
        assert event._headroom_order is None
        event.record(side)
        assert event._headroom_order is None
        foreign.stream_id = foreign.cuda_stream  # as ExternalStream's is: its handle may come again
        assert foreign.record_event()._headroom_order is None
        theirs = torch.cuda.Event.from_ipc_handle(0, b"handle")  # another process records it
        theirs.record(side)
        assert theirs._headroom_order is None
    """)


def test_ranks_that_send_are_made_to_wait_for_nothing(run):
    done = run(STREAMS.replace("torch.cuda.init()", """torch.cuda.init()
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    alloc(512, 0)
    torch.cuda.Stream(1).record_event()
    dist.send(torch.zeros(2), 1)""") + "    print('joins', fake.headroom_fake_calls(b'cuStreamWaitEvent'))")
    assert done.stdout.splitlines()[-1] == "joins 0"


def test_a_recording_has_what_streams_wait_for(run, tmp_path):
    run(STREAMS, "--record", "recordings")
    recording, = (tmp_path / "recordings").glob("*.hrec")
    content = recording.read_bytes()
    kinds = [content[at] for at in range(64, len(content), 32)]
    assert kinds.count(11) == kinds.count(12) == 80
    packed = subprocess.run([os.environ["HEADROOM_BINARY"], "pack", "--json", str(recording), "--plan",
                             "step.plan"], capture_output=True, text=True, check=True, cwd=tmp_path)
    plan = json.loads(packed.stdout)["iterations"]["plan"]
    assert plan["bytes"] <= plan["streams_apart_bytes"] - 10 * (1 << 20)
    served, = run(STREAMS, "--plan", "step.plan").answer["processes"][0]["devices"]
    assert served["plan_source"] == "file"
    assert served["planned"] > 0.9 * served["requests"] > 0


def test_a_dumped_snapshot_shows_planned_blocks(run, tmp_path):
    run(STEPS + """
    blocks = [alloc(2 * MIB, 0), alloc(MIB, 0)]
    assert torch.cuda.memory_stats(0)["allocation.all.current"] == 6
    torch.cuda.memory._dump_snapshot("dump.pickle")
    segments = torch.cuda.memory._snapshot()["segments"]
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
    live = [block for segment in segments for block in segment["blocks"]
            if block["state"] == "active_allocated"]
    assert {block["address"] for block in live} >= set(blocks)
    assert sum(block["size"] for block in live) == torch.cuda.memory_allocated(0)
    assert sum(s["total_size"] for s in segments) == torch.cuda.memory_reserved(0)
    from torch.cuda import _memory_viz
    snapshot = torch.cuda.memory._snapshot()
    assert "viz" in _memory_viz.segment_plot(snapshot)
    assert f"segments: {len(segments)}" in _memory_viz.segsum(snapshot)
    """)
    packed = subprocess.run([os.environ["HEADROOM_BINARY"], "pack", "dump.pickle", "--json"],
                            capture_output=True, text=True, check=False, cwd=tmp_path)
    assert packed.returncode in (0, 1, 5), packed.stderr
    recorded = json.loads(packed.stdout)["recorded"]
    assert recorded["peak_reserved_bytes"] >= 256 * (1 << 20)


def test_plans_are_kept_by_what_determines_them(run, tmp_path):
    device, = run(STEPS).answer["processes"][0]["devices"]
    # The library decides whether a plan is worth it; either way it says so.
    assert device["plan_source"] == "made" or device["plan_reason"]
    first, = (tmp_path / "cache/plans").glob("*/key.json")
    key = json.loads(first.read_text())
    assert key["script"].endswith("train.py") and key["world_size"] == 1
    run("torch.cuda.init()\n", words=["--layers", "3"])
    assert len(list((tmp_path / "cache/plans").glob("*/key.json"))) == 2


def test_a_folder_that_another_rank_drops_meanwhile_costs_no_plan(tmp_path, monkeypatch):
    sys.path.insert(0, str(ROOT / "python"))
    from headroom.run import plans
    gone = tmp_path / ("0" * 24)
    gone.mkdir()
    entries = list(os.scandir(tmp_path))
    gone.rmdir()
    monkeypatch.setattr(plans.os, "scandir", lambda _: entries)
    key = plans.key_of("2.13.0", [["GPU", 1]], 8)
    assert plans.folder_for(str(tmp_path), key) == str(tmp_path / plans.digest(key))


@pytest.mark.parametrize("name", ["_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"])
def test_pytorchs_own_peaks_are_kept_however_they_are_reset(name, monkeypatch):
    sys.path.insert(0, str(ROOT / "python"))
    from headroom.run import statistics
    monkeypatch.setattr(statistics, "peaks", statistics.LifetimePeaks())
    now = {"allocated_bytes": {"all": {"peak": 7}}, "reserved_bytes": {"all": {"peak": 9}}}
    was_reset = []
    answers = SimpleNamespace(_cuda_memoryStats=lambda device: now,
                              **{name: was_reset.append})
    torch = SimpleNamespace(_C=answers)
    statistics.keep_peaks_of_torch(torch)
    getattr(torch._C, name)(1)
    assert was_reset == [1]
    assert statistics.peaks.of(1, "allocated_bytes", 2) == 7
    assert statistics.peaks.of(1, "reserved_bytes", 2) == 9


CATCHER = """
#include <c10/util/Exception.h>
#include <cstdio>
#include <exception>
extern "C" int catch_it(void (*thrower)(const char*, int, void*), const char* message, char* what) {
  static_assert(sizeof(c10::OutOfMemoryError) <= 1024);
  try {
    thrower(message, 0, nullptr);
    return 0;
  } catch (const c10::OutOfMemoryError& error) {
    std::snprintf(what, 200, "%s", error.what_without_backtrace());
    return std::uncaught_exceptions() == 0 ? 1 : 2;
  } catch (...) {
    return 3;
  }
}
"""


def test_out_of_memory_is_pytorchs_own_exception(plain, tmp_path):
    """Thrown by the library, caught by code that was compiled against the installed PyTorch."""
    import importlib.util
    import shutil
    root = Path(importlib.util.find_spec("torch").submodule_search_locations[0])
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    (tmp_path / "catcher.cpp").write_text(CATCHER)
    subprocess.run([compiler, "-std=c++20", "-shared", "-fPIC", "-O1", "catcher.cpp", "-o",
                    "catcher.so", f"-I{root}/include", f"-L{root}/lib", "-lc10"], cwd=tmp_path,
                   check=True)
    done = plain("""
        ours = ctypes.CDLL(os.environ["HEADROOM_LIBRARY"])
        assert ours.headroom_torch_errors_missing() == 0
        catcher = ctypes.CDLL("./catcher.so")
        what = ctypes.create_string_buffer(200)
        for _ in range(3):
            caught = catcher.catch_it(ours.headroom_throw_torch_out_of_memory,
                                      b"CUDA out of memory. Tried to allocate 2.00 GiB", what)
        print(caught, what.value.decode())
    """)
    assert done.stdout == "1 CUDA out of memory. Tried to allocate 2.00 GiB\n"


REFUSED = """
import ctypes, sys
ours = ctypes.CDLL(sys.argv[1])
ours.headroom_error.restype = ctypes.c_char_p
ours.headroom_malloc.restype = ctypes.c_void_p
ours.headroom_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
ours.headroom_set_memory_fraction.argtypes = [ctypes.c_double, ctypes.c_int]
if "kept" in sys.argv:
    assert ours.headroom_malloc(1 << 20, 0, None)
if "limited" in sys.argv:
    ours.headroom_set_memory_fraction(0.25, 0)
assert not ours.headroom_malloc(5 << 30, 0, None)
print("torch.OutOfMemoryError:", ours.headroom_error().decode())
"""


@pytest.mark.parametrize("words, figures", [
    ([], {"allocated_bytes": 0, "unallocated_bytes": 0, "allowed_bytes": None}),
    (["kept"], {"allocated_bytes": 1 << 20, "unallocated_bytes": 1 << 20}),
    (["limited"], {"allowed_bytes": 1 << 30}),
])
def test_our_out_of_memory_message_is_one_that_pack_reads(surroundings, words, figures):
    """Nothing allocated and nothing cached is said as PyTorch says it, and no figure is missing."""
    said = subprocess.run([sys.executable, "-c", REFUSED, str(libraries()[0]), *words],
                          capture_output=True, text=True, check=True, env=surroundings)
    packed = subprocess.run([os.environ["HEADROOM_BINARY"], "pack", "--oom", "-", "--json"],
                            input=said.stdout, capture_output=True, text=True, check=False)
    assert packed.returncode in (0, 1), packed.stdout + packed.stderr
    case, = json.loads(packed.stdout)["cases"]
    assert case["is_cut"] is False, case
    assert case["message"]["tried_bytes"] == 5 << 30
    assert case["message"]["total_bytes"] == 4 << 30
    assert {name: case["message"][name] for name in figures} == figures


# c10/util/Exception.h in small, as older versions of PyTorch have it: no constructor of
# OutOfMemoryError's own is exported.
OLDER_C10 = """
#include <cstdint>
#include <exception>
#include <string>
#include <vector>
namespace c10 {
struct SourceLocation { const char* function; const char* file; uint32_t line; };
class __attribute__((visibility("default"))) Error : public std::exception {
  std::string msg_;
  std::vector<std::string> context_;
 public:
  Error(SourceLocation, std::string msg);
  ~Error() override;
  const char* what() const noexcept override;
};
Error::Error(SourceLocation, std::string msg) : msg_(std::move(msg)) {}
Error::~Error() = default;
const char* Error::what() const noexcept { return msg_.c_str(); }
class __attribute__((visibility("default"))) OutOfMemoryError : public Error {
  using Error::Error;
  virtual void key();
};
void OutOfMemoryError::key() {}
}
extern "C" int catch_it(void (*thrower)(const char*, int, void*), const char* message, char* what) {
  try {
    thrower(message, 0, nullptr);
    return 0;
  } catch (const c10::OutOfMemoryError& error) {
    std::string(error.what()).copy(what, 199);
    return std::uncaught_exceptions() == 0 ? 1 : 2;
  } catch (...) {
    return 3;
  }
}
"""


@pytest.mark.parametrize("abi", [0, 1])
def test_out_of_memory_is_thrown_in_older_pytorchs_too(surroundings, tmp_path, abi):
    """By a libc10.so of our own, with the std::string of before and after the change."""
    import shutil
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    (tmp_path / "c10.cpp").write_text(OLDER_C10)
    subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", "-O1", "c10.cpp", "-o",
                    "libc10.so", "-Wl,-soname,libc10.so", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"],
                   cwd=tmp_path, check=True)
    done = subprocess.run([sys.executable, "-c", textwrap.dedent("""
        import ctypes, os
        c10 = ctypes.CDLL("./libc10.so")
        ours = ctypes.CDLL(os.environ["HEADROOM_LIBRARY"])
        assert ours.headroom_torch_errors_missing() == 0
        what = ctypes.create_string_buffer(200)
        words = b"CUDA out of memory. " + b"x" * 100
        for _ in range(3):
            print(c10.catch_it(ours.headroom_throw_torch_out_of_memory, words, what),
                  what.value == words)
        """)], cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False)
    assert done.stdout == "1 True\n" * 3, done.stderr


@pytest.fixture
def plain(tmp_path, surroundings):
    """A script without `headroom run` around it."""
    def go(text, code=0, before=""):
        path = tmp_path / "train.py"
        path.write_text(f"import sys\nsys.path.append({str(HERE.parents[1] / 'python')!r})\n" +
                        textwrap.dedent(before) + PRELUDE + textwrap.dedent(text))
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True,
                              timeout=120, cwd=tmp_path, env=surroundings, check=False)
        assert done.returncode == code, done.stderr
        return done
    return go


def test_an_installed_tree_finds_its_parts(surroundings, tmp_path):
    build = Path(os.environ["HEADROOM_BINARY"]).resolve().parents[2]
    subprocess.run(["cmake", "--install", str(build), "--prefix", str(tmp_path / "prefix"),
                    "--component", "headroom_runtime"], check=True, stdout=subprocess.DEVNULL)
    environment = {name: value for name, value in surroundings.items()
                   if name not in ("HEADROOM_LIBRARY",)}
    (tmp_path / "train.py").write_text(PRELUDE + "torch.cuda.init()\nalloc(MIB, 0)\n")
    done = subprocess.run([str(tmp_path / "prefix/bin/headroom"), "run", "--", sys.executable,
                           "train.py"], capture_output=True, text=True, cwd=tmp_path, check=False,
                          env=environment)
    assert done.returncode == 0 and "GiB reserved" in done.stderr or "MiB reserved" in done.stderr


def test_enable_from_python(plain):
    done = plain("""
        import headroom
        headroom.enable()
        headroom.enable()  # a second call changes nothing
        torch.cuda.init()
        train(2)
        print(torch.cuda.max_memory_allocated() > 20 * MIB)
    """)
    assert done.stdout == "True\n"
    assert "headroom: process " in done.stderr and "GiB reserved" in done.stderr  # its own line


def test_enable_before_torch_is_imported(plain):
    done = plain("print(torch._C._cuda_getAllocatorBackend())",
                 before="import headroom\nheadroom.enable()\n")
    assert done.stdout == "pluggable\n"


def test_enable_after_cuda_was_used_raises(plain):
    done = plain("""
        torch.cuda.init()
        import headroom
        try:
            headroom.enable()
        except RuntimeError as error:
            print(error)
    """)
    assert "CUDA was used before" in done.stdout

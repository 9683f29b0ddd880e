"""`headroom run` around processes that have no CUDA: nothing about them may change.

The allocator itself is held against a stand-in for a GPU build of PyTorch in test_run_install.py.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

pytestmark = pytest.mark.skipif("HEADROOM_BINARY" not in os.environ,
                                reason="HEADROOM_BINARY names no program")


@pytest.fixture
def run(tmp_path):
    """headroom run WORDS, with our own Python behind "python"."""
    def go(*words, environment=None, **options):
        command = [os.environ["HEADROOM_BINARY"], "run", *map(str, words)]
        # A library that is never loaded, as these processes have no CUDA.
        surroundings = {**os.environ, "HOME": str(tmp_path), "HEADROOM_LIBRARY": "/dev/null",
                        "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        surroundings.pop("PYTHONPATH", None)
        surroundings.update(environment or {})
        return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path,
                              stdin=subprocess.DEVNULL, check=False, env=surroundings, **options)
    return go


@pytest.fixture
def script(tmp_path):
    def write(text, name="train.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path
    return write


TRAIN = """
    import sys
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(sys.argv[1:], repr(loss.item()), sys.path, type(torch.__spec__.loader).__name__,
          [type(f).__module__ for f in sys.meta_path])
    sys.exit(7)
"""


def test_a_training_without_cuda_is_as_it_was(run, script, tmp_path):
    path = script(TRAIN)
    words = [sys.executable, path, "--lr", "3", "--", "-x"]
    plain = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False,
                           cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)})
    assert plain.returncode == 7
    for mode in ([], ["--off"]):
        done = run(*mode, "--", *words)
        assert (done.returncode, done.stdout) == (7, plain.stdout), done.stderr
        assert done.stderr == ("headroom: nothing to do: no CUDA was used by the process that "
                               "imported torch (this PyTorch is built without CUDA)\n")


def test_children_of_every_kind_work_and_are_counted(run, script):
    path = script("""
        import multiprocessing, subprocess, sys
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        def double(value):
            return torch.tensor(value) * 2

        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, pool.map(double, [1, 2]))
            loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, num_workers=1)
            print([batch[0].tolist() for batch in loader])
            print(subprocess.run([sys.executable, "-c", "import torch; print(torch.ones(1))"],
                                 capture_output=True, text=True).stdout)
    """)
    done = run("--json", "--output", "answer.json", "--", sys.executable, path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("fork [tensor(2), tensor(4)]\nspawn [tensor(2), tensor(4)]\n"
                           "[[0.0, 1.0], [2.0, 3.0]]\ntensor([1.])\n\n")
    answer = json.loads((path.parent / "answer.json").read_text())
    assert answer["schema"] == "headroom.run/1" and answer["exit_code"] == 0
    # Forked children say nothing; the one that was run, and the parent, do. Pools of spawned ones
    # are killed by their parent, so they may or may not come to their end.
    assert len(answer["processes"]) >= 2
    assert {process["outcome"] for process in answer["processes"]} == {"nothing"}


def test_a_signal_reaches_the_command_and_its_answer_is_ours(script, tmp_path):
    path = script("""
        import signal, sys, time
        def stop(number, frame):
            print("checkpoint written", flush=True)
            sys.exit(42)
        signal.signal(signal.SIGTERM, stop)
        print("ready", flush=True)
        time.sleep(60)
    """)
    with subprocess.Popen([os.environ["HEADROOM_BINARY"], "run", "--off", "--", sys.executable,
                           str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          cwd=tmp_path) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (42, "checkpoint written\n")
    assert "nothing to do" in err


@pytest.mark.parametrize("ends, code, words", [
    ("import os; os.abort()", 134, "ended by signal 6"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, "ended by signal 9"),
    ("raise SystemExit(3)", 3, "nothing to do"),
    ("1 / 0", 1, "ZeroDivisionError"),
])
def test_crashes_and_exit_codes_come_through(run, ends, code, words):
    done = run("--off", "--", sys.executable, "-c", ends)
    assert done.returncode == code
    assert words in done.stderr


def test_nothing_is_left_behind(run, tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    done = run("--off", "--", sys.executable, "-c", "import os; print(os.listdir(os.environ["
               "'HEADROOM_RUN_REPORTS']))", environment={"TMPDIR": str(folder)})
    assert done.stdout == "[]\n"
    assert list(folder.iterdir()) == []


def test_the_users_own_sitecustomize_still_runs(run, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import sys; print('mine', sys.path[0] != '')\n")
    words = ["--off", "--", sys.executable, "-c",
             "import sys, sitecustomize; print(sitecustomize.__file__)"]
    done = run(*words, environment={"PYTHONPATH": str(mine)})
    assert done.stdout == f"mine True\n{mine}/sitecustomize.py\n", done.stderr
    (mine / "sitecustomize.py").write_text("1 / 0\n")
    broken = run(*words, environment={"PYTHONPATH": str(mine)})
    assert "ZeroDivisionError" in broken.stderr  # as Python itself has it


def test_a_python_that_looks_at_nothing_is_left_alone(run):
    done = run("--", sys.executable, "-I", "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "no Python process of this command imported torch" in done.stderr


@pytest.mark.parametrize("flags", [[], ["--off"]])
def test_a_module_of_the_programs_own_by_our_name_is_its_own(run, tmp_path, flags):
    (tmp_path / "headroom.py").write_text("LEFT = 3\n")
    (tmp_path / "own.py").write_text("import torch\nfrom headroom import LEFT\nprint(LEFT)\n")
    done = run(*flags, "--", sys.executable, tmp_path / "own.py")
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_a_second_copy_of_ours_knows_what_is_at_work(run, tmp_path):
    (tmp_path / "ours.py").write_text(
        "import torch\nbefore = torch._headroom_session\nfrom headroom.run import session\n"
        "print(session.begin(torch, {}) is before)\n")
    package = os.path.join(os.environ["HEADROOM_SOURCE_DIR"], "python")
    done = run("--", sys.executable, tmp_path / "ours.py", environment={"PYTHONPATH": package})
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_enabling_says_where_it_does_nothing(tmp_path):
    package = os.path.join(os.environ["HEADROOM_SOURCE_DIR"], "python")
    (tmp_path / "alone.py").write_text(
        f"import sys\nsys.path.insert(0, {package!r})\nimport torch, headroom\n"
        "try:\n    headroom.enable()\nexcept RuntimeError as error:\n    print(error)\n")
    done = subprocess.run([sys.executable, str(tmp_path / "alone.py")], capture_output=True,
                          text=True, check=False)
    assert done.stdout == "not installed: this PyTorch is built without CUDA\n", done.stderr


NEEDS = [
    ("torch.backends.cudnn.benchmark = True", "cudnn-benchmark"),
    ("torch.backends.cudnn.benchmark = not args.deterministic", "cudnn-benchmark"),
    ("torch.backends.cudnn.flags(benchmark=fast)", "cudnn-benchmark"),
    ("model = torch.compile(model, mode='reduce-overhead')", "cuda-graph-trees"),
    ("torch._inductor.config.triton.cudagraphs = True", "cuda-graph-trees"),
    ("torch.compile(model, options={'triton.cudagraphs': True})", "cuda-graph-trees"),
    ("with torch._inductor.config.patch({'triton.cudagraphs': True}): pass", "cuda-graph-trees"),
    ("torch._inductor.config.patch('triton.cudagraphs', graphs)", "cuda-graph-trees"),
    ("torch._inductor.config.patch(**{'triton.cudagraphs': True})", "cuda-graph-trees"),
    ("import torch.backends.cudnn as c; c.benchmark = True", "cudnn-benchmark"),
    ("from torch.backends import cudnn as c; c.benchmark = True", "cudnn-benchmark"),
    ("from torch.cuda import MemPool as Pool; Pool()", "mempool"),
    ("TrainingArguments(torch_compile_mode='max-autotune')", "cuda-graph-trees"),
    ("lightning.Trainer(benchmark=True)", "cudnn-benchmark"),
    ("pool = torch.cuda.MemPool()", "mempool"),
    ("with torch.profiler.profile(profile_memory=True) as p: pass", "profiler-memory"),
]
NO_NEEDS = [
    "torch.backends.cudnn.benchmark = False", "pass  # torch.backends.cudnn.benchmark = True",
    "text = 'torch.cuda.MemPool()'", "options.benchmark = True", "torch.compile(model)",
    "torch.profiler.profile(profile_memory=False)", "torch.compile(model, mode='default')",
    "torch._inductor.config.patch('triton.cudagraphs', False)", "settings.patch(benchmark=True)",
    "torch.compile(model, options={'triton.cudagraphs': False})", "this is not Python benchmark",
]


@pytest.mark.parametrize("line, word", NEEDS + [(line, None) for line in NO_NEEDS])
def test_the_look_sees_what_the_text_says(script, line, word):
    from headroom.run import needs
    path = script(f"def later():\n    {line}\n")
    found = list(needs.of_script(str(path)))
    assert [(need.word, need.place) for need in found] == ([(word, f"{path}:2")] if word else [])


@pytest.fixture
def with_cuda(tmp_path):
    """As if a PyTorch with CUDA were installed: what is refused never imports it."""
    folder = tmp_path / "site" / "torch"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / "version.py").write_text("__version__ = '2.13.0+cu130'\n"
                                       "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n")
    return {"PYTHONPATH": str(tmp_path / "site")}


def test_a_script_that_needs_more_is_refused_before_it_begins(run, script, with_cuda):
    path = script("print('began')\nif False:\n    torch.backends.cudnn.benchmark = True\n")
    # The PyTorch that is installed here has no CUDA: nothing is put into it, so nothing is amiss.
    assert run("--", sys.executable, path).stdout == "began\n"
    done = run("--", sys.executable, path, environment=with_cuda)
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    assert f"{path}:3: " in done.stderr and "--accept cudnn-benchmark" in done.stderr
    for way in (["--off"], ["--accept", "mempool,cudnn-benchmark"], ["--accept", "all"]):
        done = run(*way, "--", sys.executable, path, environment=with_cuda)
        assert done.stdout == "began\n"


def test_modules_beside_the_script_and_the_environment_are_looked_at(run, script, with_cuda):
    script("import torch\ntorch.backends.cudnn.benchmark = True\n", "helpers.py")
    path = script("from helpers import nothing\n")
    done = run("--", sys.executable, path, environment=with_cuda)
    assert done.returncode == 125 and "helpers.py:2: " in done.stderr
    async_backend = run("--", sys.executable, "-c", "print('began')", environment={
        "PYTORCH_CUDA_ALLOC_CONF": "backend: cudaMallocAsync", **with_cuda})
    assert async_backend.returncode == 125 and "PYTORCH_CUDA_ALLOC_CONF" in async_backend.stderr
    as_module = run("--", sys.executable, "-m", "helpers", environment=with_cuda)
    assert as_module.returncode == 125 and "helpers.py:2: " in as_module.stderr


@pytest.mark.parametrize("name, value, is_seen", [
    ("PYTORCH_ALLOC_CONF", "expandable_segments:True,backend:cudaMallocAsync", True),
    ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", False),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", True), ("TORCHINDUCTOR_CUDAGRAPHS", "1", True),
    ("TORCHINDUCTOR_CUDAGRAPHS", "0", False), ("ACCELERATE_DYNAMO_MODE", "default", False),
    ("ACCELERATE_DYNAMO_MODE", "reduce-overhead", True),
    ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "true", True),
])
def test_the_environment_is_read(name, value, is_seen):
    from headroom.run import needs
    assert [need.place for need in needs.of_environment({name: value})] == [name] * is_seen


def test_the_look_is_short(tmp_path):
    """A file of a mebibyte, and one that no parser likes."""
    from headroom.run import needs
    wide = tmp_path / "wide.py"
    wide.write_text("x = [" + "1, " * 300_000 + "]  # benchmark\n")
    deep = tmp_path / "deep.py"
    deep.write_text("(" * 5000 + ")" * 5000 + "  # benchmark\n")
    began = time.monotonic()
    assert list(needs.of_script(str(wide))) == []
    assert list(needs.of_script(str(deep))) == []
    assert list(needs.of_script(str(tmp_path / "missing.py"))) == []
    assert time.monotonic() - began < 20


def test_a_row_is_only_added_where_there_was_a_device(run, tmp_path):
    done = run("--off", "--measure", "mine.csv", "--", sys.executable, "-c", "import torch")
    assert "0 rows added to mine.csv" in done.stderr
    header = (tmp_path / "mine.csv").read_text()
    assert header.startswith("id,source,") and header.count("\n") == 1
    (tmp_path / "other.csv").write_text("a,b\n")
    refused = run("--off", "--measure", "other.csv", "--", sys.executable, "-c", "print('began')")
    assert (refused.returncode, refused.stdout) == (125, "")
    assert "other.csv" in refused.stderr


def test_a_word_for_the_order_of_streams_that_is_none_is_refused(run):
    done = run("--", "echo", "started", environment={"HEADROOM_RUN_STREAM_ORDER": "tolld"})
    assert done.returncode == 125
    assert "HEADROOM_RUN_STREAM_ORDER knows no 'tolld'" in done.stderr
    assert "started" not in done.stdout
    assert run("--", "echo", "started", environment={"HEADROOM_RUN_STREAM_ORDER": "told"}).returncode == 0

"""The shim (python/headroom/run/shim): compiled by its own builder against the installed PyTorch's
headers, and driven through PyTorch's abstract class (tests/shim/shim_test.cpp), then under `headroom
run`, without a GPU.

PyTorch's CPU build has the headers but no libc10_cuda.so: a stand-in of tests/shim takes its place,
with a native allocator that writes down what it is asked. What PyTorch's own does is not tried here:
perf/gpu is for that.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "python"))

from headroom.run import needs, shim  # noqa: E402
from headroom.run.shim import build as builder  # noqa: E402

pytestmark = pytest.mark.skipif("HEADROOM_BINARY" not in os.environ,
                                reason="HEADROOM_BINARY names no program")

SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize=vptr")
CASES = """
    a_forked_child_leaves_its_parents_blocks_alone a_pool_for_hard_times_is_used_in_them
    a_pool_that_is_begun_keeps_nobody_from_memory a_pools_state_is_saved_and_restored an_end_with_everything_alive another_pytorch_is_refused
    between_processes_and_devices each_gives_back_its_cache_for_the_other many_threads
    nothing_that_a_capture_forbids_happens_during_one requests_come_from_ours_and_go_back_to_it
    statistics_are_as_torchs_own_type_counts the_limit_is_of_both_together
    the_profiler_is_told_the_sums trackers_see_blocks_come_and_go
    what_a_pool_claims_is_the_native_ones what_it_holds_can_be_seen
""".split()


def compiled(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, timeout=600)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.fixture(scope="session")
def here():
    """What there is to compile with, or a reason why nothing of this file can be tried."""
    torch = shim.installed_torch()
    if torch is None or not os.path.isfile(
            os.path.join(torch.folder, "include/c10/cuda/CUDACachingAllocator.h")):
        pytest.skip("SHIM NOT TESTED: no PyTorch with the headers of c10/cuda")
    runtime = Path(os.environ["HEADROOM_BINARY"]).resolve().parents[1] / "runtime"
    library, driver = runtime / "libheadroom_torch.so", runtime / "libheadroom_fake_cuda.so"
    if not (library.exists() and driver.exists()):
        pytest.skip(f"SHIM NOT TESTED: {library.name} or {driver.name} is not built")
    try:
        compiler = builder.find_compiler(os.environ)
    except builder.BuildFailed as reason:
        pytest.skip(f"SHIM NOT TESTED: {reason}")
    cuda = next((folders for folder in builder._cuda_folders(os.environ)
                 if builder.cuda_version(folder) and (folders := builder._with_crt(folder))), None)
    if cuda is None:
        pytest.skip("SHIM NOT TESTED: CUDA's headers are not here")
    import torch as module
    return SimpleNamespace(torch=shim.of_module(module), compiler=compiler, cuda=cuda,
                           runtime=runtime, library=library, driver=driver)


def make(here, folder, flags):
    """The stand-in, the shim and the program, compiled with these flags."""
    lib = os.path.join(here.torch.folder, "lib")
    common = [*here.compiler, "-std=c++20", "-O1", *flags, "-Wall", "-Wextra", "-Werror",
              f"-I{ROOT}/tests/shim/include", f"-I{ROOT}/tests/shim", f"-I{ROOT}/src",
              "-isystem", os.path.join(here.torch.folder, "include"),
              *[f"-isystem{folder}" for folder in here.cuda]]
    compiled([*common, "-fPIC", "-shared", ROOT / "tests/shim/stand_in.cpp", "-o",
              folder / "libc10_cuda.so", "-Wl,-soname,libc10_cuda.so", f"-L{lib}", "-lc10",
              f"-L{here.runtime}", "-lheadroom_fake_cuda", f"-Wl,-rpath,{here.runtime}:{lib}"])
    compiled([*common, ROOT / "tests/shim/shim_test.cpp", "-o", folder / "shim_test",
              f"-L{folder}", "-lc10_cuda", f"-L{lib}", "-lc10", f"-L{here.runtime}",
              "-lheadroom_fake_cuda", f"-Wl,-rpath,{folder}:{here.runtime}:{lib}", "-pthread",
              "-ldl"])
    parts = parts_of(here, folder, flags)
    environment = {"HEADROOM_CACHE": str(folder / "cache")}
    built = builder.build(here.torch, environment, parts)
    return SimpleNamespace(folder=folder, built=built, parts=parts, environment=environment)


def parts_of(here, folder, flags=(), includes=()):
    return builder.Parts(here.compiler, here.cuda, str(folder),
                         (*includes, str(ROOT / "tests/shim/include")),
                         ("-Wall", "-Wextra", "-Werror", "-Wsuggest-override", *flags))


@pytest.fixture(scope="session")
def plain(here, tmp_path_factory):
    return make(here, tmp_path_factory.mktemp("shim"), ())


@pytest.fixture(scope="session")
def sanitized(here, tmp_path_factory):
    try:
        subprocess.run([*here.compiler, "-fsanitize=address,undefined", "-x", "c++", "-", "-o",
                        os.devnull], input="int main() {}", text=True, check=True,
                       capture_output=True)
    except subprocess.CalledProcessError:
        pytest.skip("SHIM NOT TESTED WITH SANITIZERS: the compiler has none")
    return make(here, tmp_path_factory.mktemp("sanitized"), SANITIZED)


def hold(here, made, case):
    done = subprocess.run([made.folder / "shim_test", case, here.library, made.built.path,
                           made.built.stamp, here.driver], capture_output=True, text=True,
                          timeout=300, check=False,
                          env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0",
                               "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"})
    assert (done.returncode, done.stdout) == (0, "held\n"), done.stderr[-3000:]


@pytest.mark.parametrize("case", CASES)
def test_through_pytorchs_class(here, plain, case):
    hold(here, plain, case)


def test_every_case_is_run(plain):
    done = subprocess.run([plain.folder / "shim_test", "--list"], capture_output=True, text=True,
                          check=True)
    assert sorted(done.stdout.split()) == sorted(CASES)


@pytest.mark.full  # compiled twice more, for minutes
@pytest.mark.parametrize("case", CASES)
def test_with_sanitizers(here, sanitized, case):
    hold(here, sanitized, case)


# Building.

def test_it_is_built_once_for_one_pytorch_and_one_source(here, plain):
    again = builder.build(here.torch, plain.environment, plain.parts)
    assert again.path == plain.built.path and plain.built.seconds > 0 == again.seconds
    told = json.loads((Path(again.path).parent / "stamp.json").read_text())
    assert told["schema"] == "headroom.run.shim/1" and here.torch.git in told["stamp"]
    assert sorted(entry.name for entry in Path(again.path).parent.iterdir()) == [
        "headroom_shim.so", "stamp.json"]
    # One commit is built for several versions of CUDA, and for both forms of std::string.
    for name in ("version", "git", "cuda", "abi"):
        other = here.torch._replace(**{name: getattr(here.torch, name) + "1"})
        assert shim.folder_for(other, plain.environment) != str(Path(again.path).parent)
        assert shim.stamp_of(other) != again.stamp


def test_it_is_found_for_the_pytorch_it_was_built_for_alone(here, plain):
    assert shim.find(here.torch, plain.environment) == plain.built.path
    assert shim.find(shim.installed_torch(), plain.environment) == plain.built.path
    for other in ({"git": "0" * 40}, {"cuda": "12.1"}, {"abi": "0"}):
        assert shim.find(here.torch._replace(**other), plain.environment) == ""
    for word in ("off", "0", "OFF"):
        assert shim.find(here.torch, {**plain.environment, "HEADROOM_RUN_SHIM": word}) == ""
    assert shim.find(None, plain.environment) == shim.find(here.torch, {}) == ""


def test_one_that_others_may_write_is_not_loaded(here, plain):
    folder = Path(plain.built.path).parent
    for path in (folder, Path(plain.built.path)):
        path.chmod(0o722)
        assert shim.find(here.torch, plain.environment) == ""
        with pytest.raises(shim.ShimUnavailable, match="another user could have written it"):
            shim.exchange(None, None, plain.built.path)  # it may have changed since it was found
        path.chmod(0o700)
    assert shim.find(here.torch, plain.environment) == plain.built.path


def test_without_its_source_there_is_none_and_the_run_goes_on(here, plain, tmp_path, monkeypatch):
    monkeypatch.setattr(shim, "include_folder", lambda: str(tmp_path))
    assert shim.find(here.torch, plain.environment) == ""
    with pytest.raises(builder.BuildFailed, match="abi.h cannot be read"):
        builder.build(here.torch, plain.environment, plain.parts)


@pytest.mark.parametrize("part", ["library", "folder"])
def test_a_link_is_not_followed(here, plain, tmp_path, part):
    environment = {"HEADROOM_CACHE": str(tmp_path)}
    folder = Path(shim.folder_for(here.torch, environment))
    folder.parent.mkdir(mode=0o700)
    if part == "folder":
        folder.symlink_to(Path(plain.built.path).parent)
    else:
        folder.mkdir(mode=0o700)
        (folder / shim.NAME).symlink_to(plain.built.path)
    assert shim.find(here.torch, environment) == ""
    with pytest.raises(shim.ShimUnavailable, match="cannot be loaded"):
        shim.exchange(None, None, str(folder / shim.NAME))


def test_no_header_of_ours_hides_one_of_the_system(tmp_path):
    """Where it is installed its folder is on the compiler's path, before the system's own."""
    ours = {path.name for path in Path(shim.HERE).glob("*.h")}
    assert "allocator.h" in ours
    for name in sorted(ours):
        (tmp_path / "a.cpp").write_text(f"#include <{name}>\n")
        done = subprocess.run(["c++", "-fsyntax-only", str(tmp_path / "a.cpp")], capture_output=True, check=False)
        assert done.returncode != 0, f"the system has a header {name}"


def changed_header(here, folder, old, new, name="c10/cuda/CUDACachingAllocator.h"):
    """The installed PyTorch's header of the class, with a change in it; first on the path."""
    text = Path(here.torch.folder, "include", name).read_text()
    assert text.count(old) == 1
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text(text.replace(old, new))
    return str(folder)


@pytest.mark.parametrize("old, new", [
    # Another PyTorch might ask more of an allocator, ask it otherwise, or ask it no longer.
    ("  virtual void enable(bool value) = 0;",
     "  virtual void enable(bool value) = 0;\n  virtual void more(int) = 0;"),
    ("  virtual void* raw_alloc(size_t nbytes) = 0;", "  virtual void* raw_alloc(int nbytes) = 0;"),
    ("  virtual void popCompileContext() {}", ""),
])
def test_another_class_fails_when_it_is_compiled(here, plain, tmp_path, old, new):
    parts = parts_of(here, plain.folder, (), [changed_header(here, tmp_path / "inc", old, new)])
    environment = {"HEADROOM_CACHE": str(tmp_path / "cache")}
    with pytest.raises(builder.BuildFailed, match="may not be the one that this version"):
        builder.build(here.torch, environment, parts)
    assert shim.find(here.torch, environment) == ""


def test_a_later_pytorch_is_compiled_for_only_where_its_user_takes_the_risk(here, plain, tmp_path):
    version = "torch/headeronly/version.h"
    minor = here.torch.version.split(".")[1]
    folder = changed_header(here, tmp_path / "inc", f"#define TORCH_VERSION_MINOR {minor}",
                            "#define TORCH_VERSION_MINOR 99", version)
    # A new question that has an answer: no compiler minds.
    changed_header(here, tmp_path / "inc", "  virtual void enable(bool value) = 0;",
                   "  virtual void enable(bool value) = 0;\n  virtual void more(int) {}")
    parts = parts_of(here, plain.folder, ("-Wno-unused-parameter",), [folder])
    other = here.torch._replace(version="2.99.0+cu130")
    environment = {"HEADROOM_CACHE": str(tmp_path / "cache")}
    with pytest.raises(builder.BuildFailed, match="tried with PyTorch 2.11 to 2.13 alone.*your own risk"):
        builder.build(other, environment, parts)
    assert shim.find(other, environment) == ""
    environment["HEADROOM_SHIM_ANY_TORCH"] = "1"
    assert builder.build(other, environment, parts).seconds > 0


def test_headers_of_another_version_are_refused(here, plain, tmp_path):
    other = here.torch._replace(version="2.99.0+cu130")
    with pytest.raises(builder.BuildFailed, match="of another PyTorch"):
        builder.build(other, {"HEADROOM_CACHE": str(tmp_path)}, plain.parts)


def test_what_is_missing_is_named_with_how_to_get_it(here, tmp_path, monkeypatch):
    with pytest.raises(builder.BuildFailed, match="built without CUDA"):
        builder.parts_for(here.torch._replace(cuda=""), os.environ)
    with pytest.raises(builder.BuildFailed, match=r"no C\+\+ compiler \(no-such\).*g\+\+ 11"):
        builder.parts_for(here.torch._replace(cuda="12.6"), {**os.environ, "CXX": "no-such"})
    folder, beside = tmp_path / "nvidia/cuda_runtime/include", tmp_path / "nvidia/nvcc/include"
    folder.mkdir(parents=True)
    (folder / "cuda_runtime_api.h").write_text("#define CUDART_VERSION  12080\n")
    monkeypatch.setattr(builder, "_cuda_folders", lambda _: [str(folder)])
    with pytest.raises(builder.BuildFailed, match=r"CUDA 13's headers.*is of CUDA 12\.8.*-crt==13"):
        builder.parts_for(here.torch._replace(cuda="13.0"), os.environ)
    with pytest.raises(builder.BuildFailed, match=r"lacks crt/host_config.h\).*-nvcc-cu12"):
        builder.find_cuda("12.6", os.environ)
    (beside / "crt").mkdir(parents=True)
    (beside / "crt/host_config.h").touch()
    assert builder.find_cuda("12.6", os.environ) == (str(folder), str(beside))
    with pytest.raises(builder.BuildFailed, match="set HOME or HEADROOM_CACHE"):
        builder.build(here.torch, {}, parts_of(here, tmp_path))


def test_build_shim_says_why_it_cannot(here, tmp_path):
    if here.torch.cuda:
        pytest.skip("this PyTorch has CUDA: there is nothing to refuse")
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "run", "--build-shim", "--json", "--",
                           sys.executable], capture_output=True, text=True, check=False,
                          env={**os.environ, "HEADROOM_CACHE": str(tmp_path)})
    assert done.returncode == 4 and "built without CUDA" in done.stderr
    assert json.loads(done.stdout)["built"] is False
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "run", "--build-shim", "--",
                           str(tmp_path / "python")], capture_output=True, text=True, check=False)
    assert done.returncode == 127 and "cannot be run" in done.stderr
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "run", "--build-shim", "--", "false"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "exit code 1, and the shim was not built" in done.stderr


# Under `headroom run`.

PRELUDE = """
import ctypes, json, os, sys
import torch
MIB = 1 << 20
alloc, delete = (torch._C._cuda_cudaCachingAllocator_raw_alloc,
                 torch._C._cuda_cudaCachingAllocator_raw_delete)
"""


@pytest.fixture
def run(here, plain, tmp_path):
    def go(text, *flags, code=0, environment=None):
        (tmp_path / "train.py").write_text(PRELUDE + textwrap.dedent(text))
        answer = tmp_path / "answer.json"
        answer.unlink(missing_ok=True)
        done = subprocess.run(
            [os.environ["HEADROOM_BINARY"], "run", "--json", "-o", answer, *flags, "--",
             sys.executable, "train.py"], capture_output=True, text=True, timeout=180,
            cwd=tmp_path, stdin=subprocess.DEVNULL, check=False,
            env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(HERE / "stand_in"),
                 "STAND_IN_C10_CUDA": str(plain.folder / "libc10_cuda.so"),
                 "HEADROOM_LIBRARY": str(here.library), "HEADROOM_CUDA_DRIVER": str(here.driver),
                 "HEADROOM_FAKE_CUDA": "devices=1,memory_mib=64",
                 "PYTHONDONTWRITEBYTECODE": "1", **plain.environment, **(environment or {})})
        assert done.returncode == code, done.stderr
        done.processes = json.loads(answer.read_text())["processes"] if answer.exists() else []
        return done
    return go


def test_a_run_uses_it(run):
    done = run("""
        assert torch.cuda.get_allocator_backend() == "headroom"
        torch.cuda.init()
        torch.backends.cudnn.benchmark = True  # no need to refuse it, nor to keep it off
        assert torch.backends.cudnn.benchmark is True
        mine = alloc(3 * MIB, 0)
        assert not torch._C._stand_in_native_owns(mine)
        torch._C._stand_in_pool(0, 1)  # with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        pooled = alloc(2 * MIB, 0)
        torch._C._stand_in_pool(0, 0)
        assert torch._C._stand_in_native_owns(pooled)
        assert torch.cuda.memory_allocated() == 5 * MIB
        delete(mine)
        delete(pooled)
        assert torch.cuda.memory_allocated() == 0 and torch.cuda.max_memory_allocated() == 5 * MIB
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == 0
        try:
            alloc(65 * MIB, 0)
        except torch.OutOfMemoryError as error:
            assert str(error).startswith("CUDA out of memory. Tried to allocate 65.00 MiB")
            print("held")
    """)
    assert done.stdout == "held\n"
    process, = done.processes
    device, = process["devices"]
    # The peak of both, though the program had reset it.
    assert device["peak_allocated_bytes"] == 5 << 20
    assert process["outcome"] == "served" and process["notes"] == []


def test_the_profiler_shows_device_memory(run):
    done = run("""
        torch.cuda.init()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                    profile_memory=True) as profiler:
            block = alloc(3 * MIB, 0)
            delete(block)
        profiler.export_chrome_trace("trace.json")
        events = [event["args"] for event in json.load(open("trace.json"))["traceEvents"]
                  if event.get("name") == "[memory]" and event["args"]["Device Type"] == 1]
        print([(event["Bytes"], event["Total Allocated"]) for event in events])
    """)
    assert done.stdout == f"[({3 << 20}, {3 << 20}), ({-(3 << 20)}, 0)]\n"
    assert "shows no device memory" not in done.stderr


def test_devices_that_do_not_reach_each_other_have_pages_with_it(run):
    """Its copies name both devices; those of PyTorch's C interface do not."""
    script = """
        torch.cuda.init()
        torch._C._cuda_setDevice(0)
        assert alloc(3 * MIB, 0)
    """
    environment = {"HEADROOM_FAKE_CUDA": "devices=2,memory_mib=64,peers=0"}
    process, = run(script, environment=environment).processes
    assert process["notes"] == []
    process, = run(script, "--no-shim", environment=environment).processes
    note, = process["notes"]
    assert "no mapped pages: device 1 does not reach its memory" in note and "shim" in note


@pytest.mark.parametrize("flags, environment", [
    (["--no-shim"], {}), ([], {"HEADROOM_RUN_SHIM": "off"}),
    ([], {"HEADROOM_CACHE": f"{__file__}/no-folder"}),  # which root cannot make either
])
def test_without_it_all_is_as_before(run, flags, environment):
    script = """
        torch.cuda.init()
        torch.backends.cudnn.benchmark = True
        print(torch.cuda.get_allocator_backend(), torch.backends.cudnn.benchmark)
    """
    refused = run(script, *flags, environment=environment, code=125)
    assert "--accept cudnn-benchmark" in refused.stderr and "--build-shim" in refused.stderr
    done = run(script, *flags, "--accept", "all", environment=environment)
    assert done.stdout == "pluggable False\n"


def test_one_that_was_compiled_for_another_is_told_and_left_alone(run, here, plain, tmp_path):
    other = here.torch._replace(git="f" * 40)
    parts = parts_of(here, plain.folder)
    environment = {"HEADROOM_CACHE": str(tmp_path / "other")}
    built = Path(builder.build(other, environment, parts).path)
    place = Path(shim.folder_for(here.torch, environment))
    built.parent.rename(place)
    done = run("torch.cuda.init()\nprint(torch.cuda.get_allocator_backend(), alloc(MIB, 0) != 0)\n",
               environment=environment)
    assert done.stdout == "pluggable True\n"
    note, = [note for note in done.processes[0]["notes"] if "shim" in note]
    assert "the shim is not used: it was compiled for torch" in note and "f" * 40 in note
    # Nor is a script let go on that was let start because a shim is there.
    done = run("torch.cuda.init()\ntorch.backends.cudnn.benchmark = True\n"
               "print(torch.cuda.get_allocator_backend(), torch.backends.cudnn.benchmark)\n",
               environment=environment)
    assert done.stdout == "native True\n" and done.processes[0]["outcome"] == "refused"
    assert "train.py:8: cudnn.benchmark" in done.processes[0]["reason"]
    (place / shim.NAME).write_bytes(b"not a library")
    done = run("torch.cuda.init()\nprint(torch.cuda.get_allocator_backend())\n",
               environment=environment)
    assert done.stdout == "pluggable\n"
    assert any("cannot be loaded" in note for note in done.processes[0]["notes"])


def test_what_it_does_not_serve_is_needed_still(plain, tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("pool = torch.cuda.MemPool()\n")
    monkeypatch.setattr(sys, "argv", [str(script)])
    # The one that is installed here has no CUDA, and then nothing is needed.
    assert needs.look([], {}) == []
    monkeypatch.setattr(shim, "torch_has_no_gpu", lambda: False)
    assert [need.word for need in needs.look([], {})] == ["mempool"]
    assert needs.look([], plain.environment) == []
    environment = {**plain.environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
                   "TORCHINDUCTOR_CUDAGRAPHS": "1"}
    assert [need.place for need in needs.look([], environment)] == ["PYTORCH_NO_CUDA_MEMORY_CACHING"]

"""The golden runner: it must fail when the output changes, and only then."""

import subprocess
import sys

import pytest


@pytest.fixture
def program(tmp_path):
    """A stand-in for the binary: prints what the file `say` in its folder holds."""
    path = tmp_path / "program"
    path.write_text("#!/bin/sh\ncat say\necho x > written\n[ \"$1\" = fail ] && exit 3\nexit 0\n")
    path.chmod(0o755)
    return path


def case(tmp_path, **files):
    folder = tmp_path / "case"
    for name, text in {"cmd": "ok\n", **files}.items():
        path = folder / name.replace("__", "/").replace("expected_", "expected.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def run(repo, program, folder, *flags):
    command = [sys.executable, repo / "tests/golden/run.py", "--binary", program, *flags, folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("files, passes", [
    ({"say": "one\n", "expected_stdout": "one\n"}, True),
    ({"say": "two\n", "expected_stdout": "one\n"}, False),
    ({"say": "one\n"}, False),  # nothing expected: a case must expect something
    ({"say": "headroom 9.8.7\n", "expected_stdout": "headroom <masked>\n"}, True),
    ({"say": "took 17 s\n", "mask": r"\d+ s$", "expected_stdout": "took <masked>\n"}, True),
    ({"say": '{"b": 1.0, "a": 2}', "expected_json": '{"a": 2, "b": 1.0000000000001}'}, True),
    ({"say": '{"a": 3}', "expected_json": '{"a": 2}'}, False),
    ({"say": '{"a": 2, "c": 0}', "expected_json": '{"a": 2}'}, False),
    ({"say": '{"a": 2.0}', "expected_json": '{"a": 2}'}, False),
    ({"say": '{"version": "1"}', "expected_json": '{"version": "<masked>"}'}, True),
    ({"say": "not json", "expected_json": "{}"}, False),
    ({"cmd": "fail\n", "say": "", "expected_stdout": ""}, False),
    ({"cmd": "fail\n", "say": "", "expected_stdout": "", "exit": "3\n"}, True),
    ({"say": "", "expected_stdout": "", "expected__written": "x\n"}, True),
    ({"say": "", "expected_stdout": "", "expected__written": "y\n"}, False),
    ({"say": "", "expected_stdout": "", "expected__absent": "y\n"}, False),
])
def test_passes_only_when_what_is_expected_came(repo, program, tmp_path, files, passes):
    done = run(repo, program, case(tmp_path, **files))
    assert (done.returncode == 0) == passes, done.stdout


def test_update_writes_what_then_passes(repo, program, tmp_path):
    folder = case(tmp_path, cmd="fail\n", say="headroom 1.2.3\n")
    assert run(repo, program, folder, "--update").returncode == 0
    assert (folder / "expected.stdout").read_text() == "headroom <masked>\n"
    assert (folder / "exit").read_text() == "3\n"
    assert run(repo, program, folder).returncode == 0


def test_no_case_is_a_failure(repo, program, tmp_path):
    done = run(repo, program, tmp_path / "nowhere")
    assert done.returncode != 0

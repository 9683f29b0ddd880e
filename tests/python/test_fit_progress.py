"""What a search of `fit` shows while it goes on: a bar on a terminal, and nothing anywhere else."""

import os
import pty
import subprocess

import pytest

# Some seconds each, so that half a second of patience is over in any build.
GPUS = ["meta-llama/Llama-3.1-8B", "--device", "h100-sxm-80gb", "--gpus", "16", "--nodes", "2", "--link", "ib-400g",
        "--global-batch", "64", "--seq", "4096", "--checkpointing", "full"]
SMALLEST = ["meta-llama/Llama-3.1-8B", "--seq", "4096", "--checkpointing", "full", "--smallest"]

MEGATRON = ["meta-llama/Llama-3.1-70B", "--engine", "megatron", "--device", "h100-sxm-80gb", "--gpus", "64",
            "--global-batch", "256", "--seq", "8192"]


def on_a_terminal(*words):
    """What stderr shows there; stdout is a pipe."""
    ours, theirs = pty.openpty()
    command = [os.environ["HEADROOM_BINARY"], "fit", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=os.environ | {"TERM": "xterm"}) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the process has closed its end
                break
            if not part:
                break
            seen += part
    os.close(ours)
    assert process.returncode in (0, 1), seen
    return seen.decode()


@pytest.mark.parametrize("words", [GPUS, SMALLEST, MEGATRON], ids=["gpus", "smallest", "megatron"])
def test_a_terminal_shows_how_far_it_is(words):
    shown = on_a_terminal(*words)
    assert "searching" in shown and "%" in shown and "predicted" in shown
    assert shown.endswith("\r\x1b[K")  # the line is wiped


def test_a_pipe_and_quiet_show_nothing():
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "fit", *GPUS], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1)
    assert done.stderr == ""
    assert on_a_terminal(*GPUS, "--quiet") == ""

"""Flags of one of bench's questions that are given to another: refused before anything is read, measured or written."""

import os
import re
import subprocess

import pytest

# What takes a file is given one that is not there: looked at first, it would be another error.
WRONG = [
    (["device"], ["--predict"]),
    (["device"], ["--models", "foo"]),
    (["device"], ["--counters", "3=x"]),
    (["device"], ["--html", "page.html"]),
    (["device", "--results", "f.json"], ["--seed", "3"]),
    (["device", "--results", "f.json"], ["--keep", "kk"]),
    (["device", "--results", "f.json"], ["--context", "5"]),
    (["decode", "gpt2"], ["--points", "nope.csv"]),
    (["decode", "gpt2"], ["--fuse", "bad"]),
    (["decode", "gpt2", "--predict"], ["--seed", "3"]),
    (["decode", "gpt2", "--predict"], ["--decode"]),
    (["decode", "gpt2", "--predict"], ["--composed"]),
    (["decode", "gpt2", "--predict"], ["--save-calibration", "zz"]),
    (["decode", "gpt2", "--predict"], ["--quantize", "zzz"]),
    (["decode", "gpt2", "--predict"], ["--results", "r.jsonl"]),
    (["decode", "gpt2", "--results", "r.jsonl"], ["--quick"]),
    (["nongemm"], ["--predict"]),
    (["nongemm"], ["--layers", "3"]),
    (["nongemm", "--results", "r.jsonl"], ["--batches", "1"]),
    (["merge", "a", "b"], ["--on", "cpu"]),
]
GENERAL = {"help", "json", "output", "quiet", "no-color"}


def bench(binary, words, cwd):
    return subprocess.run([binary, "bench", *words], cwd=cwd, capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "HEADROOM_PYTHON": "/nowhere/python"})


@pytest.mark.parametrize("question,flag", WRONG, ids=lambda words: " ".join(words))
def test_a_flag_of_another_question_is_named(headroom_binary, tmp_path, question, flag):
    done = bench(headroom_binary, [*question, *flag], tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"error: {flag[0]} is for bench " in done.stderr, done.stderr
    assert f"; this is bench {question[0]}" in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_flag_belongs_to_something(headroom_binary, tmp_path):
    """bench merge takes none but --html and the general ones: of any other it is said what it is for."""
    listed = subprocess.run([headroom_binary, "help", "bench"], capture_output=True, text=True, check=True).stdout
    flags = re.findall(r"^ +(?:-\w, )?--([a-z-]+)( \S+)?", listed, re.MULTILINE)
    assert len(flags) > 20
    for name, value in flags:
        if name in GENERAL | {"html"}:
            continue
        done = bench(headroom_binary, ["merge", "a", "b", f"--{name}", *(["1"] if value else [])], tmp_path)
        assert re.search(rf"--{name} is for bench (device|decode|nongemm)", done.stderr), name + done.stderr


@pytest.mark.parametrize("words,message", [
    (["decode", "gpt2", "opt"], "one word too many: 'opt'"),
    (["decode", "gpt2", "--predict", "--device", "h200", "--batches", ""], "--batches names no batch"),
    (["decode"], "of which model?")])
def test_words_that_make_no_question(headroom_binary, tmp_path, words, message):
    done = bench(headroom_binary, words, tmp_path)
    assert done.returncode == 2 and message in done.stderr, done.stderr

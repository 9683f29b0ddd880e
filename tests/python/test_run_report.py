"""What a process under `headroom run` tells, and when: whatever goes wrong, the program goes on."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import pytest
from headroom.run import figures, library, notes, report, session

TORCH = SimpleNamespace(__version__="2.13.0+cu130")
DEVICE = {"device": 0}


@pytest.fixture
def make(tmp_path, monkeypatch):
    """A report whose thread tells often, and which waits for nobody for long."""
    monkeypatch.setattr(report, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(report, "SECONDS_BETWEEN", 0.05)

    def go(figures_of=lambda asks: [DEVICE], look=lambda: None):
        return report.Report(TORCH, str(tmp_path), figures_of, look)
    return go


@pytest.fixture
def told(tmp_path):
    def read():
        files = list(tmp_path.glob("*.json"))
        return json.loads(files[0].read_text()) if files else None
    return read


def until(is_so):
    """Waits for it, and not for ever."""
    for _ in range(6000):
        if is_so():
            return True
        time.sleep(0.005)
    return False


def test_no_more_threads_is_a_note(make, told, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    ours = make()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    ours.write()
    ours.keep_up_to_date()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    ours.write_last()
    assert told()["ended"] is True and told()["devices"] == [DEVICE]
    assert any("can't start new thread" in note for note in told()["notes"])


@pytest.mark.parametrize("part", ["figures", "look", "words"])
def test_what_is_raised_in_the_thread_does_not_end_it(make, told, part):
    now = SimpleNamespace(fails=True, times=0)

    def fail(*_):
        now.times += 1
        if now.fails:
            raise ValueError("broken")
        return [DEVICE]
    ours = make(**{"figures_of": fail} if part == "figures" else
                {"look": fail} if part == "look" else {})
    if part == "words":  # what json has no word for
        ours.reason = object()
    ours.keep_up_to_date()
    if part == "words":
        assert until(lambda: any("no report" in note for note in ours.notes.words()))
        ours.reason = ""
    else:
        assert until(lambda: now.times > 3)
    now.fails = False
    assert until(lambda: told() is not None and told()["devices"] == [DEVICE])
    ours.write_last()
    assert told()["ended"] is True
    assert not [note for note in told()["notes"] if "broken" in note]


def test_a_device_that_hangs_holds_up_no_end_and_comes_too_late(make, told):
    now = SimpleNamespace(hangs=False, is_in=threading.Event(), go_on=threading.Event())

    def answer(asks):
        if now.hangs:
            now.is_in.set()
            assert threading.current_thread().name == "headroom-report", "it was asked again"
            now.go_on.wait(60)
            return [{"device": 0, "is": "late"}]
        return [DEVICE]
    ours = make(answer)
    ours.keep_up_to_date()
    assert until(lambda: told() is not None)
    thread, = [t for t in threading.enumerate() if t.name == "headroom-report"]
    now.hangs = True
    assert now.is_in.wait(60)
    ours.write_last()
    last = told()
    assert last["ended"] is True and last["devices"] == [DEVICE]
    assert any("did not answer" in note for note in last["notes"])
    now.go_on.set()
    thread.join(60)
    assert not thread.is_alive() and told() == last


def test_the_end_asks_once_more_by_the_thread(make, told):
    asked = []
    ours = make(lambda asks: asked.append((asks, threading.current_thread().name)) or [DEVICE])
    ours.write()
    ours.keep_up_to_date()
    ours.write_last()
    # By the program's own thread at what it does, by the other one only once all is over.
    assert asked[0] == (True, "MainThread") and asked[-1] == (True, "headroom-report")
    assert {asks for asks, name in asked[1:-1]} <= {False}


SIGNALLED = """
    import os, signal, sys, tempfile, threading, time
    from types import SimpleNamespace
    from headroom.run import report
    ours = report.Report(SimpleNamespace(__version__="2"), tempfile.mkdtemp(), lambda asks: [],
                         lambda: None)
    ours.keep_up_to_date()
    assert threading.active_count() == 2
    # A program that waits for its signals has them blocked in all its threads.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.1)
    print(signal.sigtimedwait({signal.SIGUSR1}, 10).si_signo == signal.SIGUSR1)
"""


def test_the_programs_signals_do_not_come_to_the_thread(repo):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(SIGNALLED)], text=True,
                          capture_output=True, timeout=60, check=False,
                          env={**os.environ, "PYTHONPATH": str(repo / "python")})
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_note_about_one_thing_is_one(monkeypatch):
    said = {"devices": [{"device": 0, "recording_dropped_events": 1,
                         "plan": {"switches": 1, "switch_ms": 1.0}}]}
    library = SimpleNamespace(report=lambda: said)
    ours = notes.Notes()
    for count in range(1, 100):
        said["devices"][0]["recording_dropped_events"] = count
        said["devices"][0]["plan"]["switch_ms"] = float(count)
        for about, words in figures.notes_of_library(library):
            ours.say(about, words)
    dropped, switch = ours.words()
    assert "99 events are missing" in dropped and "took 99.0 ms" in switch
    # What the library forgets is not forgotten: why a plan was refused, once another one serves.
    said["devices"][0]["plan"] = {"refused": "damaged"}
    for about, words in figures.notes_of_library(library):
        ours.say(about, words)
    said["devices"][0]["plan"] = {}
    assert any("damaged" in words for words in ours.words())
    for number in range(100):
        ours.append(f"note {number}")
    assert len(ours.words()) == notes.MOST


def test_what_lies_outside_is_of_one_moment(tmp_path):
    """Of a run that is killed, by figures that its thread told: it does not ask the driver."""
    now = SimpleNamespace(free=70, reserved=20)
    stats = lambda device: {"allocated_bytes": {"all": {"peak": 1}}, "reserved_bytes": {
        "all": {"peak": now.reserved, "current": now.reserved}}}
    torch = SimpleNamespace(
        __version__="2", _C=SimpleNamespace(_cuda_memoryStats=stats),
        cuda=SimpleNamespace(device_count=lambda: 1, is_initialized=lambda: True,
                             mem_get_info=lambda device: (now.free, 100)))
    ours = session.Session(torch, {"HEADROOM_RUN_MODE": "off"})
    ours.is_used = True
    assert ours.figures(False)[0]["outside_bytes"] is None  # never asked
    assert ours.figures(True)[0]["outside_bytes"] == 10
    now.free, now.reserved = 60, 30
    device, = ours.figures(False)
    assert (device["outside_bytes"], device["peak_reserved_bytes"]) == (10, 30)


@pytest.mark.parametrize("texts, calls", [
    ([b"{}"], 1), ([b"x" * (1 << 16)], 2), ([b"x" * (1 << 16), b"y" * (1 << 17)], 3)])
def test_a_text_of_the_library_is_made_once_where_it_is_short(texts, calls):
    made = []

    def function(device, buffer, capacity):
        assert device == 3
        text = texts[min(len(made), len(texts) - 1)]
        made.append(text)
        buffer.value = text[:capacity - 1]
        return len(text)
    assert library.Library._text(function, 3) == texts[-1].decode()
    assert len(made) == calls

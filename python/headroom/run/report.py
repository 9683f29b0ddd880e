"""What a process tells `headroom run`: one JSON file, schema "headroom.run.process/1".

It is written when CUDA is first used, every few seconds from then on by a thread of its own (work
that has no optimizer tells nobody that it goes on), at the first optimizer's step, and at the end;
each time whole, and put in place by a rename. So what a killed process had told is there. Where the
folder is not to be had (another machine, or headroom.enable() without `headroom run`), a line on
stderr at the end takes its place.

1. The program is worth more than its report: nothing here raises, and no signal of the program's
   comes to the thread.
2. A device that hangs holds up no end: at the end the thread asks it, and is waited for for some
   seconds; then the figures are those of before.
3. Nothing is put in place after the last one.
"""

import json
import os
import signal
import socket
import sys
import threading

from headroom.run.notes import Notes
from headroom.run.ranks import rank_and_world

SCHEMA = "headroom.run.process/1"
SECONDS_BETWEEN = 5.0
FIRST_SECONDS = 0.5  # and twice as long each time
GIB = float(1 << 30)
# What a thread does to itself comes to it, blocked or not, and then past the program's handlers.
_OF_A_THREAD = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT,
                signal.SIGSYS, signal.SIGTRAP}


class Report:
    """Of one process. `figures(asks)` gives the devices, and asks them itself if `asks`: where no
    other thread may be capturing a graph. `look()` adds notes. See session.py."""

    def __init__(self, torch, folder, figures, look):
        self._torch = torch
        self._folder = folder
        self._figures = figures
        self._look = look
        self.notes = Notes()
        self.outcome = "nothing"
        self.reason = ""
        self.recordings = []
        self.setting = {}
        self.begin_anew()

    def begin_anew(self):
        """Also in a forked child, which has no thread of its parent's, but any lock it held."""
        self.notes.forget()
        self._devices = []  # as they were last told
        self._telling = threading.Lock()  # from the question to the file, so that none gets older
        self._placing = threading.Lock()  # never held while a device is asked
        self._is_over = False
        self._over = threading.Event()
        self._asked = None  # by the thread, for the last time

    def content(self, ended):
        rank, world = rank_and_world(self._torch)
        return {"schema": SCHEMA, "outcome": self.outcome, "reason": self.reason, "ended": ended,
                "pid": os.getpid(), "host": socket.gethostname(), "rank": rank,
                "world_size": max(world, 1), "torch": str(self._torch.__version__).split("+")[0],
                "devices": self._devices, "recordings": self.recordings,
                "notes": self.notes.words(),
                "setting": {name: str(value) for name, value in self.setting.items()}}

    def write(self):
        """By the program's own threads, at what they do."""
        # A thread that has told nothing in all this time does it yet.
        if self._telling.acquire(timeout=SECONDS_BETWEEN):
            try:
                self._tell(asks=threading.current_thread() is threading.main_thread())
            finally:
                self._telling.release()

    def write_last(self):
        self._over.set()
        self._note()
        if self._asked is None:
            self._ask(asks=True)
        elif not self._asked.wait(SECONDS_BETWEEN):
            self.notes.append("a device did not answer at the end: its figures are of before")
        try:
            content = self.content(ended=True)
            with self._placing:
                self._is_over = True
                if not self._place(content):
                    self._say(content)
        except Exception as error:
            print(f"headroom: no report: {type(error).__name__}: {error}", file=sys.stderr)

    def _tell(self, asks):
        self._note()
        self._ask(asks)
        try:
            content = self.content(ended=False)
            with self._placing:
                if not self._is_over:
                    self._place(content)
            self.notes.take_back("report")
        except Exception as error:
            self.notes.say("report", f"no report: {type(error).__name__}: {error}")

    def _note(self):
        try:
            self._look()
            self.notes.take_back("notes")
        except Exception as error:
            self.notes.say("notes", f"no notes: {type(error).__name__}: {error}")

    def _ask(self, asks):
        try:
            self._devices = self._figures(asks)
            self.notes.take_back("figures")
        except Exception as error:
            self.notes.say("figures", f"no figures: {type(error).__name__}: {error}")

    def _place(self, content):
        """False where there is no place for it."""
        if not self._folder or not os.path.isdir(self._folder):
            return False
        name = f"{content['host'][:64]}-{os.getpid()}".replace("/", "_")
        scratch = os.path.join(self._folder, name + ".part")
        try:
            with open(scratch, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(scratch, os.path.join(self._folder, name + ".json"))
        except OSError:
            pass  # the launcher has gone, or the disk is full
        return True

    def keep_up_to_date(self):
        """Until the end, by a thread. No call of CUDA's runtime is made in it before the end."""
        if not self._folder or not os.path.isdir(self._folder):
            return
        asked = threading.Event()
        thread = threading.Thread(target=self._write_now_and_then, args=(self._over, asked),
                                  daemon=True, name="headroom-report")
        # A thread begins with the signals blocked that its maker has blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OF_A_THREAD)
            thread.start()
            self._asked = asked
        except Exception as error:  # there may be no more threads
            self.notes.append(f"told at the first step and at the end alone: {error}")
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _write_now_and_then(self, over, asked):
        seconds = FIRST_SECONDS
        while not over.wait(seconds):
            seconds = min(2 * seconds, SECONDS_BETWEEN)
            with self._telling:
                if not over.is_set():
                    self._tell(asks=False)
        self._ask(asks=True)  # the program is over: nothing is captured
        asked.set()

    def _say(self, content):
        """The short form of what `headroom run` would print."""
        who = f"process {content['pid']}" if content["rank"] is None else f"rank {content['rank']}"
        if content["reason"]:
            print(f"headroom: {who}: not installed: {content['reason']}", file=sys.stderr)
        for device in content["devices"]:
            reserved = device["peak_reserved_bytes"] / GIB
            allocated = device["peak_allocated_bytes"] / GIB
            print(f"headroom: {who}, cuda:{device['device']}: {reserved:.2f} GiB reserved, "
                  f"{allocated:.2f} GiB allocated at the peak; {device['planned']} of "
                  f"{device['requests']} requests planned", file=sys.stderr)

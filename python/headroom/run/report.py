"""What a process tells `headroom run`: one JSON file, schema "headroom.run.process/1".

It is written when CUDA is first used, every few seconds from then on by a thread of its own (work
that has no optimizer tells nobody that it goes on), at the first optimizer's step, and at the end;
each time whole, and put in place by a rename. So what a killed process had told is there. Where the
folder is not to be had (another machine, or headroom.enable() without `headroom run`), a line on
stderr at the end takes its place.
"""

import json
import os
import socket
import sys
import threading

from headroom.run.ranks import rank_and_world
from headroom.run.statistics import peaks

SCHEMA = "headroom.run.process/1"
SECONDS_BETWEEN = 5.0
FIRST_SECONDS = 0.5  # and twice as long each time
GIB = float(1 << 30)


class Report:
    """Of one process. `figures()` gives the devices, `look()` adds notes; see session.py."""

    def __init__(self, torch, folder, figures, look):
        self._torch = torch
        self._folder = folder
        self._figures = figures
        self._look = look
        self.begin_anew()
        self.outcome = "nothing"
        self.reason = ""
        self.notes = []
        self.recordings = []
        self.setting = {}

    def begin_anew(self):
        """Also in a forked child, which has no thread of its parent's, but any lock it held."""
        self._lock = threading.Lock()
        self._over = threading.Event()

    def content(self, ended):
        rank, world = rank_and_world(self._torch)
        return {"schema": SCHEMA, "outcome": self.outcome, "reason": self.reason, "ended": ended,
                "pid": os.getpid(), "host": socket.gethostname(), "rank": rank,
                "world_size": max(world, 1), "torch": str(self._torch.__version__).split("+")[0],
                "devices": self._figures(), "recordings": self.recordings,
                "notes": self.notes[:32],
                "setting": {name: str(value) for name, value in self.setting.items()}}

    def write(self):
        """True where it is in its place."""
        with self._lock:
            return self._write(ended=False)

    def write_last(self):
        self._over.set()
        # Whoever writes now asks the driver, perhaps, and a device that hangs holds up no end.
        is_ours = self._lock.acquire(timeout=SECONDS_BETWEEN)
        self._write(ended=True)
        if is_ours:
            self._lock.release()

    def _write(self, ended):
        content = self.content(ended)
        if not self._folder or not os.path.isdir(self._folder):
            if ended:
                self._say(content)
            return False
        name = f"{content['host'][:64]}-{os.getpid()}".replace("/", "_")
        scratch = os.path.join(self._folder, name + (".last" if ended else ".part"))
        try:
            with open(scratch, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(scratch, os.path.join(self._folder, name + ".json"))
        except OSError:
            return False  # the launcher has gone, or the disk is full
        return True

    def keep_up_to_date(self):
        """Until the end, by a thread. No call of CUDA's runtime is made in it (session.figures)."""
        if self._folder and os.path.isdir(self._folder):
            threading.Thread(target=self._write_now_and_then, args=(self._over,), daemon=True,
                             name="headroom-report").start()

    def _write_now_and_then(self, over):
        seconds = FIRST_SECONDS
        while not over.wait(seconds):
            seconds = min(2 * seconds, SECONDS_BETWEEN)
            with self._lock:
                if over.is_set():
                    return
                self._look()
                self._write(ended=False)

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


def device_name(torch, device):
    try:
        return torch.cuda._get_device_properties(device).name
    except (AttributeError, RuntimeError, AssertionError):
        return ""


def _seen(torch, statistics, device, has_shim):
    """(peak allocated, peak reserved, reserved) in bytes: with the shim, pools and all."""
    if not has_shim:
        return (statistics.allocated_bytes.peak, statistics.reserved_bytes.peak,
                statistics.reserved_bytes.current)
    stats = torch._C._cuda_memoryStats(device)
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return allocated["peak"], reserved["peak"], reserved["current"]


def figures_of_library(torch, library, iterations, plan_is_kept, has_shim):
    """One entry a device that was used."""
    told = {entry.get("device"): entry for entry in library.report().get("devices", [])}
    entries = []
    for device in range(torch.cuda.device_count()):
        statistics = library.statistics(device)
        if statistics is None:
            continue
        served = statistics.planned_requests + statistics.reused_requests
        served += statistics.fallback_requests
        info = library.memory_info(device)
        allocated, reserved, held = _seen(torch, statistics, device, has_shim)
        plan = told.get(device, {}).get("plan", {})
        entries.append({
            "device": device, "name": device_name(torch, device),
            "memory_bytes": info[1] if info else None,
            "peak_allocated_bytes": peaks.of(device, "allocated_bytes", allocated),
            "peak_reserved_bytes": peaks.of(device, "reserved_bytes", reserved),
            # Of whole iterations only: a plan from a file comes before there were any.
            "reserved_before_bytes": plan.get("peak_reserved_before_bytes") or None
            if plan.get("switches") and not plan.get("began_from_file") else None,
            "reserved_after_bytes": plan.get("peak_reserved_since_bytes") or None
            if plan.get("switches") else None,
            "outside_bytes": max(info[1] - info[0] - held, 0) if info else None,
            "requests": served,
            "planned": statistics.planned_requests, "reused": statistics.reused_requests,
            "fallen_back": statistics.fallback_requests, "iterations": iterations,
            "plan_source": ("kept" if plan_is_kept else "file") if plan.get("from_file") else
            "made" if plan.get("switches") else "",
            "plan_reason": "" if served else plan.get("planner", "")})
    return entries


def notes_of_library(library):
    """What went otherwise than asked, in the library's own words."""
    for entry in library.report().get("devices", []):
        device = f"cuda:{entry.get('device')}"
        plan = entry.get("plan", {})
        if entry.get("recording_reason"):
            yield f"{device}: no recording: {entry['recording_reason']}"
        if entry.get("recording_dropped_events"):
            yield (f"{device}: the recording ends early, as its disk was full: "
                   f"{entry['recording_dropped_events']} events are missing; free some of it, or "
                   "name a folder on another")
        if plan.get("refused") and plan["refused"] != plan.get("planner"):
            yield f"{device}: the plan was refused: {plan['refused']}"
        if entry.get("backing") == "pieces" and entry.get("backing_reason"):
            yield f"{device}: no mapped pages: {entry['backing_reason']}"
        if entry.get("peers_reason"):
            yield f"{device}: its memory is not open to other devices: {entry['peers_reason']}"
        if plan.get("not_kept"):
            yield f"{device}: the next run begins without a plan: {plan['not_kept']}"
        if plan.get("switches"):
            yield (f"{device}: the switch to the plan took {plan.get('switch_ms', 0):.1f} ms, "
                   f"{plan.get('switch_wait_ms', 0):.1f} ms of it waiting for the device")


def figures_of_torch(torch, iterations, memory_info):
    """The same of PyTorch's own allocator, for --off and after a refusal. `memory_info(device)` is
    (free, total), or None where it is not known now."""
    entries = []
    for device in range(torch.cuda.device_count()):
        stats = torch._C._cuda_memoryStats(device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        if not reserved["peak"]:
            continue
        info = memory_info(device)
        entries.append({
            "device": device, "name": device_name(torch, device),
            "memory_bytes": info[1] if info else None,
            "peak_allocated_bytes": peaks.of(device, "allocated_bytes", allocated["peak"]),
            "peak_reserved_bytes": peaks.of(device, "reserved_bytes", reserved["peak"]),
            "outside_bytes": max(info[1] - info[0] - reserved["current"], 0) if info else None,
            "requests": 0,
            "planned": 0, "reused": 0, "fallen_back": 0, "iterations": iterations,
            "plan_source": ""})
    return entries

"""What a process tells `headroom run`: one JSON file, schema "headroom.run.process/1".

It is written when CUDA is first used, now and then at an optimizer's step, and at the end; each time
whole, and put in place by a rename. So what a killed process had told is there. Where the folder is
not to be had (another machine, or headroom.enable() without `headroom run`), a line on stderr at the
end takes its place.
"""

import json
import os
import socket
import sys
import time

from headroom.run.ranks import rank_and_world
from headroom.run.statistics import peaks

SCHEMA = "headroom.run.process/1"
SECONDS_BETWEEN = 5.0
GIB = float(1 << 30)


class Report:
    """Of one process. `figures()` gives the devices; see session.py."""

    def __init__(self, torch, folder, figures):
        self._torch = torch
        self._folder = folder
        self._figures = figures
        self._last = 0.0
        self.outcome = "nothing"
        self.reason = ""
        self.notes = []
        self.recordings = []
        self.setting = {}

    def content(self, ended):
        rank, world = rank_and_world(self._torch)
        return {"schema": SCHEMA, "outcome": self.outcome, "reason": self.reason, "ended": ended,
                "pid": os.getpid(), "host": socket.gethostname(), "rank": rank,
                "world_size": max(world, 1), "torch": str(self._torch.__version__).split("+")[0],
                "devices": self._figures(), "recordings": self.recordings,
                "notes": self.notes[:32],
                "setting": {name: str(value) for name, value in self.setting.items()}}

    def write(self, ended=False):
        """True where it is in its place."""
        self._last = time.monotonic()
        content = self.content(ended)
        if not self._folder or not os.path.isdir(self._folder):
            if ended:
                self._say(content)
            return False
        name = f"{content['host'][:64]}-{os.getpid()}".replace("/", "_")
        scratch = os.path.join(self._folder, name + ".part")
        try:
            with open(scratch, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(scratch, os.path.join(self._folder, name + ".json"))
        except OSError:
            return False  # the launcher has gone, or the disk is full
        return True

    def write_now_and_then(self):
        if time.monotonic() - self._last >= SECONDS_BETWEEN:
            self.write()

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


def figures_of_torch(torch, iterations):
    """The same of PyTorch's own allocator, for --off and after a refusal."""
    entries = []
    for device in range(torch.cuda.device_count()):
        stats = torch._C._cuda_memoryStats(device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        if not reserved["peak"]:
            continue
        free, total = torch.cuda.mem_get_info(device)
        entries.append({
            "device": device, "name": device_name(torch, device), "memory_bytes": total,
            "peak_allocated_bytes": peaks.of(device, "allocated_bytes", allocated["peak"]),
            "peak_reserved_bytes": peaks.of(device, "reserved_bytes", reserved["peak"]),
            "outside_bytes": max(total - free - reserved["current"], 0), "requests": 0,
            "planned": 0, "reused": 0, "fallen_back": 0, "iterations": iterations,
            "plan_source": ""})
    return entries

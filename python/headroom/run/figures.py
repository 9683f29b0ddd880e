"""What a report says of each device, and what the library has to say beside it."""

from headroom.run.statistics import peaks


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
            "plan_reason": "" if served else plan.get("follows") or plan.get("planner", "")})
    return entries


def notes_of_library(library):
    """(what it is about, what went otherwise than asked in the library's own words)."""
    for entry in library.report().get("devices", []):
        device = f"cuda:{entry.get('device')}"
        plan = entry.get("plan", {})
        if entry.get("recording_reason"):
            yield (device, "no recording"), f"{device}: no recording: {entry['recording_reason']}"
        if entry.get("recording_dropped_events"):
            yield (device, "dropped events"), (
                f"{device}: the recording ends early, as its disk was full: "
                f"{entry['recording_dropped_events']} events are missing; free some of it, or "
                "name a folder on another")
        if plan.get("refused") and plan["refused"] != plan.get("planner"):
            yield (device, "refused"), f"{device}: the plan was refused: {plan['refused']}"
        if entry.get("backing") == "pieces" and entry.get("backing_reason"):
            yield (device, "backing"), f"{device}: no mapped pages: {entry['backing_reason']}"
        if entry.get("peers_reason"):
            yield (device, "peers"), (
                f"{device}: its memory is not open to other devices: {entry['peers_reason']}")
        if plan.get("not_kept"):
            yield (device, "not kept"), (
                f"{device}: the next run begins without a plan: {plan['not_kept']}")
        if plan.get("switches"):
            yield (device, "switch"), (
                f"{device}: the switch to the plan took {plan.get('switch_ms', 0):.1f} ms, "
                f"{plan.get('switch_wait_ms', 0):.1f} ms of it waiting for the device")


def figures_of_torch(torch, iterations, surroundings):
    """The same of PyTorch's own allocator, for --off and after a refusal. `surroundings(device,
    reserved bytes)` is (total bytes, bytes outside), or (None, None) where they are not known."""
    entries = []
    for device in range(torch.cuda.device_count()):
        stats = torch._C._cuda_memoryStats(device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        if not reserved["peak"]:
            continue
        total, outside = surroundings(device, reserved["current"])
        entries.append({
            "device": device, "name": device_name(torch, device), "memory_bytes": total,
            "peak_allocated_bytes": peaks.of(device, "allocated_bytes", allocated["peak"]),
            "peak_reserved_bytes": peaks.of(device, "reserved_bytes", reserved["peak"]),
            "outside_bytes": outside,
            "requests": 0,
            "planned": 0, "reused": 0, "fallen_back": 0, "iterations": iterations,
            "plan_source": ""})
    return entries

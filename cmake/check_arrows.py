#!/usr/bin/env python3
"""Fails, with file:line, on an #include that runs against the arrows of the house.

FLOORS below is the one table of who may include whom; docs/architecture.md draws the same picture,
and tests/python/test_check_arrows.py holds the two against each other.

Usage: check_arrows.py [REPO]
"""

import re
import sys
from pathlib import Path

QUESTIONS = ("fit", "pack", "run", "ops", "bench", "batch")

# Lowest first. A room may include its own headers and those of the floors below its own.
FLOORS = (
    ("base",),
    ("text", "operator", "memory"),
    ("device", "model", "formats", "engines"),
    ("step",),
    ("timing",),
    ("serving",),
    QUESTIONS,
    ("study",),
    ("report",),
    ("api", "cli"),
)

# Rooms that live beside the floors: the allocator inside PyTorch.
ASIDE = {"runtime": {"base", "memory"}}

# These may need nothing but the C++ standard library and the system.
NO_THIRD_PARTY = {"base", "memory", "runtime"}
SYSTEM_FOLDERS = ("sys/", "linux/", "netinet/", "arpa/")
THIRD_PARTY_WITHOUT_FOLDER = {"zlib.h", "isa-l.h", "sqlite3.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
SOURCES = {".h", ".hpp", ".c", ".cpp", ".inc"}


def allowed_rooms():
    """Room -> the set of rooms it may include, itself among them."""
    allowed, below = {}, set()
    for floor in FLOORS:
        for room in floor:
            allowed[room] = below | {room}
        below |= set(floor)
    for room, extra in ASIDE.items():
        allowed[room] = extra | {room}
    return allowed


def complaint(room, own, angled, allowed, is_test):
    """What is wrong with one include, or None."""
    if own is not None:
        target = own.split("/", 1)[0]
        if "/" not in own or target in (".", ".."):
            return f'write "{own}" from src/, as "ROOM/file.h"'
        if target == "headroom":  # include/headroom: seen by every room
            return None
        if target == "tests":  # what tests of several rooms share
            return None if is_test else f'"{own}": only a test may include it'
        if target not in allowed:
            return f'"{own}": there is no room "{target}"'
        if target not in allowed[room]:
            return f'"{own}": {room} may not include {target}'
        return None
    if room in NO_THIRD_PARTY and not is_test:
        foreign = "/" in angled and not angled.startswith(SYSTEM_FOLDERS)
        if foreign or angled in THIRD_PARTY_WITHOUT_FOLDER:
            return f"<{angled}>: {room} must not need a third-party library"
    return None


def check(repo):
    """Every complaint about `repo`, as "file:line: text" strings, and the number of files read."""
    allowed, found, files = allowed_rooms(), [], 0
    source = Path(repo) / "src"
    for path in sorted(p for p in source.rglob("*") if p.suffix in SOURCES):
        parts = path.relative_to(source).parts
        room = parts[0]
        place = path.relative_to(repo)
        if len(parts) < 2 or room not in allowed:
            found.append(f"{place}:1: not in a room that the table in cmake/check_arrows.py knows")
            continue
        files += 1
        is_test = path.stem.endswith("_test") or parts[:2] == ("runtime", "fake")
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            text = match and complaint(room, match[1], match[2], allowed, is_test)
            if text:
                found.append(f"{place}:{number}: {text}")
    return found, files


def main():
    repo = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    found, files = check(repo)
    for line in found:
        print(line, file=sys.stderr)
    if files == 0:
        print(f"{repo}/src holds no sources: nothing was checked", file=sys.stderr)
        return 1
    print(f"arrows: {files} files, {len(found)} against the arrows")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Which files of a room can be compiled as one: compile_together.py FILE...

Started in the room's folder. Prints a number for each file, in order; files of the same number go
together. They lie in the same folder, are at most MOST, and none has a name in an anonymous namespace
that another of them has, or a header of the room that it sees: that is what keeps files of one room
apart. Names are found by how clang-format lays them out (what a namespace holds begins at the margin);
one that is overlooked is the compiler's complaint, and there the better name is the one that says
which of the two it is.
HeadroomRoom.cmake asks at every configuring; a new name that two files hide is a compiler's error until
cmake has run again, and moves its file then. Names of other rooms are not looked at.
"""

import functools
import os
import re
import sys
import typing

MOST = 8

NAMED = re.compile(r"(?:template.*> )?(?:struct|class|enum class|enum)\s+(\w+)|using (\w+) =")
INCLUDED = re.compile(r'#include "([^"]+)"')
OTHER = re.compile(r"[\s&*>](\w+)(?:\[[^\]]*\])*\s*[(={;]")
INNER = re.compile(r"\s+(?:using (\w+) =|constexpr .*?(\w+)\s*[={])")
NONE = ("template", "namespace ", "using ", "extern ", "TEST", "INSTANTIATE", "RC_", "static_assert")


class Names(typing.NamedTuple):
    held: set  # by the namespaces of a file
    hidden: set  # by its anonymous ones
    inner: set  # constants and types in functions, which may not be named so, either (-Wshadow)
    included: set  # of headers
    of_another: bool  # sees all names of another namespace


@functools.cache
def names_in(path):
    held, hidden, inner, included, inside, of_another = set(), set(), set(), set(), False, False
    with open(path, encoding="utf-8") as source:
        lines = source.read().splitlines()
    for line in lines:
        if line == "namespace {":
            inside = True
        elif re.match(r"\}\s*// namespace\s*$", line):
            inside = False
        elif line.lstrip().startswith("using namespace"):
            of_another = True
        elif line.startswith(" "):
            found = INNER.match(line)
            if found:
                inner.add(found.group(found.lastindex))
        elif line.startswith("#include"):
            included.update(INCLUDED.findall(line))
        elif line[:1] not in ("", "}", "/", "#", ")", "*", ":"):
            found = NAMED.match(line) or (not line.startswith(NONE) and OTHER.search(line))
            if found:
                (hidden if inside else held).add(found.group(found.lastindex))
    return Names(held, hidden, inner, included, of_another)


@functools.cache
def names_seen(path):
    """What the headers of the room hold that a file includes, and they in turn."""
    room, seen, names = os.path.basename(os.getcwd()) + "/", set(), set()
    open_ = set(names_in(path).included)
    while open_:
        header = open_.pop()
        inside = header.removeprefix(room)
        if header in seen or inside == header or not os.path.exists(inside):
            continue
        seen.add(header)
        names |= names_in(inside).held
        open_ |= names_in(inside).included
    return names


def go_together(one, other):
    a, b = names_in(one), names_in(other)
    return not (os.path.dirname(one) != os.path.dirname(other) or a.of_another or b.of_another
                or a.hidden & (b.hidden | b.inner | names_seen(other))
                or b.hidden & (a.inner | names_seen(one)))


def groups_of(files):
    """The number of each file's group: the first that has room and only files it goes together with."""
    groups, numbers = [], []
    for file in files:
        for number, group in enumerate(groups):
            if len(group) < MOST and all(go_together(file, member) for member in group):
                break
        else:
            number = len(groups)
            groups.append([])
        groups[number].append(file)
        numbers.append(number)
    return numbers


if __name__ == "__main__":
    print(";".join(str(number) for number in groups_of(sys.argv[1:])))

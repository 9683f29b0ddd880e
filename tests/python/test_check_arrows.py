"""The arrow check itself: it must see what it is there for."""

import re

import pytest


@pytest.fixture
def arrows(tool):
    return tool("cmake/check_arrows.py")


def house(root, **files):
    for name, text in files.items():
        path = root / "src" / name.replace("__", "/").replace("_h", ".h").replace("_cpp", ".cpp")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize("file, line, says", [
    ("base__a_h", '#include "text/json.h"', "base may not include text"),
    ("memory__a_h", '#include "operator/cost.h"', "memory may not include operator"),
    ("step__a_cpp", '#include "fit/fit.h"', "step may not include fit"),
    ("fit__a_cpp", '  #  include "pack/plan.h"', "fit may not include pack"),
    ("pack__a_cpp", '#include "report/page.h"', "pack may not include report"),
    ("fit__a_cpp", '#include "study/study.h"', "fit may not include study"),
    ("runtime__a_cpp", '#include "text/json.h"', "runtime may not include text"),
    ("base__a_cpp", '#include "runtime/hook.h"', "base may not include runtime"),
    ("base__a_cpp", "#include <fmt/format.h>", "must not need a third-party library"),
    ("memory__a_cpp", "#include <zlib.h>", "must not need a third-party library"),
    ("fit__a_cpp", '#include "../base/units.h"', 'write "../base/units.h" from src/'),
    ("fit__a_cpp", '#include "units.h"', 'write "units.h" from src/'),
    ("fit__a_cpp", '#include "attic/a.h"', 'there is no room "attic"'),
    ("fit__a_cpp", '#include "tests/tools/room_test.h"', "only a test may include it"),
    ("attic__a_cpp", "", "not in a room"),
])
def test_an_arrow_against_the_house_is_named_with_its_place(arrows, tmp_path, file, line, says):
    found, _ = arrows.check(house(tmp_path, **{file: f"// opening\n{line}\n"}))
    assert len(found) == 1
    assert re.match(r"src/\w+/a\.(h|cpp):\d+: ", found[0])
    assert says in found[0]


def test_the_arrows_of_the_house_pass(arrows, tmp_path):
    found, files = arrows.check(house(
        tmp_path,
        base__a_cpp='#include "headroom/headroom.h"\n#include <sys/stat.h>\n#include <vector>\n',
        text__a_cpp='#include "base/a.h"\n#include <boost/json.hpp>\n',
        fit__a_cpp='#include "fit/b.h"\n#include "step/a.h"\n#include "memory/a.h"\n',
        study__a_cpp='#include "fit/b.h"\n#include "pack/b.h"\n',
        cli__a_cpp='#include "report/a.h"\n#include "study/a.h"\n',
        runtime__a_cpp='#include "memory/a.h"\n',
        base__a_test_h='#include <gtest/gtest.h>\n#include "tests/tools/room_test.h"\n'))
    assert (found, files) == ([], 7)


def test_the_architecture_page_draws_the_same_table(arrows, repo):
    page = (repo / "docs/architecture.md").read_text()
    table = page.split("<!-- arrows -->")[1].split("<!-- /arrows -->")[0]
    drawn = [tuple(re.findall(r"`(\w+)`", row.split("|")[2])) for row in table.splitlines()
             if re.match(r"\|\s*\d+\s*\|", row)]
    assert drawn == list(arrows.FLOORS)

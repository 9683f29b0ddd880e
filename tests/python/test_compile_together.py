"""cmake/compile_together.py: which files of a room are compiled as one."""

import pytest


@pytest.fixture
def groups(tool, tmp_path, monkeypatch):
    """The numbers of files that are written into a room."""
    def of(**files):
        room = tmp_path / "room"
        for name, text in files.items():
            path = room / name.replace("__", "/").replace("_h", ".h").replace("_cpp", ".cpp")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.chdir(room)
        sources = [str(path.relative_to(room)) for path in sorted(room.rglob("*.cpp"))]
        return tool("cmake/compile_together.py").groups_of(sources)
    return of


def hidden(*lines):
    return "\n".join(["namespace headroom {", "namespace {", "", *lines, "", "}  // namespace", "}  // namespace headroom"])


def test_files_of_a_folder_are_one(groups):
    assert groups(a_cpp=hidden("int f() {"), b_cpp=hidden("int g() {"), c__a_cpp="", d_cpp="") == [0, 0, 1, 0]


@pytest.mark.parametrize("first, second", [
    ("int f() {", "std::string f(int a,"), ("struct Row {", "class Row {"), ("constexpr int kMost = 3;", "constexpr Bytes kMost{4};"),
    ("using Rows = std::vector<int>;", "enum class Rows { a };"), ("template <typename T>\nT f(T a) {", "int f() {"),
    ("constexpr std::array kNames = {1};", "const char* kNames[] = {"),
])
def test_a_name_that_two_hide_parts_them(groups, first, second):
    assert groups(a_cpp=hidden(first), b_cpp=hidden(second)) == [0, 1]


def test_a_name_of_a_header_is_not_hidden_beside_who_sees_it(groups):
    header = "namespace headroom {\n\nint f(int a);\n\n}  // namespace headroom"
    assert groups(far_h=header, near_h='#include "room/far.h"', a_cpp=hidden("int f() {"), b_cpp='#include "room/near.h"',
                  c_cpp="") == [0, 1, 0]


def test_a_constant_in_a_function_shadows_a_hidden_one(groups):
    assert groups(a_cpp=hidden("constexpr int kUser = 1;"), b_cpp="void f() {\n  constexpr int kUser = 2;\n}") == [0, 1]


def test_who_sees_all_of_another_namespace_is_alone(groups):
    assert groups(a_cpp="", b_cpp="namespace headroom {\nusing namespace opcode;\n}", c_cpp="") == [0, 1, 0]


def test_no_more_than_the_most(groups):
    assert groups(**{f"a{number:02}_cpp": "" for number in range(17)}) == [0] * 8 + [1] * 8 + [2]

"""What ./headroom and ./test do on a machine that lacks packages, with apt-get and sudo played."""

import shutil
import stat
import subprocess

import pytest


@pytest.fixture
def machine(tmp_path):
    """A PATH of our own: a few real tools and the ones that a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "env", "grep", "mktemp", "rm", "tail"):
        (folder / name).symlink_to(shutil.which(name))

    def put(name, script):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(repo, groups):
        script = f'. "{repo}/tools/debian.sh"; need_packages {groups}'
        return subprocess.run(["/bin/sh", "-c", script],
                              env={"PATH": str(folder), "LOG": str(tmp_path / "log")}, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)

    run.put = put
    run.log = tmp_path / "log"
    put("dpkg-query", 'case "$3" in libfmt-dev|zlib1g-dev) echo installed ;; *) exit 1 ;; esac')
    return run


def test_without_root_it_says_exactly_what_to_install(repo, machine):
    machine.put("apt-get", 'echo "$@" >>"$LOG"')
    machine.put("id", "echo 1000")
    machine.put("g++", "")
    done = machine(repo, "build")
    assert done.returncode == 4
    assert done.stdout == ""
    command = done.stderr.splitlines()[-1].split()
    assert command[:3] == ["apt-get", "install", "--no-install-recommends"]
    assert "libboost-json1.81-dev" in command and "cmake" in command
    assert not {"libfmt-dev", "zlib1g-dev", "g++"} & set(command)  # those are here
    assert not machine.log.exists()  # nothing was tried


def test_root_installs_what_is_missing_and_nothing_else(repo, machine):
    machine.put("apt-get", 'echo "$@" >>"$LOG"')
    machine.put("id", "echo 0")
    done = machine(repo, "build")
    assert done.returncode == 0, done.stderr
    update, install = machine.log.read_text().splitlines()
    assert update.endswith("update")
    assert "libcli11-dev" in install and "libfmt-dev" not in install
    assert done.stdout == ""  # stdout is the answer's


def test_sudo_is_used_where_it_asks_nothing(repo, machine):
    machine.put("apt-get", 'echo "apt-get $@" >>"$LOG"')
    machine.put("id", "echo 1000")
    machine.put("sudo", '[ "$1" = -n ] && exit 0\necho sudo >>"$LOG"\n"$@"')
    assert machine(repo, "build").returncode == 0
    assert machine.log.read_text().splitlines()[0] == "sudo"


def test_a_failed_install_and_a_machine_without_apt_are_not_available_here(repo, machine):
    machine.put("id", "echo 0")
    other = machine(repo, "build")
    assert other.returncode == 4 and "not Debian" in other.stderr
    machine.put("apt-get", "echo E: no such mirror; exit 100")
    failed = machine(repo, "build")
    assert failed.returncode == 4 and "E: no such mirror" in failed.stderr and failed.stdout == ""


def test_nothing_is_done_where_nothing_is_missing(repo, machine):
    machine.put("apt-get", 'echo "$@" >>"$LOG"')
    machine.put("dpkg-query", "echo installed")
    done = machine(repo, "build")
    assert (done.returncode, done.stderr, machine.log.exists()) == (0, "", False)

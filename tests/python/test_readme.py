"""What the README shows is what the tool prints."""

import re
import shlex
import subprocess


def test_the_answer_shown_is_the_answer(repo, headroom_binary):
    readme = (repo / "README.md").read_text()
    command = re.search(r"^\./headroom (fit mistralai.*)$", readme, re.M).group(1)
    shown = re.search(r"```\n(no: mistralai.*?)\n```", readme, re.S).group(1)
    done = subprocess.run([headroom_binary, *shlex.split(command)], text=True, cwd=repo,
                          capture_output=True, check=False)
    assert done.returncode == 1, done.stderr
    for part in shown.split("\n...\n"):
        assert part.removesuffix("\n...") in done.stdout, f"not as the README has it:\n{part}"
    assert (repo / "docs/pictures/fit.png").stat().st_size < 200_000

"""The times of 2026-11-22-fit-time/judge.py, with this folder's runs.csv and one line a model and source.

    python3 judge.py --headroom build/dev/src/cli/headroom --data ../shared/data --refs FOLDER --output rows.csv
"""

import importlib.util
import pathlib

HERE = pathlib.Path(__file__).resolve().parent


def main():
    path = HERE.parent / "2026-11-22-fit-time" / "judge.py"
    spec = importlib.util.spec_from_file_location("judge", path)
    judge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(judge)
    judge.HERE = HERE
    judge.main()


if __name__ == "__main__":
    main()

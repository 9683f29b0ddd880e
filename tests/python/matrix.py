"""Of a matrix of settings, what ./test goes through; ./test --all goes through the whole."""

import pytest

# Whether this run goes through the whole; conftest.py says so.
is_whole = True


def in_turns(settings, is_quick):
    """As parameters of a test; those that are not quick are marked `full`. `is_quick` takes the place and the setting."""
    parameters = []
    for i, setting in enumerate(settings):
        values = setting if isinstance(setting, tuple) else (setting,)
        parameters.append(pytest.param(*values, marks=[] if is_quick(i, setting) else [pytest.mark.full]))
    return parameters


def every_other(always=()):
    """For in_turns(): every other one, and those of `always`."""
    return lambda i, setting: i % 2 == 0 or setting in always


def to_run(settings, is_quick):
    """Those of in_turns() that this run goes through, for what is made for all of them at once."""
    return [setting for i, setting in enumerate(settings) if is_whole or is_quick(i, setting)]

"""Of a matrix of settings, what ./test goes through; ./test --all goes through the whole."""

import pytest

# Whether this run goes through the whole; conftest.py says so.
is_whole = True


def is_quick(settings, always, index):
    return index % 2 == 0 or settings[index] in always


def spread(settings, always=()):
    """As parameters of a test: every other one, and those of `always`; the others are marked `full`."""
    parameters = []
    for i, setting in enumerate(settings):
        values = setting if isinstance(setting, tuple) else (setting,)
        marks = [] if is_quick(settings, always, i) else [pytest.mark.full]
        parameters.append(pytest.param(*values, marks=marks))
    return parameters


def to_run(settings, always=()):
    """Those of spread() that this run goes through, for what is made for all of them at once."""
    return [setting for i, setting in enumerate(settings) if is_whole or is_quick(settings, always, i)]

"""Errors of the laws on what they were not fitted on, beside the plain roofline's.

    HEADROOM_DATA=... python3 tools/timing/evaluate.py --output docs/measurements/2026-11-21-timing

Three experiments a class, each with intervals whose coverage is counted on rows that had no part in
them:
  unseen   a device is left out of the fit; the interval comes from the errors that leaving out each
           other device makes (both left out)
  points   the same law, corrected by 16 points of the device, chosen by shape alone; the interval
           from the other devices' errors in the same experiment
  groups   collectives alone: a group size is left out of the device's own law
  tables   the device's own law; groups (weight shapes, head configurations, operators) are left out
           five at a time, the interval from the other folds
Writes errors.csv (a row a class, experiment, device and size) and summary.csv (over devices).
"""

import argparse
import csv
import os
import pathlib
import zlib

import numpy as np

import classes
import law
import tables

POINTS = 16
FOLDS = 5
LEVEL = 0.90
FEWEST_ROWS = 60  # of a device, for a law of its own
FEWEST_OF_A_SIZE = 30  # large or small operands, for an interval of their own


def device_weights(devices):
    """Weights under which every device counts alike."""
    names, inverse, counts = np.unique(devices, return_inverse=True, return_counts=True)
    return 1.0 / counts[inverse]


def half_width(residuals, devices, new_device):
    """The half width, as a logarithm, that covers LEVEL of `residuals`, every device alike.

    For a new device the level is raised, 1 - (1 - LEVEL) D / (D + 2) with D devices (Laplace's rule
    of succession): what is measured are D draws of a device, not as many as there are rows. The
    interval is symmetric, since with few devices the signs of their offsets say nothing.
    """
    count = len(np.unique(devices))
    level = 1 - (1 - LEVEL) * count / (count + 2) if new_device else LEVEL
    size, weights = np.abs(residuals), device_weights(devices)
    order = np.argsort(size)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(size[order][min(np.searchsorted(share, level), len(size) - 1)])


def half_widths(residuals, devices, large, new_device):
    """{True: of large operands, False: of small ones}; the wider where a size has few rows."""
    found = {}
    for size in (True, False):
        rows = large == size
        if rows.sum() >= FEWEST_OF_A_SIZE:
            found[size] = half_width(residuals[rows], devices[rows], new_device)
    whole = half_width(residuals, devices, new_device)
    return {size: found.get(size, max([whole, *found.values()])) for size in (True, False)}


def bounds(residuals, devices, large, of_large, new_device):
    """(low, high) log ratios for rows whose operands are large as `of_large` says."""
    widths = half_widths(residuals, devices, large, new_device)
    half = np.where(of_large, widths[True], widths[False])
    return -half, half


def unseen(data, design):
    """Residuals and bounds with each device left out; also the residuals for corrections."""
    names = np.unique(data.device)
    residuals = np.full(len(data), np.nan)
    low, high = residuals.copy(), residuals.copy()
    for name in names:
        rows = data.device == name
        fitted = law.fit(design, data, np.where(~rows)[0])
        residuals[rows] = fitted.residuals(data)[rows]
    for name in names:
        rows, others = data.device == name, data.device != name
        inner = np.full(len(data), np.nan)
        for other in names:
            if other == name:
                continue
            training = np.where(others & (data.device != other))[0]
            if len(training) == 0:  # two devices in all: the other's own error is all there is
                training = np.where(rows)[0]
            part = data.device == other
            inner[part] = law.fit(design, data, training).residuals(data)[part]
        known = (inner[others], data.device[others], data.large[others])
        low[rows], high[rows] = bounds(*known, data.large[rows], new_device=True)
    return residuals, low, high


def with_points(data, residuals, names):
    """Residuals after the correction by POINTS rows of the device; those rows become NaN."""
    corrected = np.full(len(data), np.nan)
    kriging = law.Kriging.over(names, data)
    coordinates = kriging.coordinates(data)
    for name in np.unique(data.device):
        rows = np.where((data.device == name) & data.large)[0]
        if len(rows) < 2 * POINTS:
            continue
        points = rows[law.spread_points(coordinates[rows], POINTS)]
        rest = np.setdiff1d(np.where(data.device == name)[0], points)
        shift = kriging.correct(coordinates[points], residuals[points], coordinates[rest])
        corrected[rest] = residuals[rest] - shift
    return corrected


def bounds_from_others(data, residuals):
    low, high = np.full(len(data), np.nan), np.full(len(data), np.nan)
    known = ~np.isnan(residuals)
    for name in np.unique(data.device[known]):
        others = known & (data.device != name)
        if not others.any():
            continue
        rows = data.device == name
        known_of_others = (residuals[others], data.device[others], data.large[others])
        low[rows], high[rows] = bounds(*known_of_others, data.large[rows], new_device=True)
    return low, high


def folds_of(groups):
    """A fold for each row; rows of a group share theirs. Few groups: rows are dealt out singly."""
    names, inverse = np.unique(groups, return_inverse=True)
    if len(names) < 2 * FOLDS:
        return np.random.default_rng(1).permutation(len(groups)) % FOLDS
    return np.array([zlib.crc32(n.encode()) % FOLDS for n in names])[inverse]


def with_tables(data, tables_of, by_group=False):
    """Residuals and bounds of one device's own law, groups left out."""
    design = classes.design(tables_of, data, classes.DEVICE_RIDGE, classes.DEVICE_SMOOTH)
    fold = np.unique(data.group, return_inverse=True)[1] if by_group else folds_of(data.group)
    residuals = np.full(len(data), np.nan)
    for i in np.unique(fold):
        fitted = law.fit(design, data, np.where(fold != i)[0])
        residuals[fold == i] = fitted.residuals(data)[fold == i]
    low, high = residuals.copy(), residuals.copy()
    for i in np.unique(fold):
        rows = fold == i
        known = (residuals[~rows], data.device[~rows], data.large[~rows])
        low[rows], high[rows] = bounds(*known, data.large[rows], new_device=False)
    return residuals, low, high


def score(residuals, low, high, data, rows):
    """Errors in percent of the measured time; widths in percent of the predicted."""
    rows = rows & ~np.isnan(residuals)
    if not rows.any():
        return None
    error = 100 * np.abs(np.exp(-residuals[rows]) - 1)
    roofline = 100 * np.abs(data.plain_roofline[rows] / data.seconds[rows] - 1)
    bounded = rows & ~np.isnan(low)
    inside = (residuals >= low) & (residuals <= high)
    width = 100 * (np.exp(high[bounded]) - np.exp(low[bounded]))
    return {
        "rows": int(rows.sum()),
        "median_error_pct": np.median(error),
        "p90_error_pct": np.percentile(error, 90),
        "roofline_median_error_pct": np.median(roofline),
        "coverage_pct": 100 * inside[bounded].mean() if bounded.any() else np.nan,
        "median_width_pct": np.median(width) if bounded.any() else np.nan,
    }


def rows_of(cls, experiment, data, residuals, low, high):
    for device in np.unique(data.device):
        for size in ("large", "small"):
            chosen = (data.device == device) & (data.large == (size == "large"))
            found = score(residuals, low, high, data, chosen)
            if found:
                yield {"class": cls.name, "experiment": experiment, "device": device, "size": size, **found}


def summary_of(cls, experiment, data, residuals, low, high, per_device):
    for size in ("large", "small"):
        found = score(residuals, low, high, data, data.large == (size == "large"))
        mine = [r for r in per_device if r["size"] == size and r["experiment"] == experiment]
        if found:
            medians = [r["median_error_pct"] for r in mine]
            found["mean_of_device_medians_pct"] = np.mean(medians)
            found["width_over_error"] = found["median_width_pct"] / found["median_error_pct"]
            yield {"class": cls.name, "experiment": experiment, "size": size, "devices": len(mine), **found}


def evaluate(cls, samples, devices):
    """(rows of errors.csv, rows of summary.csv) of one class."""
    data = law.problem(cls.kind, classes.samples_of(cls, samples), devices, classes.ROWS_MOST)
    design = classes.design(cls.tables, data, classes.RIDGE, classes.SMOOTH)
    outcomes = {"unseen": (data, *unseen(data, design))}
    corrected = with_points(data, outcomes["unseen"][1], cls.correction)
    low, high = bounds_from_others(data, corrected)
    # The points are large operands: of small ones they say little, so the interval does not shrink.
    general_low, general_high = outcomes["unseen"][2:]
    low = np.where(data.large, low, np.minimum(low, general_low))
    high = np.where(data.large, high, np.maximum(high, general_high))
    outcomes["points"] = (data, corrected, low, high)
    outcomes["tables"] = all_tables(cls, samples, devices)
    if law.is_collective(cls.kind):
        outcomes["groups"] = all_tables(cls, samples, devices, by_group=True)
    errors, summary = [], []
    for experiment, (problem, residuals, low, high) in outcomes.items():
        errors += rows_of(cls, experiment, problem, residuals, low, high)
        summary += summary_of(cls, experiment, problem, residuals, low, high, errors)
    return errors, summary


def all_tables(cls, samples, devices, by_group=False):
    """The experiment `tables` of every device and source with enough rows, as one set of rows; with
    `by_group` a fold is a group."""
    data = law.problem(cls.kind, classes.samples_of(cls, samples), devices, classes.DEVICE_ROWS_MOST)
    residuals = np.full(len(data), np.nan)
    low, high = residuals.copy(), residuals.copy()
    for device, source in sorted(set(zip(data.device, data.source))):
        rows = np.where((data.device == device) & (data.source == source))[0]
        if len(rows) >= FEWEST_ROWS:
            residuals[rows], low[rows], high[rows] = with_tables(
                data.take(rows), cls.device_tables, by_group
            )
    return data, residuals, low, high


def write(path, rows):
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.2f}" if isinstance(v, float) else v for k, v in row.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--only", help="one class")
    arguments = parser.parse_args()
    repository = pathlib.Path(__file__).resolve().parents[2]
    devices = tables.devices(repository)
    samples = tables.load(os.environ["HEADROOM_DATA"])
    errors, summary = [], []
    for cls in classes.CLASSES:
        if arguments.only in (None, cls.name):
            more_errors, more_summary = evaluate(cls, samples, devices)
            errors += more_errors
            summary += more_summary
            for row in more_summary:
                print({k: round(v, 1) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    write(arguments.output / "errors.csv", errors)
    write(arguments.output / "summary.csv", summary)


if __name__ == "__main__":
    main()

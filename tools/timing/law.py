"""The law of an operator's time, and its fit.

    t = (t0 + roof) * exp(sum of tables)
    roof = (compute^4 + traffic^4)^(1/4),  compute = flops / rate,  traffic = bytes / bandwidth

Each table is a function of one or two features of the call and the device (logarithms of ratios such
as waves of tiles over the multiprocessors), linear between its knots and constant outside them: the
boundary is held. Sums of such tables are linear in their values, so that a fit is a least-squares
problem: ridge towards zero, and second differences towards zero so that knots without data follow
their neighbours. Residuals are reweighted towards least absolute errors (Huber), since the median is
what is judged. src/timing evaluates the same formula.
"""

import collections
from dataclasses import dataclass, field

import numpy as np

EXPONENT = 4  # of the soft maximum of compute and traffic
LARGE = 2.0  # operands of at least so many L2 caches: what the targets are for
LARGE_MESSAGE = 2**20  # bytes: messages that links, not latencies, decide
START_SECONDS = (0.0, 1e-6, 2e-6, 4e-6, 8e-6)  # candidates for t0
COLLECTIVE_START_SECONDS = (*START_SECONDS, 16e-6, 32e-6)
HUBER = 1.5  # in median absolute residuals


def features(kind, sample, device):
    """Feature name -> value, all logarithms (natural)."""
    shape = sample.shape
    traffic = sample.bytes / path_of(kind, device)
    compute = sample.flops / device.flops[sample.rate] if sample.flops else 0.0
    found = {
        "traffic_us": np.log(traffic * 1e6),
        "l2": np.log(sample.bytes / device.l2),
        "intensity": np.log(max(compute, 1e-12) / traffic),
    }
    if kind == "gemm":
        found.update(gemm_features(shape, device))
    elif is_collective(kind):
        found["message"] = np.log(shape["message"])
        found["group"] = np.log(shape["group"])
    elif kind.startswith("attention"):
        found.update(attention_features(shape, device))
    else:
        found["width"] = np.log(shape["width"])
        found["rows"] = np.log(shape["rows"] / device.sm)
    return found


def is_collective(kind):
    return kind.startswith("all_reduce")


def path_of(kind, device):
    """Bytes a second of what the traffic goes through."""
    return device.link if is_collective(kind) else device.bandwidth


def is_large(kind, sample, device):
    if is_collective(kind):
        return sample.shape["message"] >= LARGE_MESSAGE
    return sample.bytes >= LARGE * device.l2


def gemm_features(shape, device):
    tiles = shape["batch"] * np.ceil(shape["m"] / 128) * np.ceil(shape["n"] / 128)
    waves = tiles / device.sm
    return {
        "waves": np.log(waves),
        "wave_fill": np.log(waves / np.ceil(waves)) if waves > 1 else 0.0,
        "m": np.log(shape["m"]),
        "n": np.log(shape["n"]),
        "k": np.log(shape["k"]),
        "m_fill": np.log(shape["m"] / (64 * np.ceil(shape["m"] / 64))) if shape["m"] > 64 else 0.0,
    }


def attention_features(shape, device):
    sequences = shape["batch"] * shape["kv_heads"]
    tiles = shape["batch"] * shape["heads"] * np.ceil(shape["queries"] / 128)
    return {
        "context": np.log(shape["context"]),
        "sequences": np.log(sequences / device.sm),
        "waves": np.log(tiles / device.sm),
        "sharing": np.log(shape["heads"] / shape["kv_heads"]),
        "head_dim": np.log(shape["head_dim"]),
    }


@dataclass
class Term:
    """One table: names of one or two features, and knots for each."""

    features: tuple
    knots: tuple


def hat_weights(x, knots):
    """Rows of weights that interpolate linearly at x between the knots, held outside."""
    x = np.clip(x, knots[0], knots[-1])
    upper = np.clip(np.searchsorted(knots, x, side="right"), 1, len(knots) - 1)
    share = (x - knots[upper - 1]) / (knots[upper] - knots[upper - 1])
    weights = np.zeros((len(x), len(knots)))
    weights[np.arange(len(x)), upper - 1] = 1 - share
    weights[np.arange(len(x)), upper] = share
    return weights


def term_matrix(term, table):
    """Columns of the least-squares problem: one a node of the term's grid."""
    weights = hat_weights(table[term.features[0]], term.knots[0])
    if len(term.features) == 2:
        other = hat_weights(table[term.features[1]], term.knots[1])
        weights = (weights[:, :, None] * other[:, None, :]).reshape(len(weights), -1)
    return weights


def second_differences(term):
    """Rows whose squares are the roughness of a term's values."""
    sizes = [len(k) for k in term.knots]
    grid = np.arange(int(np.prod(sizes))).reshape(sizes)
    rows = []
    for axis in range(grid.ndim):
        lines = np.moveaxis(grid, axis, -1).reshape(-1, sizes[axis])
        knots = np.asarray(term.knots[axis])
        for line in lines:
            for i in range(1, len(line) - 1):
                row = np.zeros(grid.size)
                left, right = knots[i] - knots[i - 1], knots[i + 1] - knots[i]
                row[line[i - 1]], row[line[i + 1]] = right / (left + right), left / (left + right)
                row[line[i]] = -1.0
                rows.append(row)
    return np.array(rows) if rows else np.zeros((0, grid.size))


# --- the data of a fit ----------------------------------------------------------------------------


@dataclass
class Problem:
    """Samples of one law as columns. `weight` makes every (source, device) count alike."""

    table: dict  # feature -> values
    seconds: np.ndarray
    compute: np.ndarray
    traffic: np.ndarray
    large: np.ndarray
    weight: np.ndarray
    device: np.ndarray
    group: np.ndarray
    source: np.ndarray
    starts: tuple = START_SECONDS

    def __len__(self):
        return len(self.seconds)

    @property
    def roof(self):
        return (self.compute**EXPONENT + self.traffic**EXPONENT) ** (1 / EXPONENT)

    @property
    def plain_roofline(self):
        return np.maximum(self.compute, self.traffic)

    def take(self, rows):
        columns = {k: v[rows] for k, v in vars(self).items() if k not in ("table", "starts")}
        return Problem(starts=self.starts, table={k: v[rows] for k, v in self.table.items()}, **columns)


def problem(kind, samples, devices, most_rows):
    """At most `most_rows` samples of each (source, device), drawn with a fixed seed."""
    parts = collections.defaultdict(list)
    for sample in samples:
        parts[(sample.source, sample.device)].append(sample)
    rng = np.random.default_rng(0)
    kept, weights = [], []
    for key in sorted(parts):
        part = parts[key]
        if len(part) > most_rows:
            part = [part[i] for i in sorted(rng.choice(len(part), most_rows, replace=False))]
        kept += part
        weights += [1.0 / len(part)] * len(part)
    rows = [features(kind, s, devices[s.device]) for s in kept]
    rate = lambda s: devices[s.device].flops[s.rate] if s.flops else 1.0
    return Problem(
        table={name: np.array([r[name] for r in rows]) for name in rows[0]},
        seconds=np.array([s.seconds for s in kept]),
        compute=np.array([s.flops / rate(s) for s in kept]),
        traffic=np.array([s.bytes / path_of(kind, devices[s.device]) for s in kept]),
        large=np.array([is_large(kind, s, devices[s.device]) for s in kept]),
        weight=np.array(weights),
        device=np.array([s.device for s in kept]),
        group=np.array([s.group for s in kept]),
        source=np.array([s.source for s in kept]),
        starts=COLLECTIVE_START_SECONDS if is_collective(kind) else START_SECONDS,
    )


# --- fitting --------------------------------------------------------------------------------------


@dataclass
class Law:
    start_seconds: float
    intercept: float
    terms: list
    values: list = field(default_factory=list)  # one grid a term

    def predict(self, data):
        """Seconds of each row."""
        logs = np.full(len(data), self.intercept)
        for term, values in zip(self.terms, self.values):
            logs += term_matrix(term, data.table) @ values
        return (self.start_seconds + data.roof) * np.exp(logs)

    def residuals(self, data):
        """log(measured / predicted) of each row."""
        return np.log(data.seconds / self.predict(data))


@dataclass
class Design:
    """Terms with their columns over all rows, made once and used by every fold."""

    terms: list
    columns: np.ndarray
    penalty: np.ndarray

    @staticmethod
    def of(terms, data, ridge, smooth):
        columns = np.hstack([np.ones((len(data), 1))] + [term_matrix(t, data.table) for t in terms])
        penalty = np.eye(columns.shape[1]) * ridge
        penalty[0, 0] = 1e-8
        at = 1
        for term in terms:
            rows = second_differences(term)
            end = at + int(np.prod([len(k) for k in term.knots]))
            penalty[at:end, at:end] += smooth * rows.T @ rows
            at = end
        return Design(terms, columns, penalty)


def fit(design, data, rows):
    """The Law of `rows`; t0 is the candidate with the least weighted absolute residual."""
    best, best_loss = None, np.inf
    for start in data.starts:
        law, loss = _fit_with_start(design, data, rows, start)
        if loss < best_loss:
            best, best_loss = law, loss
    return best


def _fit_with_start(design, data, rows, start):
    columns = design.columns[rows]
    wanted = np.log(data.seconds[rows] / (start + data.roof[rows]))
    base = data.weight[rows] / data.weight[rows].mean()
    weight = base
    for _ in range(5):
        weighted = columns * weight[:, None]
        solution = np.linalg.solve(
            weighted.T @ columns / len(rows) + design.penalty, weighted.T @ wanted / len(rows)
        )
        size = np.abs(wanted - columns @ solution)
        limit = HUBER * max(np.median(size), 1e-3)
        weight = base * np.minimum(1.0, limit / np.maximum(size, 1e-9))
    values, at = [], 1
    for term in design.terms:
        end = at + int(np.prod([len(k) for k in term.knots]))
        values.append(solution[at:end])
        at = end
    return Law(start, solution[0], design.terms, values), float(np.average(size, weights=base))


# --- a few points of a device ---------------------------------------------------------------------


@dataclass
class Kriging:
    """Correction by points of one device: residuals are a device's offset plus a smooth function.

    Covariance of log(measured / predicted) at x and y:
        offset_sd^2 + local_sd^2 * exp(-|x - y|^2 / 2), plus noise_sd^2 on the diagonal,
    x being features minus `center`, over `scale`.
    """

    features: list
    center: np.ndarray
    scale: np.ndarray
    offset_sd: float = 0.3
    local_sd: float = 0.2
    noise_sd: float = 0.05

    @staticmethod
    def over(names, data):
        return Kriging(
            list(names),
            np.array([data.table[n].mean() for n in names]),
            np.array([max(data.table[n].std(), 1e-3) for n in names]),
        )

    def coordinates(self, data):
        raw = np.stack([data.table[n] for n in self.features], axis=1)
        return (raw - self.center) / self.scale

    def correct(self, points, residuals, queries):
        """Expected residual at each query."""
        known = self._covariance(points, points) + self.noise_sd**2 * np.eye(len(points))
        return self._covariance(queries, points) @ np.linalg.solve(known, residuals)

    def _covariance(self, a, b):
        square = ((a[:, None] - b[None]) ** 2).sum(-1)
        return self.offset_sd**2 + self.local_sd**2 * np.exp(-square / 2)


def spread_points(coordinates, count):
    """Indices of `count` points that stand for the rest: nearest to the centres of k-means, which
    start at points far from each other. Only features are looked at, never a measured time."""
    chosen = [int(np.argmin(((coordinates - np.median(coordinates, axis=0)) ** 2).sum(1)))]
    distance = ((coordinates - coordinates[chosen[0]]) ** 2).sum(1)
    while len(chosen) < count:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, ((coordinates - coordinates[chosen[-1]]) ** 2).sum(1))
    centers = coordinates[chosen].copy()
    for _ in range(10):
        nearest = ((coordinates[:, None] - centers[None]) ** 2).sum(-1).argmin(1)
        for i in range(count):
            if (nearest == i).any():
                centers[i] = coordinates[nearest == i].mean(0)
    return np.unique(((coordinates[:, None] - centers[None]) ** 2).sum(-1).argmin(0))

"""Which laws there are: the samples of each, its tables, and the features of its corrections.

Fixed by hand after a look at what kernels do, and at leave-one-device-out errors of a few variants
(docs/measurements/2026-11-21-timing says which were tried). The knots follow the features' range in
the tables, never the times.
"""

from dataclasses import dataclass

import numpy as np

import law


@dataclass(frozen=True)
class Class:
    name: str
    kind: str  # of the samples
    sources: tuple
    rates: tuple  # empty: any
    tables: tuple  # ((features), (number of knots)) of the law for a device never seen
    device_tables: tuple  # of the law of a device with tables of its own
    correction: tuple  # features of Kriging


def _each(count, *names):
    return tuple(((name,), (count,)) for name in names)


GEMM = (*_each(8, "waves"), *_each(5, "k"), *_each(6, "intensity"), *_each(3, "wave_fill"), *_each(2, "m_fill"))
GEMM_DEVICE = (
    *_each(12, "waves"), *_each(8, "k"), *_each(10, "intensity"), *_each(6, "wave_fill"), *_each(3, "m_fill"),
    (("waves", "k"), (10, 7)), (("m", "n"), (10, 8)), (("m", "k"), (10, 7)),
)  # fmt: skip
GEMM_CORRECTION = ("waves", "k", "intensity", "wave_fill")
ROWS = _each(4, "width", "rows")
ROWS_DEVICE = (*_each(6, "width", "rows"), (("width", "rows"), (5, 5)))

CLASSES = (
    Class("gemm", "gemm", ("aiconfigurator", "vidur", "infersim"), (), GEMM, GEMM_DEVICE, GEMM_CORRECTION),
    # Corrected as bench/device corrects a processor's products: features that were settled there.
    Class("gemm_fp32", "gemm", ("neusight",), (), GEMM, GEMM_DEVICE, ("m", "n", "k")),
    Class(
        "attention_decode", "attention_decode", ("aiconfigurator", "infersim"), (),
        (*_each(6, "traffic_us"), *_each(5, "l2", "context", "sequences")),
        (*_each(10, "sequences", "context", "l2"), *_each(6, "sharing", "intensity"),
         (("sequences", "context"), (9, 9)), (("sharing", "context"), (5, 8)), (("sequences", "sharing"), (8, 5))),
        ("traffic_us", "context", "sequences"),
    ),
    Class(
        "attention_prefill", "attention_prefill", ("aiconfigurator",), (),
        (*_each(6, "waves", "context", "intensity"), *_each(4, "sharing"), *_each(3, "head_dim")),
        (*_each(10, "waves", "context", "l2"), *_each(6, "sharing", "intensity"), (("waves", "context"), (9, 9)),
         (("sharing", "context"), (5, 8)), (("waves", "sharing"), (8, 5)), (("head_dim", "context"), (5, 6))),
        ("waves", "context", "sharing", "intensity", "head_dim"),
    ),
    Class("elementwise", "elementwise", ("neusight", "vidur"), (), _each(4, "traffic_us"),
          _each(8, "traffic_us"), ("traffic_us",)),
    Class("normalization", "normalization", ("neusight",), (), ROWS, ROWS_DEVICE, ("width", "rows")),
    Class("softmax", "softmax", ("neusight",), (), ROWS, ROWS_DEVICE, ("width", "rows")),
    Class("rms_norm", "rms_norm", ("vidur",), (), _each(5, "traffic_us"), _each(8, "traffic_us"), ("traffic_us",)),
    Class("rope", "rope", ("vidur",), (), _each(5, "traffic_us"), _each(8, "traffic_us"), ("traffic_us",)),
    Class("gated_activation", "gated_activation", ("vidur",), (), _each(5, "traffic_us"),
          _each(8, "traffic_us"), ("traffic_us",)),
    Class("all_reduce", "all_reduce", ("vidur",), (), (*_each(10, "message"), *_each(2, "group")),
          (*_each(16, "message"), *_each(2, "group"), (("message", "group"), (12, 2))), ("message", "group")),
    Class("all_reduce_graph", "all_reduce_graph", ("aiconfigurator",), (), (*_each(10, "message"), *_each(2, "group")),
          (*_each(16, "message"), *_each(2, "group"), (("message", "group"), (12, 2))), ("message", "group")),
    Class("embedding", "embedding", ("vidur",), (), _each(5, "traffic_us"), _each(8, "traffic_us"), ("traffic_us",)),
)  # fmt: skip

RIDGE, SMOOTH = 1e-2, 1e-3  # of the law for devices never seen
DEVICE_RIDGE, DEVICE_SMOOTH = 1e-4, 1e-4
ROWS_MOST = 2000  # of each source and device
DEVICE_ROWS_MOST = 8000


def samples_of(cls, samples):
    return [s for s in samples if s.kind == cls.kind and s.source in cls.sources]


def design(tables, data, ridge, smooth):
    """Terms with knots at equal steps over the range of the data (1st to 99th percentile).

    A feature that the data do not vary is left out: it would be confounded with the intercept.
    """
    terms = []
    for names, counts in tables:
        ranges = [np.percentile(data.table[name], [1, 99]) for name in names]
        if all(high - low > 1e-3 for low, high in ranges):
            knots = tuple(np.linspace(*r, n).round(4) for r, n in zip(ranges, counts))
            terms.append(law.Term(tuple(names), knots))
    return law.Design.of(terms, data, ridge, smooth)

"""What recording scripts share: a profiler's file, kept without anything of the machine it was made on."""

import gzip
import json


def keep(source, target, spans_only=False):
    """Writes the trace or profile `source` as `target` (.json.gz), the same bytes whenever it is run,
    and removes `source`. spans_only leaves out everything that is no event with a duration."""
    document = json.loads(source.read_text())
    if isinstance(document, dict):
        document["host_name"] = "recorded"
        document["traceName"] = target.name.removesuffix(".gz")
        if spans_only:
            document["traceEvents"] = [event for event in document["traceEvents"]
                                       if event.get("ph") == "X"]
    with open(target, "wb") as file:
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
            packed.write(json.dumps(document, separators=(",", ":")).encode())
    source.unlink()

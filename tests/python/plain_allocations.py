"""What a step allocates on the CPU when nobody intercepts it: the profiler's memory events.

The profiler reports from inside the allocator, so no dispatch mode is active and PyTorch takes the
paths of a plain run. This is the measurement that the recorder is held against. The events include
the CPU kernels' own temporaries, which the recorder cannot see and a GPU does not make.
"""

import torch
from torch._C._profiler import _EventType


def plain_changes(run_step):
    """Runs the function; returns [(signed bytes, innermost aten operator)] in order of time."""
    with torch.profiler.profile(profile_memory=True,
                                activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run_step()
    changes = []

    def walk(node, operator):
        if node.tag == _EventType.Allocation:
            changes.append((node.start_time_ns, node.extra_fields.alloc_size, operator))
        name = node.name if node.tag == _EventType.TorchOp else operator
        for child in node.children:
            walk(child, name)

    for root in profile.profiler.kineto_results.experimental_event_tree():
        walk(root, "")
    changes.sort(key=lambda change: change[0])
    return [(size, operator) for _, size, operator in changes]


def recorded_changes(events):
    """The same of a recorder's events."""
    changes = []
    for event in events:
        changes += [(n, event["op"]) for n in event["allocs"] if n]
        changes += [(-n, event["op"]) for n in event["frees"] if n]
    return changes

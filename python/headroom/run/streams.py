"""What the program's streams wait for, told to the library: memory that one stream released may then
be another's without a look at the device (src/memory/stream_order.h).

PyTorch tells an allocator nothing of it, so the methods of torch.cuda.Event tell: recorded before,
waited for after (Stream.wait_event, wait_stream and record_event go through them). What C++ does by
itself is not seen; then less is known to be in order, and nothing is wrong.

Beside that the library may have one stream wait for another that is idle as far as it sees (joins).
Where ranks send to one another and receive, what a stream waits for may come only once another has
gone on, so from the first such call on it does not.
"""

import functools
import sys

_ORDER = "_headroom_order"  # of an event: (device, ticket), None where nothing is known
_SHARED = "_headroom_shared"  # of an event: it may be recorded where nobody sees it


def _is_pytorchs_own(stream):
    """Those live as long as the process; another one's handle may come again, as another stream's.
    PyTorch numbers its own oddly, but for the default one (c10/cuda/CUDAStream.cpp)."""
    return stream.stream_id == 0 or stream.stream_id & 1


class Follower:
    """Stands between torch.cuda.Event and the library."""

    def __init__(self, torch, library):
        self.torch, self.library = torch, library
        self.recorded, self.waited = library.order_functions()
        self.is_watching = False  # for what ranks send each other

    def ticket(self, event, stream):
        if not self.is_watching:
            self.watch_what_ranks_send()
        handle = getattr(stream, "cuda_stream", None)
        if handle is None or hasattr(event, _SHARED) or not _is_pytorchs_own(stream):
            return None
        device = stream.device_index
        ticket = self.recorded(device, handle)
        if ticket == 0 and self.torch.cuda.is_current_stream_capturing():
            share(event)  # replays may record it again
        return (device, ticket) if ticket else None

    def tell_of_wait(self, order, stream):
        handle = getattr(stream, "cuda_stream", None)
        if (handle is not None and order[0] == stream.device_index and _is_pytorchs_own(stream)):
            self.waited(order[0], handle, order[1])

    def watch_what_ranks_send(self):
        """Once torch.distributed is there."""
        distributed = sys.modules.get("torch._C._distributed_c10d")
        group = getattr(distributed, "ProcessGroup", None)
        if group is None:
            return
        self.is_watching = True
        for name in ("send", "recv", "recv_anysource"):
            call = getattr(group, name, None)
            if call is not None:
                setattr(group, name, self.then_without_joins(call))

    def then_without_joins(self, call):
        @functools.wraps(call)
        def calls(*arguments, **options):
            self.library.forbid_joins()
            return call(*arguments, **options)
        return calls


def share(event):
    """No more is known of it."""
    setattr(event, _SHARED, True)
    setattr(event, _ORDER, None)


def follow(torch, library):
    """From now on the library knows. Changes nothing where this PyTorch has no such class."""
    event_class = getattr(torch.cuda, "Event", None)
    if not all(hasattr(event_class, name) for name in ("record", "wait")):
        return
    follower = Follower(torch, library)
    current_stream = torch.cuda.current_stream
    record, wait = event_class.record, event_class.wait

    @functools.wraps(record)
    def record_and_tell(event, stream=None):
        stream = current_stream() if stream is None else stream
        # What it held is over; and where another thread records it meanwhile, neither is known.
        mine = object()
        setattr(event, _ORDER, mine)
        order = follower.ticket(event, stream)
        result = record(event, stream)
        setattr(event, _ORDER, order if getattr(event, _ORDER, None) is mine else None)
        return result

    @functools.wraps(wait)
    def wait_and_tell(event, stream=None):
        stream = current_stream() if stream is None else stream
        order = getattr(event, _ORDER, None)
        result = wait(event, stream)
        if isinstance(order, tuple) and order is getattr(event, _ORDER, None):
            follower.tell_of_wait(order, stream)
        return result

    event_class.record, event_class.wait = record_and_tell, wait_and_tell
    _watch_handles(event_class)
    follower.watch_what_ranks_send()


def _watch_handles(event_class):
    """Who asks for an event's handle may record it where nobody sees it. (So does who prints it.)"""
    handle = getattr(event_class, "cuda_event", None)
    if handle is not None:
        def share_handle(event):
            share(event)
            return handle.__get__(event, type(event))
        event_class.cuda_event = property(share_handle)
    ipc_handle = getattr(event_class, "ipc_handle", None)
    if ipc_handle is not None:
        @functools.wraps(ipc_handle)
        def share_with_processes(event):
            share(event)
            return ipc_handle(event)
        event_class.ipc_handle = share_with_processes
    from_ipc_handle = getattr(event_class, "from_ipc_handle", None)
    if from_ipc_handle is not None:
        def open_of_a_process(_, *arguments, **options):
            event = from_ipc_handle(*arguments, **options)
            share(event)
            return event
        event_class.from_ipc_handle = classmethod(open_of_a_process)

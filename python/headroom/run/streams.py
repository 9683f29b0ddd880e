"""What the program's streams wait for, told to the library: memory that one stream released may then
be another's without a look at the device (src/memory/stream_order.h).

PyTorch tells an allocator nothing of it, so the methods of torch.cuda.Event tell: recorded before,
waited for after (Stream.wait_event, wait_stream and record_event go through them). What C++ does by
itself is not seen; then less is known to be in order, and nothing is wrong.
"""

import functools

_ORDER = "_headroom_order"  # of an event: (device, ticket), None where nothing is known
_SHARED = "_headroom_shared"  # of an event: others have its handle, and may record it unseen


def _is_pytorchs_own(stream):
    """Those live as long as the process; another one's handle may come again, as another stream's.
    PyTorch numbers its own oddly, but for the default one (c10/cuda/CUDAStream.cpp)."""
    return stream.stream_id == 0 or stream.stream_id & 1


def follow(torch, library):
    """From now on the library knows. Changes nothing where this PyTorch has no such class."""
    event_class = getattr(torch.cuda, "Event", None)
    if not all(hasattr(event_class, name) for name in ("record", "wait")):
        return
    recorded, waited = library.order_functions()
    current_stream = torch.cuda.current_stream
    record, wait = event_class.record, event_class.wait

    def ticket(event, stream):
        handle = getattr(stream, "cuda_stream", None)
        if handle is None or hasattr(event, _SHARED) or not _is_pytorchs_own(stream):
            return None
        device = stream.device_index
        return device, recorded(device, handle)

    @functools.wraps(record)
    def record_and_tell(event, stream=None):
        stream = current_stream() if stream is None else stream
        setattr(event, _ORDER, None)  # what it held, until it is recorded anew
        order = ticket(event, stream)
        result = record(event, stream)
        setattr(event, _ORDER, order)
        return result

    @functools.wraps(wait)
    def wait_and_tell(event, stream=None):
        stream = current_stream() if stream is None else stream
        order = getattr(event, _ORDER, None)
        result = wait(event, stream)
        handle = getattr(stream, "cuda_stream", None)
        # Not where another thread records it meanwhile, nor on another device's stream.
        if (order is not None and order is getattr(event, _ORDER, None) and handle is not None
                and order[0] == stream.device_index and _is_pytorchs_own(stream)):
            waited(order[0], handle, order[1])
        return result

    event_class.record, event_class.wait = record_and_tell, wait_and_tell
    _watch_handles(event_class)


def _watch_handles(event_class):
    """Who asks for an event's handle may record it where nobody sees it: no more is known of it."""
    def share(event):
        setattr(event, _SHARED, True)
        setattr(event, _ORDER, None)

    handle = getattr(event_class, "cuda_event", None)
    if handle is not None:
        def share_handle(event):
            share(event)
            return handle.__get__(event, type(event))
        event_class.cuda_event = property(share_handle)
    ipc_handle = getattr(event_class, "ipc_handle", None)
    if ipc_handle is not None:
        @functools.wraps(ipc_handle)
        def share_between_processes(event):
            share(event)
            return ipc_handle(event)
        event_class.ipc_handle = share_between_processes


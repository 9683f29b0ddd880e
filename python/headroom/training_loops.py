"""Loops of the oracle other than the plain one: who steps, where, and what is frozen.

Each stands for what a user's program or a library does, written down by what it does to the
device's memory. Importing this imports torch: call fake_cuda.install() before.
"""

import torch


class StepInBackward:
    """One optimizer a parameter, which steps as the gradient arrives and lets it go."""

    def __init__(self, parameters, make):
        self._optimizers = {parameter: make([parameter]) for parameter in parameters}
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._hook)

    def _hook(self, parameter):
        optimizer = self._optimizers[parameter]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def step(self):
        """All was done in backward."""

    def zero_grad(self, set_to_none=True):
        """All was done in backward."""


class _HandsOn(torch.autograd.Function):
    """A loss whose gradient for the hidden states is there already."""

    @staticmethod
    def forward(ctx, hidden, gradient, loss):
        ctx.save_for_backward(gradient)
        return loss.detach()

    @staticmethod
    def backward(ctx, _):
        return ctx.saved_tensors[0], None, None


def head_in_chunks(head, hidden, labels, count):
    """The head and its loss, chunk by chunk of the sequence, each with its backward pass: what torchtitan's
    ChunkedLossWrapper (0.3.0) does on one device."""
    size = hidden.shape[1] // count
    chunks, targets = ([part.contiguous() for part in torch.split(whole, size, dim=1)] for whole in (hidden, labels))
    chunks = [chunk.detach().requires_grad_() for chunk in chunks]
    buffer = torch.zeros_like(hidden, dtype=torch.float32)
    total = hidden.new_zeros((), dtype=torch.float32)
    for index, (chunk, target) in enumerate(zip(chunks, targets)):
        logits = head(chunk)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten(0, 1), reduction="sum") / 1.0
        total = total + loss.detach()
        loss.backward()
        buffer[:, index * size:(index + 1) * size] = chunk.grad.to(torch.float32)
        chunk.grad = None
    return _HandsOn.apply(hidden, buffer.to(hidden.dtype), total)


class OptimizerOnCpu:
    """torchao's CPUOffloadOptimizer without offload_gradients: parameters of 4096 elements and more
    are stepped on the CPU (of which only the device's side is played here), small ones on the
    device by `make_small`."""

    SMALL = 4096

    def __init__(self, parameters, make_small):
        self._parameters = parameters
        small = [p for p in parameters if p.numel() < self.SMALL]
        self._small = make_small(small) if small else None
        self._copies = {p: torch.empty(p.shape, dtype=p.dtype) for p in parameters
                        if p.numel() >= self.SMALL}

    @torch.no_grad()
    def step(self):
        if self._small is not None:
            self._small.step()
        for parameter, copy in self._copies.items():
            copy.copy_(parameter.grad)
            parameter.copy_(copy)

    def zero_grad(self, set_to_none=True):
        for parameter in self._parameters:
            parameter.grad = None


def _matches(wanted, component):
    low, _, high = wanted.partition("-")
    is_range = low.isdigit() and high.isdigit() and component.isdigit()
    return wanted == component or (is_range and int(low) <= int(component) <= int(high))


def names_part(part, name):
    """Whether the dotted parts stand next to each other in a parameter's name; "0-3" is a range."""
    wanted, components = part.split("."), name.split(".")
    return any(all(map(_matches, wanted, components[i:]))
               for i in range(len(components) - len(wanted) + 1))


def freeze(model, parts):
    """requires_grad_(False) for every parameter that one of `parts` names."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if any(names_part(part, name) for part in parts):
            parameter.requires_grad_(False)


_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm")
_ATTENTION = ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
              "_scaled_dot_product_cudnn_attention")


def selective_contexts(kind):
    """The context_fn of a selective checkpoint: "selective" keeps what products and attention make,
    "selective-products" and "selective-attention" one of them, "selective-every-N" all but each
    N-th product (torchtitan's N is 2)."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    products = {getattr(torch.ops.aten, name).default for name in _PRODUCTS}
    attention = {getattr(torch.ops.aten, name).default for name in _ATTENTION}
    every = int(kind.rpartition("-")[2]) if kind.startswith("selective-every-") else 0

    def contexts():
        count = 0

        def policy(_context, operator, *_args, **_kwargs):
            nonlocal count
            keep = operator in attention and kind != "selective-products"
            if operator in products:
                count += 1
                keep = kind != "selective-attention" and not (every and count % every == 0)
            return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    return contexts

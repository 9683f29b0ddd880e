"""One decode step of a transformers model with a full cache: what `headroom bench decode` measures.

Each sequence of the batch has `context` tokens in the cache, the new one among them. The cache is
written in place, as serving engines do it, and what was in it before is random: no prompt is
processed, since what a step takes does not depend on values. The step ends with the logits.
"""

from headroom.nongemm_models import POOL_VALUES, Refused, vocabulary_of

ROOM = 0.6           # of the memory that is free: what weights and cache may take together
WEIGHTS_OF_ROOM = 0.5  # where the whole model does not fit: the rest is for the cache


def full_cache_class():
    """Of transformers, which is imported late: it takes seconds."""
    from transformers.cache_utils import CacheLayerMixin

    class FullLayer(CacheLayerMixin):
        """Keys and values of `context` tokens, of which each step writes the last ones."""

        def __init__(self, context, pour):
            super().__init__()
            self.context, self.pour = context, pour

        def lazy_initialization(self, key_states, value_states):
            self.keys, self.values = (
                self.pour(states.new_empty(*states.shape[:2], self.context, states.shape[3]))
                for states in (key_states, value_states))
            self.is_initialized = True

        def update(self, key_states, value_states, *_, **__):
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            self.keys[:, :, -1:], self.values[:, :, -1:] = key_states, value_states
            return self.keys, self.values

        def get_seq_length(self):
            return self.context - 1

        def get_mask_sizes(self, query_length):
            return self.context - 1 + query_length, 0

        def get_max_length(self):
            return self.context

    return FullLayer


def check_attention(config, context):
    """Refuses what a full cache would measure wrongly."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer
    text = config.get_text_config(decoder=True)
    for layer in DynamicCache(config=config).layers:
        window = getattr(layer, "sliding_window", None)
        is_whole = isinstance(layer, DynamicLayer) and (window is None or window >= context)
        if not is_whole:
            reason = f"a sliding window of {window} tokens" if window else type(layer).__name__
            raise Refused(f"not every layer attends to all {context} tokens: {reason}; give a shorter --context")
    places = getattr(text, "max_position_embeddings", None)
    if isinstance(places, int) and 0 < places < context:
        raise Refused(f"it has positions for {places} tokens, and --context is {context}")


def cache_bytes(config, layers, context, itemsize):
    """Of one sequence, as far as the configuration says; the cache itself is counted when it is there."""
    text = config.get_text_config(decoder=True)
    heads = getattr(text, "num_attention_heads", None) or 1
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    return 2 * layers * kv_heads * width * context * itemsize


def layers_that_fit(recipe, context, itemsize, free_bytes):
    """None for the whole model, else the number of its layers that leaves half of the room to the cache."""
    room, config = ROOM * free_bytes, recipe.config()
    weights = recipe.parameters() * itemsize
    if weights + cache_bytes(config, recipe.layers or 1, context, itemsize) <= room:
        return None
    if not recipe.layers:
        raise Refused(f"its weights of {weights / 2**30:.1f} GiB do not fit, and it is no single stack of layers")
    one, two = (recipe.parameters(layers) * itemsize for layers in (1, 2))
    layer, fixed = two - one, 2 * one - two
    fitting = int((WEIGHTS_OF_ROOM * room - fixed) // max(layer, 1))
    if fitting < 1:
        raise Refused(f"not even one layer fits: {one / 2**30:.1f} GiB of weights, and "
                      f"{free_bytes / 2**30:.1f} GiB of memory are free, of which {100 * ROOM * WEIGHTS_OF_ROOM:.0f} % "
                      "may be weights")
    return min(fitting, recipe.layers)


class Pour:
    """Fills tensors with random numbers at the speed of memory, and counts their bytes."""

    def __init__(self, torch, dtype, device):
        self.values = torch.randn(POOL_VALUES, generator=torch.Generator().manual_seed(2)).to(dtype).to(device)
        self.bytes = 0

    def __call__(self, tensor):
        flat = tensor.view(-1)
        for start in range(0, flat.numel(), POOL_VALUES):
            part = flat[start:start + POOL_VALUES]
            part.copy_(self.values[:part.numel()])
        self.bytes += flat.numel() * flat.element_size()
        return tensor


def make_step(machine, module, dtype, batch, context, free_bytes):
    """A function that makes one step, and the bytes of its cache. Refuses where the cache does not fit."""
    from transformers.cache_utils import Cache
    torch = machine.torch
    if not getattr(module, "can_generate", bool)():
        raise Refused("it does not decode: no language model with a cache")
    check_attention(module.config, context)
    layers = getattr(module.config.get_text_config(decoder=True), "num_hidden_layers", 1)
    needed = batch * cache_bytes(module.config, layers, context, dtype.itemsize)
    if needed > ROOM * free_bytes:
        raise Refused(f"does not fit: a cache of {needed / 2**30:.1f} GiB, and {free_bytes / 2**30:.1f} GiB of memory "
                      f"are free, of which it may take {100 * ROOM:.0f} %")
    pour, full_layer = Pour(torch, dtype, machine.device), full_cache_class()
    cache = Cache(layers=[full_layer(context, pour) for _ in range(layers)])
    words = torch.randint(vocabulary_of(module), (batch, 1), generator=torch.Generator().manual_seed(1))
    token = words.to(machine.device)

    def call():
        return module(token, past_key_values=cache, use_cache=True).logits
    call()  # fills the cache
    return call, pour.bytes

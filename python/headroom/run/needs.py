"""A look at the script, before it runs, for what an allocator behind PyTorch's C interface cannot do.
Where the shim was built for the PyTorch that is installed, what it serves is no need.

PyTorch's CUDAPluggableAllocator answers C++ callers of some questions with an exception (docs/run.md
has the list, with its source). Where the script's text asks for one of them, it is better to say so
now than hours later. The look is a reading of text: it parses the script and the modules beside it
that it imports (at most MOST_FILES), and nothing that is installed. It cannot see what is behind a
variable, a configuration file or a library; docs/run.md says so, and `unavailable.py` names the
rest where it is reached.
"""

import ast
import os
import re
import sys
from collections import namedtuple

Need = namedtuple("Need", "word place why")

MOST_FILES = 200
MOST_BYTES = 1 << 20

WHY = {
    "cudnn-benchmark": "cudnn.benchmark lets cuDNN ask for the largest free block, which PyTorch's "
                       "interface to other allocators cannot answer",
    "cuda-graph-trees": "torch.compile with CUDA graphs saves and restores the allocator's state, "
                        "which PyTorch's interface to other allocators cannot do",
    "cuda-ipc": "sharing CUDA tensors between processes needs the allocator's own handles, which "
                "PyTorch's interface to other allocators cannot give",
    "mempool": "torch.cuda.MemPool works in PyTorch's own allocator only",
    "profiler-memory": "profile_memory shows no device memory, as only PyTorch's own allocator tells "
                       "the profiler of it",
}

# What the shim serves. (CUDA IPC, for what lies in a MemPool, and for what others share.)
SERVED = ("cudnn-benchmark", "cuda-graph-trees", "mempool", "profiler-memory")

# A file without any of these is not parsed.
_TRIGGER = re.compile(rb"benchmark|reduce-overhead|max-autotune|cudagraphs|MemPool|profile_memory")
_GRAPH_MODES = ("reduce-overhead", "max-autotune")
_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import|import[ \t]+([\w., \t]+))", re.M)


def script_of(argv, original):
    """The file that Python was asked to run, or None: -c, a prompt, a module that is not a file."""
    words = list(argv or [])
    first = words[0] if words else ""
    if first == "-m" or (original and "-m" in original and first in ("-m", "")):
        place = original.index("-m") + 1 if original and "-m" in original else len(original or [])
        return _module_file(original[place]) if original and place < len(original) else None
    return first if first and os.path.isfile(first) else None


def _module_file(name, folders=None):
    parts = name.split(".")
    for folder in folders or [os.getcwd(), *sys.path]:
        stem = os.path.join(folder or ".", *parts)
        for candidate in (stem + ".py", os.path.join(stem, "__main__.py"),
                          os.path.join(stem, "__init__.py")):
            if os.path.isfile(candidate):
                return candidate
    return None


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read(MOST_BYTES)
    except OSError:
        return b""


def _imported_beside(content, folder):
    """Files in the script's own folder that it imports by name."""
    for match in _IMPORT.finditer(content):
        names = (match.group(1) or match.group(2)).decode("ascii", "replace")
        for name in names.split(","):
            words = name.split()
            found = _module_file(words[0], [folder]) if words and words[0].strip(".") else None
            if found:
                yield found


def _dotted(node):
    """"torch.backends.cudnn.benchmark" of an expression; "" where it is something else."""
    words = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(words)])


def _is_true(node):
    """Whether an expression may be true: everything but a plain False, None or 0."""
    return not (isinstance(node, ast.Constant) and not node.value)


def _of_assignment(node):
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    value = node.value
    if value is None or not _is_true(value):
        return
    for target in targets:
        name = _dotted(target)
        if name.endswith("cudnn.benchmark"):
            yield "cudnn-benchmark"
        if name.endswith("triton.cudagraphs"):
            yield "cuda-graph-trees"


def _turns_graphs_on(options):
    return isinstance(options, ast.Dict) and any(
        isinstance(key, ast.Constant) and key.value == "triton.cudagraphs" and _is_true(value)
        for key, value in zip(options.keys, options.values))


def _of_patch(node):
    """torch._inductor.config.patch: of a dictionary, of a name and its value, of **{...}."""
    pair = [node.args[:1], node.args[1:2]] if len(node.args) == 2 else [[], []]
    dictionaries = node.args[:1] + [word.value for word in node.keywords if not word.arg]
    if any(_turns_graphs_on(each) for each in [*dictionaries, ast.Dict(*pair)]):
        yield "cuda-graph-trees"


def _of_keyword(function, name, value):
    constant = value.value if isinstance(value, ast.Constant) else None
    if name == "profile_memory" and _is_true(value):
        yield "profiler-memory"
    # torch.backends.cudnn.flags, and Lightning's Trainer.
    if name == "benchmark" and _is_true(value):
        if "cudnn" in function or function.endswith("Trainer"):
            yield "cudnn-benchmark"
    # torch.compile, and transformers' TrainingArguments.
    if (name == "mode" and function.endswith("compile")) or name == "torch_compile_mode":
        if constant in _GRAPH_MODES:
            yield "cuda-graph-trees"
    if name == "options" and function.endswith("compile") and _turns_graphs_on(value):
        yield "cuda-graph-trees"


def _of_call(node):
    name = _dotted(node.func)
    for keyword in node.keywords:
        if keyword.arg:
            yield from _of_keyword(name, keyword.arg, keyword.value)
    if name.rsplit(".", 1)[-1] == "MemPool":
        yield "mempool"
    if name.endswith("config.patch"):
        yield from _of_patch(node)


def _of_node(node):
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        yield from _of_assignment(node)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)


def _spell_out(tree):
    """Names that an import made become what they stand for: `c` of `import torch.backends.cudnn as c`."""
    whole = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            whole.update({name.asname: name.name for name in node.names if name.asname})
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole.update({name.asname or name.name: f"{node.module}.{name.name}"
                          for name in node.names})
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = whole.get(node.id, node.id)


def look_at(path, content):
    """The needs that one file's text shows."""
    if not _TRIGGER.search(content):
        return
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # Python itself will say so
    _spell_out(tree)
    for node in ast.walk(tree):
        for word in _of_node(node):
            yield Need(word, f"{path}:{node.lineno}", WHY[word])


def of_environment(environment):
    """What the environment asks for that cannot go together with another allocator."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if "cudaMallocAsync" in environment.get(name, "").replace(" ", ""):
            yield Need("", name, "asks for CUDA's own asynchronous allocator in PyTorch's place")
    if environment.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        yield Need("", "PYTORCH_NO_CUDA_MEMORY_CACHING",
                   "asks PyTorch to take every tensor from the driver")
    for name, value in (("TORCHINDUCTOR_CUDAGRAPHS", ("1",)),
                        ("ACCELERATE_DYNAMO_MODE", _GRAPH_MODES)):
        if environment.get(name) in value:
            yield Need("cuda-graph-trees", name, WHY["cuda-graph-trees"])
    for name in ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
                 "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"):
        if environment.get(name, "").lower() in ("1", "true", "y", "yes", "t"):
            yield Need("", name, "has NCCL follow every allocation of PyTorch's own allocator")


def of_script(script):
    """The needs of a script and of the modules beside it that it imports."""
    folder = os.path.dirname(os.path.abspath(script))
    waiting, seen = [script], set()
    while waiting and len(seen) < MOST_FILES:
        path = waiting.pop()
        if os.path.abspath(path) in seen:
            continue
        seen.add(os.path.abspath(path))
        content = _read(path)
        yield from look_at(path, content)
        waiting.extend(_imported_beside(content, folder))


def look(accepted, environment):
    """What the program of this process needs and was not accepted."""
    script = script_of(getattr(sys, "argv", []), getattr(sys, "orig_argv", None))
    found = list(of_environment(environment)) + (list(of_script(script)) if script else [])
    found = [need for need in found
             if not need.word or (need.word not in accepted and "all" not in accepted)]
    global _left_to_the_shim
    _left_to_the_shim = []
    if found and _has_no_gpu():
        return []
    if not can_be_served(found) or not _has_shim(environment):
        return found
    _left_to_the_shim = [need for need in found if need.word in SERVED]
    return [need for need in found if need.word not in SERVED]


_left_to_the_shim = []


def left_to_the_shim():
    """What the last look took for no need because a shim is there, which may not get into its
    place."""
    return list(_left_to_the_shim)


def can_be_served(found):
    """Whether a shim would serve some of them."""
    return any(need.word in SERVED for need in found)


def _has_no_gpu():
    """Whether PyTorch is built without CUDA: then nothing is put into it, and nothing is amiss."""
    from headroom.run import shim  # not at every start of a Python
    return shim.torch_has_no_gpu()


def _has_shim(environment):
    from headroom.run import shim  # not at every start of a Python
    return bool(shim.find(shim.installed_torch(), environment))

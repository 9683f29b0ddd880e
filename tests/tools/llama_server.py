#!/usr/bin/env python3
"""llama.cpp's own server on this machine's processors, with a model of random weights.

    llama_server.py [--slots N] [--threads N] [--layers N] [--width N] [--model FILE] [--port N]

Writes a GGUF of random weights (no download), starts the server that the package xllamacpp embeds
(continuous batching, OpenAI's paths, /metrics), prints its address as its first line, and ends with
SIGTERM or SIGINT. What it writes means nothing; what it takes does: it is a real engine, whose steps
read real weights and caches. See tests/python/test_real_engine.py and docs/measurements.
"""

import argparse
import os
import signal
import sys
import tempfile
import threading

VOCABULARY = 2048
CONTEXT = 4096  # of a sequence, as the model says


def words():
    """A vocabulary of byte tokens and made-up words: every prompt has tokens, every answer text."""
    tokens, kinds = ["<unk>", "<s>", "</s>"], [2, 3, 3]
    for byte in range(256):
        tokens.append(f"<0x{byte:02X}>")
        kinds.append(6)
    letters = "aeioutnsrhldcmpgb"
    while len(tokens) < VOCABULARY:
        number = len(tokens)
        name = "".join(letters[number // 17 ** i % 17] for i in range(3))
        tokens.append("\u2581" + name)
        kinds.append(1)
    return tokens, kinds


def write_model(path, layers, width, seed=0):
    """A llama of so many layers: half as many key-value heads as heads, of 64 elements."""
    import gguf
    import numpy

    random = numpy.random.default_rng(seed)
    heads, inner = width // 64, 4 * width
    # Of its kernels on processors those for 4 bits multiply a batch together.
    kind = gguf.GGMLQuantizationType.Q4_0
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(max(1, heads // 2))
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(64)
    writer.add_vocab_size(VOCABULARY)
    tokens, kinds = words()
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def add(name, *shape):
        if len(shape) == 1:
            writer.add_tensor(name, numpy.ones(shape, dtype=numpy.float32))
        else:
            values = random.standard_normal(shape, dtype=numpy.float32) / numpy.sqrt(shape[-1])
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", VOCABULARY, width)
    cache = max(1, heads // 2) * 64
    for i in range(layers):
        layer = f"blk.{i}."
        add(layer + "attn_norm.weight", width)
        add(layer + "attn_q.weight", heads * 64, width)
        add(layer + "attn_k.weight", cache, width)
        add(layer + "attn_v.weight", cache, width)
        add(layer + "attn_output.weight", width, heads * 64)
        add(layer + "ffn_norm.weight", width)
        add(layer + "ffn_gate.weight", inner, width)
        add(layer + "ffn_up.weight", inner, width)
        add(layer + "ffn_down.weight", width, inner)
    add("output_norm.weight", width)
    add("output.weight", VOCABULARY, width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=512, help="of each slot's context")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--model", help="where the GGUF is, or is to be written")
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args()

    import xllamacpp

    folder = None
    path = asked.model
    if not path:
        folder = tempfile.TemporaryDirectory()
        path = os.path.join(folder.name, "random.gguf")
    if not os.path.exists(path):
        write_model(path, asked.layers, asked.width)
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_parallel = asked.slots
    params.n_ctx = asked.slots * asked.tokens
    # One cache for all slots, as the commands of `headroom batch` have it. With a cache of its own for each slot a
    # step takes only slots that are neighbours together, and the rest one behind another (llama.cpp's split_equal).
    params.kv_unified = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = asked.threads
    params.endpoint_metrics = True
    params.port = asked.port
    params.warmup = False
    params.n_gpu_layers = 0
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    done.wait()
    if folder:
        folder.cleanup()
    os._exit(0)  # what is still being written to nobody need not be finished


if __name__ == "__main__":
    sys.exit(main())

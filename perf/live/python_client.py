#!/usr/bin/env python3
"""A Python client beside ours: asyncio, and aiohttp or httpx, as the load generators of vLLM (aiohttp)
and GuideLLM (httpx) are built.

    python_client.py aiohttp|httpx URL STREAMS SECONDS

The same closed loop of short streamed answers; each event is parsed by json and stamped. One JSON
object: chunks by second, and by second of this process's processor time.
"""

import asyncio
import json
import resource
import sys
import time


class Count:
    chunks = 0
    requests = 0


def body(number):
    return {"model": "test", "prompt": f"{number} " + "the " * 60, "max_tokens": 60 + number % 2 * 80,
            "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
            "ignore_eos": True}


def take(line, stamps, count):
    if not line.startswith("data: ") or line == "data: [DONE]":
        return
    event = json.loads(line[6:])
    if event["choices"] and event["choices"][0]["text"]:
        stamps.append(time.perf_counter())
        count.chunks += 1


async def aiohttp_slot(session, url, until, count):
    while time.perf_counter() < until:
        count.requests += 1
        stamps = []
        async with session.post(url, json=body(count.requests)) as answer:
            async for line in answer.content:
                take(line.decode().strip(), stamps, count)


async def httpx_slot(client, url, until, count):
    while time.perf_counter() < until:
        count.requests += 1
        stamps = []
        async with client.stream("POST", url, json=body(count.requests)) as answer:
            async for line in answer.aiter_lines():
                take(line, stamps, count)


async def drive(kind, url, streams, seconds, count):
    until = time.perf_counter() + seconds
    if kind == "aiohttp":
        import aiohttp
        async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=600)) as session:
            await asyncio.gather(*(aiohttp_slot(session, url, until, count) for _ in range(streams)))
    else:
        import httpx
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=600) as client:
            await asyncio.gather(*(httpx_slot(client, url, until, count) for _ in range(streams)))


def main():
    kind, url, streams, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    count = Count()

    def processor():
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    before, began = processor(), time.perf_counter()
    asyncio.run(drive(kind, url + "/v1/completions", streams, seconds, count))
    used, passed = processor() - before, time.perf_counter() - began
    print(json.dumps({"client": kind, "streams": streams, "chunks": count.chunks, "seconds": passed,
                      "processor_seconds": used, "chunks_per_second": count.chunks / passed,
                      "chunks_per_processor_second": count.chunks / used}))


if __name__ == "__main__":
    main()

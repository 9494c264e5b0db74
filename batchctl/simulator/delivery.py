"""Putting answers on the wire, whole or damaged as a fault rule asks."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from batchctl.simulator.blobs import BlobStore
from batchctl.simulator.codec import encode
from batchctl.simulator.editing import edited
from batchctl.simulator.http import Download, Reply

_CHUNK = 1 << 16


def cut(request: web.Request) -> web.StreamResponse:
    """Reset the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def send_slowly(
    request: web.Request, reply: Reply, headers: dict[str, str], rule: dict[str, Any]
) -> web.StreamResponse:
    """Send an answer in small pieces with pauses."""
    response = web.StreamResponse(status=reply.status, headers=headers)
    response.content_type = reply.content_type
    response.content_length = len(reply.body)
    await response.prepare(request)
    await _write_pieces(response, reply.body, rule.get("bytes", 16), rule.get("delay", 0.01))
    return response


async def send_download(
    request: web.Request, download: Download, blobs: BlobStore, headers: dict[str, str], rule: dict[str, Any]
) -> web.StreamResponse:
    """Stream a blob, or the damaged form of it that a rule asks for."""
    response = web.StreamResponse(headers=headers)
    if not rule.get("no_content_type"):
        response.content_type = download.content_type
    action = rule.get("action")
    if action is None:
        return await _stream(request, response, download, blobs)
    with blobs.open(download.blob) as source:
        data = source.read()
    if action == "lines":
        data = damaged_lines(data, rule)
    if action == "edit":
        data = edited(data, rule)
    if action == "truncate":
        return await _send_truncated(request, response, data, rule)
    if not rule.get("no_content_type"):
        response.content_length = len(data)
    await response.prepare(request)
    if action == "slow":
        await _write_pieces(response, data, rule.get("bytes", 64), rule.get("delay", 0.01))
    else:
        await response.write(data)
    await response.write_eof()
    return response


async def _stream(
    request: web.Request, response: web.StreamResponse, download: Download, blobs: BlobStore
) -> web.StreamResponse:
    response.content_length = blobs.size(download.blob)
    await response.prepare(request)
    with blobs.open(download.blob) as source:
        while chunk := source.read(_CHUNK):
            await response.write(chunk)
    await response.write_eof()
    return response


async def _send_truncated(
    request: web.Request, response: web.StreamResponse, data: bytes, rule: dict[str, Any]
) -> web.StreamResponse:
    part = data[: rule.get("bytes", len(data) // 2)]
    announced = rule.get("content_length", True)
    if announced:
        response.content_length = len(data)
    await response.prepare(request)
    await response.write(part)
    if announced and len(part) < len(data):
        # The full length was promised, so closing now is what a broken connection looks like.
        if request.transport is not None:
            request.transport.close()
        return response
    await response.write_eof()
    return response


async def _write_pieces(response: web.StreamResponse, data: bytes, size: int, delay: float) -> None:
    for start in range(0, len(data), size):
        await response.write(data[start : start + size])
        await asyncio.sleep(delay)


def damaged_lines(data: bytes, rule: dict[str, Any]) -> bytes:
    """Apply a `lines` rule: the first lines are dropped or repeated, odd lines are put in between."""
    lines = data.rstrip(b"\n").split(b"\n")
    lines = lines[rule.get("drop", 0) :]
    lines += lines[: rule.get("duplicate", 0)]
    odd = [b"" for _ in range(rule.get("blank", 0))]
    odd += [_stranger(lines[0], number) for number in range(rule.get("unknown", 0)) if lines]
    odd += [b'{"result":{"type":"errored"},"error":"boom"}' for _ in range(rule.get("no_id", 0))]
    odd += [b'{"custom_id": "cut' for _ in range(rule.get("junk", 0))]
    if rule.get("line_separators"):
        odd.append(encode({"custom_id": "separators", "note": "\u2028\u2029\x85"}))
    for place, line in enumerate(odd):
        lines.insert(min(1 + 2 * place, len(lines)), line)
    ending = b"\r\n" if rule.get("crlf") else b"\n"
    return b"".join(line + ending for line in lines)


def _stranger(line: bytes, number: int) -> bytes:
    """Make a line for an id nobody sent, otherwise like a real one."""
    head, _, rest = line.partition(b'"custom_id":"')
    _, quote, tail = rest.partition(b'"')
    return head + b'"custom_id":"stranger-%d' % number + quote + tail

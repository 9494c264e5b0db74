"""An instant provider: answers every call with the same message, in as little time as Python can.

Run as `python -m benchmarks.fanout_server PORT`; GET /count tells how many calls there were, GET /dead makes the
key bad.
"""

from __future__ import annotations

import asyncio
import sys
from typing import ClassVar, cast

MESSAGE = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5",'
    b'"content":[{"type":"text","text":"%b"}],"stop_reason":"end_turn","stop_sequence":null,'
    b'"usage":{"input_tokens":120,"output_tokens":60,"cache_read_input_tokens":0,"cache_creation_input_tokens":0}}'
) % (b"word " * 60)
CHAT = (
    b'{"id":"c1","object":"chat.completion","created":1,"model":"gpt-5-mini","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"%b"}}],"usage":{"prompt_tokens":120,"completion_tokens":60,'
    b'"total_tokens":180}}'
) % (b"word " * 60)
REFUSAL = b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'


def reply(status: bytes, body: bytes) -> bytes:
    """A whole HTTP answer."""
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


class Instant(asyncio.Protocol):
    """One connection; requests are whole when their announced length is there."""

    calls: ClassVar[int] = 0
    dead: ClassVar[bool] = False
    answers: ClassVar[dict[bytes, bytes]] = {b"/v1/messages": reply(b"200 OK", MESSAGE)}
    chat: ClassVar[bytes] = reply(b"200 OK", CHAT)
    refusal: ClassVar[bytes] = reply(b"401 Unauthorized", REFUSAL)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._data = b""

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 : at + 30].split(b"\r\n")[0]) if at >= 0 else 0
            if len(self._data) < end + 4 + length:
                return
            path = self._data[: self._data.index(b"\r\n")].split(b" ")[1].split(b"?")[0]
            self._data = self._data[end + 4 + length :]
            self._transport.write(self._answer(path))

    def _answer(self, path: bytes) -> bytes:
        kind = type(self)
        if path == b"/count":
            return reply(b"200 OK", b"%d" % kind.calls)
        if path == b"/dead":
            kind.dead = True
            return reply(b"200 OK", b"0")
        kind.calls += 1
        if kind.dead:
            return self.refusal
        return self.answers.get(path, self.chat)


async def main(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Instant, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(int(sys.argv[1])))
    else:
        uvloop.run(main(int(sys.argv[1])))

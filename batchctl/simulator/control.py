"""The simulator's own endpoints under /simulator/: ledger, violations, stats, state, faults, clock."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from batchctl.simulator.codec import encode
from batchctl.simulator.world import World


class Control:
    """Handlers of the control endpoints; they need no key."""

    def __init__(self, world: World) -> None:
        self._world = world

    def routes(self) -> list[web.RouteDef]:
        """Give the routes."""
        return [
            web.get("/simulator/ledger", self._ledger),
            web.get("/simulator/violations", self._violations),
            web.get("/simulator/stats", self._stats),
            web.get("/simulator/state", self._state),
            web.post("/simulator/faults", self._faults),
            web.post("/simulator/clock", self._clock),
        ]

    async def _ledger(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "application/x-ndjson"
        await response.prepare(request)
        for entry in self._world.ledger():
            await response.write(encode(entry) + b"\n")
        await response.write_eof()
        return response

    async def _violations(self, request: web.Request) -> web.Response:
        with_custom_id = request.query.get("custom_id", "") in ("1", "true", "yes")
        return _json(self._world.violations(with_custom_id=with_custom_id))

    async def _stats(self, _request: web.Request) -> web.Response:
        return _json(self._world.stats())

    async def _state(self, _request: web.Request) -> web.Response:
        return _json(self._world.state())

    async def _faults(self, request: web.Request) -> web.Response:
        try:
            self._world.set_faults(await request.json())
        except (ValueError, TypeError, AttributeError) as error:
            return _json({"error": str(error)}, status=400)
        return _json({"faults": self._world.services.faults.source})

    async def _clock(self, request: web.Request) -> web.Response:
        try:
            seconds = float((await request.json())["advance"])
            self._world.advance(seconds)
        except (ValueError, KeyError, TypeError):
            return _json({"error": 'expected {"advance": seconds} with seconds of at least 0'}, status=400)
        return _json({"now": self._world.services.clock.now()})


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=encode(value), status=status, content_type="application/json")

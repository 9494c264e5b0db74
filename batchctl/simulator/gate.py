"""The way every provider call takes: faults before, credentials, the handler, faults after, the answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web

from batchctl.simulator.batches import Batches
from batchctl.simulator.delivery import cut, send_download, send_slowly
from batchctl.simulator.editing import edited
from batchctl.simulator.errors import ANTHROPIC, ApiError, named_error
from batchctl.simulator.http import Download, Handler, Reply
from batchctl.simulator.services import Services, new_id

_CHANGES_DELIVERY = ("slow", "truncate", "lines", "edit")
_HANG_STEP = 0.02


class Gate:
    """Wraps handlers into routes and counts the calls."""

    def __init__(self, services: Services, batches: Batches) -> None:
        self._services = services
        self._batches = batches
        self.calls: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()

    def route(self, api: str, name: str, handler: Handler) -> Callable[[web.Request], Any]:
        """Make the route of one endpoint; its full name is what fault rules match."""
        endpoint = f"{api}.{name}"

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await self._handle(api, endpoint, handler, request)
            except ConnectionError:
                # The client left in the middle of its request: nothing was accepted, nobody listens.
                return cut(request)

        return handle

    async def _handle(self, api: str, endpoint: str, handler: Handler, request: web.Request) -> web.StreamResponse:
        self.calls[endpoint] += 1
        clock = self._services.clock
        self._batches.catch_up(clock.now())
        rule = await self._rule(endpoint, request)
        if rule and rule["action"] not in _CHANGES_DELIVERY and rule.get("when", "before") == "before":
            return await self._fail(api, rule, request)
        request_id = new_id("req_")
        headers = {"Date": clock.http_date(), "request-id" if api == ANTHROPIC else "x-request-id": request_id}
        try:
            check_key(api, endpoint, request)
            outcome = await handler(request)
        except ApiError as error:
            if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                # A client that is still sending would see a broken pipe instead of the refusal.
                await _drain(request)
            outcome = Reply(error.body(api, request_id), error.status, error.headers)
        if rule and rule.get("when") == "after":
            if isinstance(outcome, Reply) and outcome.on_sent:
                outcome.on_sent(False)
            return await self._fail(api, rule, request)
        if isinstance(outcome, Download):
            self.statuses[f"{endpoint} 200"] += 1
            return await send_download(request, outcome, self._services.blobs, headers, rule or {})
        return await self._send(request, endpoint, outcome, headers, rule)

    async def _send(
        self, request: web.Request, endpoint: str, reply: Reply, headers: dict[str, str], rule: dict[str, Any] | None
    ) -> web.StreamResponse:
        self.statuses[f"{endpoint} {reply.status}"] += 1
        headers.update(reply.headers)
        body = edited(reply.body, rule) if rule and rule["action"] == "edit" else reply.body
        if rule and rule["action"] == "slow":
            response = await send_slowly(request, reply, headers, rule)
        else:
            response = web.Response(body=body, status=reply.status, headers=headers, content_type=reply.content_type)
        if reply.on_sent:
            reply.on_sent(request.transport is not None and not request.transport.is_closing())
        return response

    async def _rule(self, endpoint: str, request: web.Request) -> dict[str, Any] | None:
        faults = self._services.faults
        if not faults.source.get("calls"):
            return None
        body = b""
        if faults.reads_bodies and not request.content_type.startswith("multipart/"):
            body = await request.read()
        clock = self._services.clock
        rule = faults.for_call(endpoint, clock.now() - clock.started_at, body)
        if rule:
            self.fired[f"{endpoint} {rule['action']}"] += 1
        return rule

    async def _fail(self, api: str, rule: dict[str, Any], request: web.Request) -> web.StreamResponse:
        action = rule["action"]
        if action == "drop":
            await _read_some(request, rule.get("after_bytes", 0))
            return cut(request)
        if action == "hang":
            await _hang(request, rule.get("seconds", 3600.0))
            return cut(request)
        headers = {"Date": self._services.clock.http_date()} | rule.get("headers", {})
        if rule.get("when", "before") == "before":
            await request.read()
        if action == "html":
            page = f"<html><head><title>{rule.get('status', 502)} Bad Gateway</title></head><body>nginx</body></html>"
            return web.Response(text=page, status=rule.get("status", 502), headers=headers, content_type="text/html")
        if "body" in rule:
            return web.Response(text=rule["body"], status=rule["status"], headers=headers)
        error = named_error(rule["name"], api) if action == "error" else _status_error(rule)
        return web.Response(
            body=error.body(api, new_id("req_")),
            status=error.status,
            headers=error.headers | headers,
            content_type="application/json",
        )


def _status_error(rule: dict[str, Any]) -> ApiError:
    return ApiError(
        rule["status"],
        rule.get("message", f"Simulated error {rule['status']}"),
        kind=rule.get("type"),
        code=rule.get("code"),
        param=rule.get("param"),
    )


def check_key(api: str, endpoint: str, request: web.Request) -> None:
    """Check the credential: any key is good but `bad-key`, and `no-batch-key` on batch endpoints."""
    key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not key or key == "bad-key":
        message = "invalid x-api-key" if api == ANTHROPIC else "Incorrect API key provided."
        raise ApiError(401, message)
    if key == "no-batch-key" and ".batches." in endpoint:
        raise ApiError(403, "Your API key does not have permission to use the batch endpoints.")


async def _drain(request: web.Request) -> None:
    while await request.content.readany():
        pass


async def _read_some(request: web.Request, most: int) -> None:
    seen = 0
    while seen < most and (chunk := await request.content.readany()):
        seen += len(chunk)


async def _hang(request: web.Request, seconds: float) -> None:
    """Keep silent until the time is up or the client has gone."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    # Nothing tells a handler that its client has left, so it has to look.
    while loop.time() < until and request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110
        await asyncio.sleep(min(_HANG_STEP, max(until - loop.time(), 0)))

"""The HTTP server: both providers' routes and the control routes on one port."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

from aiohttp import web

from batchctl.simulator.anthropic_api import AnthropicApi
from batchctl.simulator.config import SimulatorConfig
from batchctl.simulator.control import Control
from batchctl.simulator.errors import ANTHROPIC, OPENAI, ApiError
from batchctl.simulator.http import Reply, json_reply
from batchctl.simulator.openai_api import OpenAiApi
from batchctl.simulator.openai_files_api import OpenAiFilesApi
from batchctl.simulator.openai_shapes import ANSWERED
from batchctl.simulator.world import World


class Simulator:
    """One simulator on the running event loop."""

    def __init__(self, config: SimulatorConfig | None = None) -> None:
        self.config = config or SimulatorConfig()
        self.world = World(self.config)
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Root address."""
        return f"http://{self.config.host}:{self.port}"

    async def start(self) -> None:
        """Listen; afterwards `url` is known."""
        runner = web.AppRunner(_application(self.world), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, self.config.host, self.config.port, backlog=1024)
        await site.start()
        self.port = runner.addresses[0][1]
        self._runner = runner

    async def stop(self) -> None:
        """Close all connections and the data folder."""
        if self._runner:
            await self._runner.cleanup()
        self.world.close()


def serve(config: SimulatorConfig) -> None:
    """Run until SIGINT or SIGTERM; print one line with the address once it listens."""
    asyncio.run(_serve(config))


async def _serve(config: SimulatorConfig) -> None:
    simulator = Simulator(config)
    await simulator.start()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    sys.stdout.write(f"simulator listening on {simulator.url} (Anthropic), {simulator.url}/v1 (OpenAI)\n")
    sys.stdout.flush()
    await stopped.wait()
    await simulator.stop()


def _application(world: World) -> web.Application:
    # Each handler checks sizes itself, by its provider's own limit.
    app = web.Application(client_max_size=1 << 40)
    app.add_routes(Control(world).routes())
    app.add_routes(_anthropic_routes(world))
    app.add_routes(_openai_routes(world))
    app.router.add_route("*", "/{path:.*}", world.gate.route(OPENAI, "unknown", _unknown))
    return app


def _anthropic_routes(world: World) -> list[web.RouteDef]:
    api = AnthropicApi(world.services, world.batches, world.renderer, world.sync)
    gate = world.gate
    batches = "/v1/messages/batches"
    one = batches + "/{batch_id}"
    return [
        web.post("/v1/messages", gate.route(ANTHROPIC, "messages", api.message)),
        web.post("/v1/messages/count_tokens", gate.route(ANTHROPIC, "count_tokens", api.count_tokens)),
        web.post(batches, gate.route(ANTHROPIC, "batches.create", api.create)),
        web.get(batches, gate.route(ANTHROPIC, "batches.list", api.list)),
        web.get(one, gate.route(ANTHROPIC, "batches.retrieve", api.retrieve)),
        web.delete(one, gate.route(ANTHROPIC, "batches.delete", api.delete)),
        web.post(one + "/cancel", gate.route(ANTHROPIC, "batches.cancel", api.cancel)),
        web.get(one + "/results", gate.route(ANTHROPIC, "batches.results", api.results)),
        web.get("/v1/models/{model}", _model_route(world, api)),
    ]


def _openai_routes(world: World) -> list[web.RouteDef]:
    api = OpenAiApi(world.services, world.batches, world.files, world.sync)
    files = OpenAiFilesApi(world.services, world.files, world.renderer)
    gate = world.gate
    one_file = "/v1/files/{file_id}"
    one_batch = "/v1/batches/{batch_id}"
    answered = [
        web.post(path, gate.route(OPENAI, path.removeprefix("/v1/").replace("/", "."), api.answer)) for path in ANSWERED
    ]
    return [
        *answered,
        web.post("/v1/responses/input_tokens", gate.route(OPENAI, "input_tokens", api.input_tokens)),
        web.post("/v1/files", gate.route(OPENAI, "files.upload", files.upload)),
        web.get("/v1/files", gate.route(OPENAI, "files.list", files.list)),
        web.get(one_file, gate.route(OPENAI, "files.retrieve", files.retrieve)),
        web.delete(one_file, gate.route(OPENAI, "files.delete", files.delete)),
        web.get(one_file + "/content", gate.route(OPENAI, "files.content", files.content)),
        web.post("/v1/batches", gate.route(OPENAI, "batches.create", api.create)),
        web.get("/v1/batches", gate.route(OPENAI, "batches.list", api.list)),
        web.get(one_batch, gate.route(OPENAI, "batches.retrieve", api.retrieve)),
        web.post(one_batch + "/cancel", gate.route(OPENAI, "batches.cancel", api.cancel)),
    ]


def _model_route(world: World, api: AnthropicApi) -> Any:
    """Serve the one path that both providers have; Anthropic's clients always send a version."""
    theirs = world.gate.route(ANTHROPIC, "models.retrieve", api.model)
    ours = world.gate.route(OPENAI, "models.retrieve", _openai_model)

    async def route(request: web.Request) -> web.StreamResponse:
        chosen = theirs if "anthropic-version" in request.headers else ours
        response: web.StreamResponse = await chosen(request)
        return response

    return route


async def _openai_model(request: web.Request) -> Reply:
    name = request.match_info["model"]
    return json_reply({"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "simulator"})


async def _unknown(request: web.Request) -> Reply:
    raise ApiError(404, f"Invalid URL ({request.method} {request.path})")

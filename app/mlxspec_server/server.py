"""The routes of the server, access checks, and the answers that are not replies."""

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from mlxspec.params import GenerationParams
from mlxspec_server.answering import CLIENT_GONE, UNBUFFERED, Answers
from mlxspec_server.apis.base import Api
from mlxspec_server.apis.completions import ChatCompletion, Completion
from mlxspec_server.apis.messages import Message, message_chat, message_tools
from mlxspec_server.apis.responses import OpenAIResponse
from mlxspec_server.body import Body, Refusal, received_body
from mlxspec_server.engine_thread import EngineThread
from mlxspec_server.feed import MOST_WATCHERS, Feed
from mlxspec_server.page.document import live_page, page_headers
from mlxspec_server.settings import LAST_REPLIES_S, ServerSettings
from mlxspec_server.shelf import Offer, Shelf
from mlxspec_server.turns import chat_prompt

_FREE = ("/", "/health")  # need no key: the page holds no data, and asks for the key
_ROOM_S = 10  # after this time a watcher may have left
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")

Act = Callable[[Request], Awaitable[Response]]

APIS: dict[str, Callable[[Body, GenerationParams], Api]] = {
    "/v1/chat/completions": ChatCompletion,
    "/chat/completions": ChatCompletion,  # as mlx-lm's server
    "/v1/completions": Completion,
    "/v1/responses": OpenAIResponse,
    "/v1/messages": Message,
}


class Server:
    """The server of one process."""

    def __init__(self, shelf: Shelf, settings: ServerSettings) -> None:
        self.settings, self.feed = settings, Feed()
        self.thread = EngineThread(shelf, self.feed.publish)
        self.answers = Answers(settings, self.thread, self.feed)

    def app(self) -> Starlette:
        post: dict[str, Act] = {path: partial(self._reply, api) for path, api in APIS.items()}
        post["/v1/messages/count_tokens"] = self._count_tokens
        get: dict[str, Act] = {
            "/": self._page,
            "/v1/models": self._models,
            "/v1/models/{name:path}": self._model,
            "/v1/events": self._events,
            "/health": self._health,
            "/metrics": self._metrics,
        }
        routes = [
            Route(path, partial(self._guarded, act), methods=[method])
            for method, acts in (("POST", post), ("GET", get))
            for path, act in acts.items()
        ]
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(self.settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
        )
        return Starlette(
            routes=routes,
            middleware=[cors] if self.settings.origins else [],
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _no_route, Exception: _fault},
        )

    async def end_replies(self) -> None:
        """End endless streams now, and the running replies after their grace period."""
        self.feed.close()
        await asyncio.sleep(LAST_REPLIES_S)
        self.thread.end_replies()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.thread.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.thread.stop)

    # ---- replies ---------------------------------------------------------------------------

    async def _reply(
        self, read: Callable[[Body, GenerationParams], Api], request: Request
    ) -> Response:
        received = await received_body(request, self.settings.max_body_bytes)
        defaults = self.settings.params
        api = await asyncio.to_thread(lambda: read(Body.of(received), defaults))
        return await self.answers.answer(request, api)

    # ---- other answers ---------------------------------------------------------------------

    async def _count_tokens(self, request: Request) -> Response:
        received = await received_body(request, self.settings.max_body_bytes)
        body = await asyncio.to_thread(Body.of, received)
        chat, tools = message_chat(body), message_tools(body).tools
        loaded = await self.answers.hold(body.text("model"))
        try:
            params = self.settings.params
            prompt = await asyncio.to_thread(chat_prompt, loaded, chat, tools, params)
        finally:
            self.thread.release(loaded)
        return JSONResponse({"input_tokens": len(prompt.tokens)})

    async def _page(self, request: Request) -> Response:
        page = await asyncio.to_thread(live_page)
        return HTMLResponse(page, headers=page_headers())

    async def _models(self, request: Request) -> Response:
        offers = await asyncio.to_thread(self.thread.shelf.offers)
        return JSONResponse({"object": "list", "data": [_row(offer) for offer in offers]})

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        return JSONResponse(_row(await asyncio.to_thread(self.thread.shelf.find, name)))

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _metrics(self, request: Request) -> Response:
        gauges = {"replies_running": self.thread.num_replies}
        return PlainTextResponse(self.feed.metrics(gauges))

    async def _events(self, request: Request) -> Response:
        if self.feed.is_full:
            message = f"{MOST_WATCHERS} clients watch already, which is the limit: close one"
            raise Refusal(503, message, retry_s=_ROOM_S)
        lines = self.feed.lines(self.settings.keep_alive_s)
        return StreamingResponse(lines, media_type="text/event-stream", headers=UNBUFFERED)

    # ---- guards ----------------------------------------------------------------------------

    async def _guarded(self, act: Act, request: Request) -> Response:
        try:
            self._check_host(request)
            self._check_key(request)
            return await act(request)
        except Refusal as refusal:
            self.feed.counts["refused"] += 1
            return refusal.answer(request.url.path)
        except ClientDisconnect:
            return Response(status_code=CLIENT_GONE)  # while it sent its body

    def _check_host(self, request: Request) -> None:
        """Refuse an unknown host name: a web page can point one at this machine (DNS rebinding)."""
        name = _called(request)
        if self.settings.is_loopback and name not in (*_THIS_MACHINE, *self.settings.hosts):
            raise Refusal(
                400,
                f"the request calls this server {name!r}, not localhost: if that is right, start "
                f"it with --allowed-hosts {name or 'NAME'}",
            )

    def _check_key(self, request: Request) -> None:
        key = self.settings.api_key
        if not key or request.url.path in _FREE:
            return
        stated = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        stated = stated or request.headers.get("x-api-key", "")
        if not hmac.compare_digest(stated.encode(), key.encode()):
            raise Refusal(401, "this server needs a key: Authorization: Bearer KEY")


def _called(request: Request) -> str:
    stated = request.headers.get("host", "")  # `request.url` replaces an invalid host
    try:
        return urlsplit(f"//{stated}").hostname or ""
    except ValueError:
        return stated


def _row(offer: Offer) -> dict[str, Any]:
    return {"id": offer.name, "object": "model", "created": 0, "owned_by": "mlxspec"}


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "the handler is that of this exception"
    message = f"{request.method} {request.url.path[:100]}: {error.detail}; see docs/serving.md"
    return Refusal(error.status_code, message).answer(request.url.path, error.headers)


async def _fault(request: Request, error: Exception) -> Response:
    """Return the answer after an unexpected error; details go to the log only."""
    message = "the server failed: its log says where; this is a mistake of mlxspec"
    return Refusal(500, message).answer(request.url.path)

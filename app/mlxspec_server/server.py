"""The routes: from a request to a model that is held, a prompt, and a reply that is told."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from mlxspec_server.apis.base import Api
from mlxspec_server.apis.chat import ChatCompletion, chat_ask, chosen_tools
from mlxspec_server.apis.completions import Completion, completion_ask
from mlxspec_server.apis.messages import Message, message_ask, message_chat, message_tools
from mlxspec_server.apis.responses import (
    ResponsesReply,
    response_ask,
    response_chat,
    response_tools,
)
from mlxspec_server.asking import Ask
from mlxspec_server.body import Body, read_body
from mlxspec_server.engine_thread import EngineThread
from mlxspec_server.feed import Feed
from mlxspec_server.figures import Counts
from mlxspec_server.pieces import Piece
from mlxspec_server.prompts import chat_messages, chat_tokens, raw_tokens
from mlxspec_server.refusals import Refusal
from mlxspec_server.settings import ServerSettings
from mlxspec_server.shelf import Loaded, Shelf
from mlxspec_server.writing import Writing

_RETRY_S = 2
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_FREE = ("/health",)  # routes that need no key
_THIS_MACHINE = ["localhost", "127.0.0.1", "[::1]", "testserver"]

Begin = Callable[[Loaded], tuple[Writing, Api]]
"""Makes the prompt of a request for the model that it holds."""


@dataclass
class Server:
    """The server of one process.

    Attributes:
        settings: Its settings.
        thread: Writes the replies.
        feed: Tells them to those who watch.
        counts: What was done so far.
    """

    settings: ServerSettings
    thread: EngineThread
    feed: Feed
    counts: Counts
    _num_asked: int = 0  # replies of requests that are not answered yet; those that wait too

    @staticmethod
    def of(shelf: Shelf, settings: ServerSettings) -> "Server":
        """Return a server over some models; its thread begins with the app."""
        feed, counts = Feed(), Counts()
        return Server(settings, EngineThread(shelf, counts, feed.publish), feed, counts)

    def app(self) -> Starlette:
        """Return the app, which an ASGI server runs."""
        post = {
            "/v1/chat/completions": self._chat,
            "/chat/completions": self._chat,  # mlx-lm's server has this one too
            "/v1/completions": self._completion,
            "/v1/responses": self._response,
            "/v1/messages": self._message,
            "/v1/messages/count_tokens": self._count_tokens,
        }
        get = {
            "/v1/models": self._models,
            "/v1/events": self._events,
            "/health": self._health,
            "/metrics": self._metrics,
        }
        routes = [
            Route(path, partial(self._guarded, act), methods=[method])
            for method, acts in (("POST", post), ("GET", get))
            for path, act in acts.items()
        ]
        return Starlette(routes=routes, middleware=self._middleware(), lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.thread.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.thread.stop)

    def _middleware(self) -> list[Middleware]:
        found = []
        if self.settings.is_loopback:  # a page that names this machine otherwise is an attack
            found.append(Middleware(TrustedHostMiddleware, allowed_hosts=_THIS_MACHINE))
        if self.settings.origins:
            origins = list(self.settings.origins)
            methods, headers = ["GET", "POST"], ["*"]
            found.append(
                Middleware(
                    CORSMiddleware,
                    allow_origins=origins,
                    allow_methods=methods,
                    allow_headers=headers,
                )
            )
        return found

    # ---- routes ----------------------------------------------------------------------------

    async def _chat(self, request: Request) -> Response:
        body = await read_body(request, self.settings.max_body_bytes)
        ask, messages = chat_ask(body, self.settings.params), chat_messages(body)
        tools = chosen_tools(body)
        tell = partial(ChatCompletion, tells_usage=_tells_usage(body))
        return await self._reply(request, ask, self._in_chat(ask, messages, tools, tell))

    async def _completion(self, request: Request) -> Response:
        body = await read_body(request, self.settings.max_body_bytes)
        ask, usage = completion_ask(body, self.settings.params), _tells_usage(body)

        def begin(loaded: Loaded) -> tuple[Writing, Api]:
            writing = Writing(self.thread, loaded, ask, raw_tokens(loaded, body.get("prompt")))
            return writing, Completion(writing, tells_usage=usage)

        return await self._reply(request, ask, begin)

    async def _response(self, request: Request) -> Response:
        body = await read_body(request, self.settings.max_body_bytes)
        ask, messages = response_ask(body, self.settings.params), response_chat(body)
        begin = self._in_chat(ask, messages, response_tools(body), ResponsesReply)
        return await self._reply(request, ask, begin)

    async def _message(self, request: Request) -> Response:
        body = await read_body(request, self.settings.max_body_bytes)
        ask, messages = message_ask(body, self.settings.params), message_chat(body)
        begin = self._in_chat(ask, messages, message_tools(body), Message)
        return await self._reply(request, ask, begin)

    async def _count_tokens(self, request: Request) -> Response:
        body = await read_body(request, self.settings.max_body_bytes)
        messages, tools = message_chat(body), message_tools(body)
        loaded = await self._hold(body.text("model"))
        try:
            tokens = await asyncio.to_thread(chat_tokens, loaded, messages, tools, {})
        finally:
            self.thread.release(loaded)
        return JSONResponse({"input_tokens": len(tokens)})

    async def _models(self, request: Request) -> Response:
        offers = await asyncio.to_thread(self.thread.shelf.offers)
        rows = [
            {"id": offer.name, "object": "model", "created": 0, "owned_by": "mlxspec"}
            for offer in offers
        ]
        return JSONResponse({"object": "list", "data": rows})

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _metrics(self, request: Request) -> Response:
        gauges = {"replies_running": self.thread.num_replies}
        return PlainTextResponse(self.counts.as_text(gauges))

    async def _events(self, request: Request) -> Response:
        lines = self.feed.lines(self.settings.keep_alive_s)
        return StreamingResponse(lines, media_type="text/event-stream", headers=_UNBUFFERED)

    # ---- a reply ---------------------------------------------------------------------------

    def _in_chat(
        self,
        ask: Ask,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        tell: Callable[[Writing], Api],
    ) -> Begin:
        """Return what begins the replies in a chat, which `tell` tells."""

        def begin(loaded: Loaded) -> tuple[Writing, Api]:
            tokens = chat_tokens(loaded, messages, tools, ask.params.chat_template_args)
            writing = Writing(self.thread, loaded, ask, tokens, tools)
            return writing, tell(writing)

        return begin

    async def _reply(self, request: Request, ask: Ask, begin: Begin) -> Response:
        running = self._num_asked
        if running + ask.num_replies > self.settings.batch_size + self.settings.max_waiting:
            message = f"the server has {running} replies to write: ask again later"
            raise Refusal(429, message, retry_s=_RETRY_S)
        self.counts.add("requests")
        self._num_asked += ask.num_replies
        beginning = asyncio.ensure_future(self._begun(ask, begin))
        if ask.is_streamed:
            # Where it is known soon, a refusal has its own status; while a model loads, the
            # stream begins, so that the client sees that the server is alive.
            await asyncio.wait({beginning}, timeout=self.settings.keep_alive_s)
            if beginning.done():
                beginning.result()
            lines = self._stream(request, beginning)
            return StreamingResponse(lines, media_type="text/event-stream", headers=_UNBUFFERED)
        writing, api = await beginning
        try:
            pieces: list[Piece] = []
            async with aclosing(writing.pieces(request, self.settings.keep_alive_s)) as found:
                pieces = [piece async for piece in found if piece is not None]
        finally:
            self._leave(writing.loaded, ask)
        if sum(piece.kind == "end" for piece in pieces) < ask.num_replies:
            return Response(status_code=499)  # the client has gone
        return JSONResponse(api.whole(pieces))

    async def _begun(self, ask: Ask, begin: Begin) -> tuple[Writing, Api]:
        try:
            loaded = await self._hold(ask.model)
        except BaseException:
            self._num_asked -= ask.num_replies
            raise
        try:
            return begin(loaded)
        except BaseException:
            self._leave(loaded, ask)
            raise

    def _leave(self, loaded: Loaded, ask: Ask) -> None:
        """Say that a request is answered, or left by its client."""
        self._num_asked -= ask.num_replies
        self.thread.release(loaded)

    async def _hold(self, name: str) -> Loaded:
        offer = await asyncio.to_thread(self.thread.shelf.find, name)
        return await asyncio.wrap_future(self.thread.hold(offer))

    async def _stream(
        self, request: Request, beginning: "asyncio.Future[tuple[Writing, Api]]"
    ) -> AsyncIterator[str]:
        every_s = self.settings.keep_alive_s
        try:
            while not beginning.done():
                yield ": the model is loading\n\n"
                await asyncio.wait({beginning}, timeout=every_s)
        except BaseException:  # the client has gone, the model comes
            beginning.add_done_callback(self._release_begun)
            raise
        try:
            writing, api = beginning.result()
        except Refusal as refusal:
            yield f"data: {json.dumps(_error_body(refusal, is_message=False))}\n\n"
            return
        try:
            for line in api.begin():
                yield line
            async with aclosing(writing.pieces(request, every_s)) as pieces:
                async for piece in pieces:
                    for line in api.keep_alive() if piece is None else api.tell(piece):
                        yield line
            for line in api.end():
                yield line
        except Refusal as refusal:
            for line in api.fail(str(refusal)):
                yield line
        finally:
            self._leave(writing.loaded, writing.ask)

    def _release_begun(self, beginning: "asyncio.Future[tuple[Writing, Api]]") -> None:
        if not beginning.cancelled() and beginning.exception() is None:
            writing, _ = beginning.result()
            self._leave(writing.loaded, writing.ask)

    # ---- guards ----------------------------------------------------------------------------

    async def _guarded(
        self, act: Callable[[Request], Awaitable[Response]], request: Request
    ) -> Response:
        is_message = request.url.path.startswith("/v1/messages")
        try:
            self._check_key(request)
            return await act(request)
        except Refusal as refusal:
            self.counts.add("refused")
            headers = {"Retry-After": str(refusal.retry_s)} if refusal.retry_s else {}
            return JSONResponse(
                _error_body(refusal, is_message), status_code=refusal.status, headers=headers
            )

    def _check_key(self, request: Request) -> None:
        key = self.settings.api_key
        if not key or request.url.path in _FREE:
            return
        stated = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        stated = stated or request.headers.get("x-api-key", "")
        if not hmac.compare_digest(stated.encode(), key.encode()):
            raise Refusal(401, "this server needs a key: Authorization: Bearer KEY")


def _tells_usage(body: Body) -> bool:
    return Body(body.object("stream_options")).is_on("include_usage")


def _error_body(refusal: Refusal, is_message: bool) -> dict[str, object]:
    """Return an error in the words of the API that was asked."""
    kind = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}.get(
        refusal.status, "server_error" if refusal.status >= 500 else "invalid_request_error"
    )
    error = {"type": kind, "message": str(refusal)}
    if is_message:
        return {"type": "error", "error": error}
    return {"error": {**error, "param": refusal.param or None, "code": refusal.status}}

"""Answers requests: holds a model, builds the prompt, and sends the reply, streamed or whole.

Slow preparation, such as tokenising a long prompt or compiling a large schema, runs in a thread of
its own, so that the streams of other requests continue.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from mlxspec_server.apis.base import Api, event
from mlxspec_server.asking import Ask
from mlxspec_server.engine_thread import EngineThread
from mlxspec_server.figures import Counts
from mlxspec_server.pieces import Piece
from mlxspec_server.refusals import Refusal
from mlxspec_server.settings import ServerSettings
from mlxspec_server.shelf import Loaded
from mlxspec_server.writing import Writing

UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers of a stream: no proxy on the way may buffer it."""

CLIENT_GONE = 499
"""Status of an answer whose client has disconnected (nginx uses this number)."""

_RETRY_S = 2

Begin = Callable[[Loaded], tuple[Writing, Api]]
"""Builds the prompt of a request for the model that it holds. Runs in a worker thread."""


@dataclass
class Answers:
    """Answers the requests of one server."""

    settings: ServerSettings
    thread: EngineThread
    counts: Counts
    _num_asked: int = 0  # replies of all unanswered requests, queued ones included

    async def hold(self, name: str) -> Loaded:
        """Return a model once it is in memory; `EngineThread.release` releases it.

        Raises:
            Refusal: No model has that name, or it cannot be loaded.
        """
        offer = await asyncio.to_thread(self.thread.shelf.find, name)
        return await asyncio.wrap_future(self.thread.hold(offer))

    async def answer(self, request: Request, ask: Ask, begin: Begin) -> Response:
        """Return the answer to a request.

        Raises:
            Refusal: The request cannot be answered, or the server is busy.
        """
        running, most = self._num_asked, self.settings.batch_size + self.settings.max_waiting
        if ask.num_replies > most:
            message = f"a request may ask for {most} replies; got {ask.num_replies}: ask for fewer"
            raise Refusal(400, message, "n")
        if running + ask.num_replies > most:
            message = f"the server has {running} replies to write: ask again later"
            raise Refusal(429, message, retry_s=_RETRY_S)
        self.counts.add("requests")
        self._num_asked += ask.num_replies
        beginning = asyncio.ensure_future(self._begun(ask, begin))
        if ask.is_streamed:
            return await self._streamed(request, beginning)
        writing, api = await beginning
        try:
            pieces: list[Piece] = []
            async with aclosing(writing.pieces(request, self.settings.keep_alive_s)) as found:
                pieces = [piece async for some in found for piece in some]
        finally:
            self._leave(writing.loaded, ask)
        if sum(piece.kind == "end" for piece in pieces) < ask.num_replies:
            return Response(status_code=CLIENT_GONE)
        return JSONResponse(api.whole(pieces), headers=writing.headers)

    async def _begun(self, ask: Ask, begin: Begin) -> tuple[Writing, Api]:
        try:
            loaded = await self.hold(ask.model)
        except BaseException:
            self._num_asked -= ask.num_replies
            raise
        try:
            return await asyncio.to_thread(begin, loaded)
        except BaseException:
            self._leave(loaded, ask)
            raise

    def _leave(self, loaded: Loaded, ask: Ask) -> None:
        """Count a request as finished, answered or abandoned, and release its model."""
        self._num_asked -= ask.num_replies
        self.thread.release(loaded)

    async def _streamed(
        self, request: Request, beginning: "asyncio.Future[tuple[Writing, Api]]"
    ) -> Response:
        # A refusal that comes soon has its own HTTP status. While a model loads, the stream starts
        # at once, so that the client sees that the server is alive.
        await asyncio.wait({beginning}, timeout=self.settings.keep_alive_s)
        headers = beginning.result()[0].headers if beginning.done() else {}
        lines = self._stream(request, beginning)
        headers = {**UNBUFFERED, **headers}
        return StreamingResponse(lines, media_type="text/event-stream", headers=headers)

    async def _stream(
        self, request: Request, beginning: "asyncio.Future[tuple[Writing, Api]]"
    ) -> AsyncIterator[str]:
        every_s = self.settings.keep_alive_s
        try:
            while not beginning.done():
                yield ": the model is loading\n\n"
                await asyncio.wait({beginning}, timeout=every_s)
        except BaseException:  # the client has disconnected; the model may still be loading
            beginning.add_done_callback(self._release_begun)
            raise
        try:
            writing, api = beginning.result()
        except Refusal as refusal:
            yield _refused(request.url.path, refusal)
            return
        try:
            for line in api.begin():
                yield line
            async with aclosing(writing.pieces(request, every_s)) as pieces:
                async for some in pieces:
                    lines = [line for piece in some for line in api.tell(piece)]
                    yield "".join(lines if some else api.keep_alive())  # one packet a round
            for line in api.end():
                yield line
        except Refusal as refusal:
            for line in api.fail(refusal):
                yield line
        finally:
            self._leave(writing.loaded, writing.ask)

    def _release_begun(self, beginning: "asyncio.Future[tuple[Writing, Api]]") -> None:
        if not beginning.cancelled() and beginning.exception() is None:
            writing, _ = beginning.result()
            self._leave(writing.loaded, writing.ask)


def _refused(path: str, refusal: Refusal) -> str:
    """Return what a stream that has already started sends when its request is refused."""
    if path == "/v1/responses":
        said = {"code": refusal.code or refusal.kind, "message": str(refusal)}
        return event({"type": "error", "sequence_number": 0, "param": None, **said}, "error")
    document = refusal.body(path)
    return event(document, document.get("type", ""))

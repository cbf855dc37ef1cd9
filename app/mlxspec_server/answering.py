"""Answers requests: holds a model, builds the prompt, and sends the reply, streamed or whole.

Slow preparation, such as tokenising a long prompt or compiling a large schema, runs in a thread of
its own, so that the streams of other requests continue.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from mlxspec_server.apis.base import Api, ends_of
from mlxspec_server.body import Refusal
from mlxspec_server.engine_thread import EngineThread
from mlxspec_server.feed import Feed
from mlxspec_server.pieces import Piece
from mlxspec_server.settings import ServerSettings
from mlxspec_server.shelf import Loaded
from mlxspec_server.writing import Writing

UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers of a stream: no proxy on the way may buffer it."""

CLIENT_GONE = 499
"""Status of an answer whose client has disconnected (nginx uses this number)."""

_RETRY_S = 2

Beginning = asyncio.Future[Writing]
"""The replies to a request, once the model is held and their prompts are checked."""


@dataclass
class Answers:
    """Answers the requests of one server."""

    settings: ServerSettings
    thread: EngineThread
    feed: Feed
    _num_asked: int = 0  # replies of all unanswered requests, queued ones included

    async def hold(self, name: str) -> Loaded:
        """Return a model once it is in memory; `EngineThread.release` releases it."""
        offer = await asyncio.to_thread(self.thread.shelf.find, name)
        return await asyncio.wrap_future(self.thread.hold(offer))

    async def answer(self, request: Request, api: Api) -> Response:
        ask = api.ask
        running, most = self._num_asked, self.settings.batch_size + self.settings.max_waiting
        if ask.num_replies > most:
            message = f"a request may ask for {most} replies; got {ask.num_replies}: ask for fewer"
            raise Refusal(400, message, "n")
        if running + ask.num_replies > most:
            message = f"the server has {running} replies to write: ask again later"
            raise Refusal(429, message, retry_s=_RETRY_S)
        self.feed.counts["requests"] += 1
        self._num_asked += ask.num_replies
        beginning = asyncio.ensure_future(self._begun(api))
        if ask.is_streamed:
            # A refusal that comes soon has its own HTTP status. While a model loads, the stream
            # starts at once, so that the client sees that the server is alive.
            await asyncio.wait({beginning}, timeout=self.settings.keep_alive_s)
            headers = UNBUFFERED | (beginning.result().headers if beginning.done() else {})
            lines = self._stream(request, api, beginning)
            return StreamingResponse(lines, media_type="text/event-stream", headers=headers)
        writing = await beginning
        try:
            pieces: list[Piece] = []
            async with aclosing(writing.pieces(request, self.settings.keep_alive_s)) as found:
                pieces = [piece async for some in found for piece in some]
        finally:
            self._leave(writing)
        if len(ends_of(pieces)) < ask.num_replies:
            return Response(status_code=CLIENT_GONE)
        return JSONResponse(api.whole(pieces), headers=writing.headers)

    async def _begun(self, api: Api) -> Writing:
        try:
            loaded = await self.hold(api.ask.model)
            try:
                api.writing = await asyncio.to_thread(Writing, self.thread, loaded, api.ask)
            except BaseException:
                self.thread.release(loaded)
                raise
        except BaseException:
            self._num_asked -= api.ask.num_replies
            raise
        return api.writing

    def _leave(self, writing: Writing) -> None:
        """Count a request as finished, answered or abandoned, and release its model."""
        self._num_asked -= writing.ask.num_replies
        self.thread.release(writing.loaded)

    async def _stream(self, request: Request, api: Api, beginning: Beginning) -> AsyncIterator[str]:
        every_s = self.settings.keep_alive_s
        try:
            while not beginning.done():
                yield ": the model is loading\n\n"
                await asyncio.wait({beginning}, timeout=every_s)
        except BaseException:  # the client has disconnected; the model may still be loading
            beginning.add_done_callback(self._leave_begun)
            raise
        try:
            writing = beginning.result()
        except Refusal as refusal:
            yield "".join(api.fail(refusal))
            return
        ends: list[Piece] = []
        try:
            for line in api.begin():
                yield line
            async with aclosing(writing.pieces(request, every_s)) as pieces:
                async for some in pieces:
                    ends = ends_of([*ends, *some])
                    lines = [line for piece in some for line in api.tell(piece)]
                    yield "".join(lines if some else api.keep_alive())  # one packet a round
            if len(ends) == writing.ask.num_replies:  # else the client has disconnected
                for line in api.end(ends):
                    yield line
        except Refusal as refusal:
            yield "".join(api.fail(refusal))
        finally:
            self._leave(writing)

    def _leave_begun(self, beginning: Beginning) -> None:
        if not beginning.cancelled() and beginning.exception() is None:
            self._leave(beginning.result())

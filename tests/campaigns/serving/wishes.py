"""Requests of every kind: all routes, text, JSON under a schema, tools; shared beginnings too."""

from tests.campaigns.serving.asking import Refused, asked

_BEGINNINGS = ("You are an agent. " * 20, "The harbour log. " * 8, "")
_KEYS = ("name", "count", "ready", "tags", "next")


def ask(server, draw):
    """Ask for something and read all of the answer; return the route, or why it is refused."""
    path = draw.choice([*_BODIES])
    body = {
        **_BODIES[path](_text(draw), draw),
        "model": server.model,
        "stream": draw.random() < 0.5,
        "temperature": draw.choice((0, 0.8, 1.2)),
    }
    try:
        with asked(server.url, path, body) as response:
            response.read()
    except Refused as refused:
        return f"refused, {str(refused)[:90]}"
    return path


def _text(draw):
    """Return a prompt: a beginning that others have too, and words of its own."""
    words = ("pier", "lamp", "rope", "bell", "crane", "fender", str(draw.randrange(10**6)))
    own = " ".join(draw.choices(words, k=draw.choice((1, 4, 16, 60, 120))))
    return draw.choice(_BEGINNINGS) + own


def _chat(text, draw):
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": _length(draw)}
    kind = draw.random()
    if kind < 0.3:
        schema = {"name": "answer", "schema": _schema(draw)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind < 0.5:
        function = {"name": draw.choice(_KEYS), "parameters": _schema(draw)}
        body["tools"] = [{"type": "function", "function": function}]
    elif kind < 0.7:
        body |= {"logprobs": True, "top_logprobs": 3, "n": draw.choice((1, 2, 3))}
    return body


def _plain(text, draw):
    return {"prompt": text, "max_tokens": _length(draw), "stop": ["zz"]}


def _message(text, draw):
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": _length(draw)}
    if draw.random() < 0.3:
        body["tools"] = [{"name": draw.choice(_KEYS), "input_schema": _schema(draw)}]
    return body | {"system": draw.choice(_BEGINNINGS)}


def _response(text, draw):
    return {"input": text, "max_output_tokens": max(16, _length(draw))}


_BODIES = {
    "/v1/chat/completions": _chat,
    "/v1/completions": _plain,
    "/v1/messages": _message,
    "/v1/responses": _response,
}


def _length(draw):
    return draw.choice((1, 4, 12, 40, 100))


def _schema(draw):
    """Return a schema; there are many, so that compiled ones are dropped too."""
    kinds = ({"type": "integer"}, {"type": "boolean"}, {"enum": ["a", "b"]}, {"type": "null"})
    names = [f"{key}{draw.randrange(20)}" for key in draw.sample(_KEYS, k=draw.randint(1, 3))]
    own = {name: draw.choice(kinds) for name in names}
    return {"type": "object", "properties": own, "required": names}

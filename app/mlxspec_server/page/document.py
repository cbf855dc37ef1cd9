"""Builds the live page: one file that loads nothing from elsewhere.

Its content security policy lists the digests of its scripts and styles. It allows no others, no
inline handlers, and connections to this server only.
"""

import base64
import hashlib
from functools import cache
from importlib import resources
from string import Template

from mlxspec_app.export.looks import page_part, tints

_SCRIPTS = ("replies.js", "asking.js", "drawing.js", "live.js")
_ELSEWHERE = "base-uri 'none'; form-action 'none'; img-src data:; connect-src 'self'"


@cache
def live_page() -> str:
    """Return the page with scripts and styles inside."""
    script = page_part("page_tree.js") + "".join(map(_part, _SCRIPTS))
    frame = page_part("page_frame.css", "page_tree.css")
    style = f"{tints()}\n{frame}{_part('live.css')}"
    script = f'"use strict";\n{script}'
    digests = f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
    return Template(_part("live.html")).substitute(
        policy=f"default-src 'none'; {digests}; {_ELSEWHERE}", style=style, script=script
    )


def page_headers() -> dict[str, str]:
    """Return the HTTP headers of the page, which state what a policy inside it cannot."""
    return {
        "Content-Security-Policy": "frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


def _part(name: str) -> str:
    return resources.files("mlxspec_server.page").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"

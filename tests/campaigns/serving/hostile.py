"""Hostile clients beside honest ones: nothing grows, and no reply is mixed with another.

One client of three cancels, stalls, disconnects, sends half a request or nonsense. One asks for
replies, greedy and sampled, on all routes, streamed and not, and compares each with what the
library alone wrote before the server began. One asks for all that a server can write. The last
figures of each minute are printed: they are the curve of the server's memory.
"""

import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from random import Random

import mlxspec
from tests.campaigns.serving.attacks import attack
from tests.campaigns.serving.honest import reply_to, routes_of, true_requests
from tests.campaigns.serving.servers import (
    at_rest,
    dtype_of,
    model_folder,
    our_flags,
    sampled,
    served,
)
from tests.campaigns.serving.wishes import ask
from tests.campaigns.soak_figures import Bound, growth

BOUNDS = (
    Bound("rss_mb", 0.05, 20.0),
    Bound("threads", 0.0, 2.0),
    Bound("files", 0.10, 4.0),
)
"""Connections come and go, and Python begins threads when they are needed first."""
WARM_UP = 0.2  # share of the samples that is not judged: caches fill
_SHOWN_EVERY_S = 60.0
_ROWS = "64MB"  # so that beginnings of texts are dropped too
_MORE_AT_REST = 1  # open files or threads at the end over those at the beginning


def growths(samples):
    """Return how figures grew from the first third after the warm-up to the last one.

    Empty for fewer than six samples.
    """
    judged = samples[round(len(samples) * WARM_UP) :]
    return [growth(judged, bound.name, bound, parts=3) for bound in BOUNDS if len(judged) > 5]


class Findings:
    """What the clients met: what was done, how often, and what must not happen, in words."""

    def __init__(self):
        self.acts, self.faults = Counter(), []
        self._lock = threading.Lock()

    def of(self, act, *args):
        """Let a client do something, and note what it says; any error is a fault."""
        try:
            said = act(*args)
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {error}")
            return
        with self._lock:
            self.acts[said] += 1


def run(args):
    """Let the clients work for some minutes, and judge."""
    with model_folder(args.model) as folder:
        with mlxspec.load(folder, drafter="none", dtype=dtype_of(folder)) as engine:
            requests = true_requests(engine, args.requests, args.seed)
        print(f"{len(requests)} replies of the library are known", file=sys.stderr)
        flags = [*our_flags(folder, args), "--prompt-cache-bytes", _ROWS]
        with served([*flags, "--log-level", "ERROR"]) as server:
            findings = Findings()
            ways = [
                (one, *way) for one in requests for way in product(routes_of(one), (False, True))
            ]
            with ThreadPoolExecutor(args.clients) as pool:  # fills the caches, begins all threads
                list(pool.map(lambda way: findings.of(_compare, server, *way), ways))
            before = at_rest(server)
            with sampled(server, args.every) as samples:
                _let_loose(server, requests, findings, args, samples)
            return _judged(samples, findings, before, at_rest(server))


def _let_loose(server, requests, findings, args, samples):
    end = time.monotonic() + 60 * args.minutes

    def be_honest(draw):
        request = draw.choice(requests)
        way = request, draw.choice(routes_of(request)), draw.random() < 0.5
        findings.of(_compare, server, *way)

    def be_hostile(draw):
        findings.of(attack, server, draw)

    def be_curious(draw):
        findings.of(ask, server, draw)

    def go_on(be, draw):
        while time.monotonic() < end:
            be(draw)

    kinds = [(be_honest, be_hostile, be_curious)[index % 3] for index in range(args.clients)]
    threads = [
        threading.Thread(target=go_on, args=(kind, Random(seed)))
        for seed, kind in enumerate(kinds, args.seed * 1000)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_SHOWN_EVERY_S)
            last = ", ".join(f"{name} {value:.3g}" for name, value in dict(*samples[-1:]).items())
            print(f"{last}; {dict(findings.acts)}, {len(findings.faults)} faults", file=sys.stderr)


def _compare(server, request, route, is_streamed):
    text = reply_to(server, request, route, is_streamed)
    assert text == request.text, f"{route.path}, {request}: {text!r}"
    return "honest, as the library"


def _judged(samples, findings, before, after):
    """Print the verdict, and return all of it."""
    print(", ".join(f"{count} {act}" for act, count in findings.acts.most_common()))
    grown = growths(samples)
    print(f"\n  {'':18}{'first 1/3':>12}{'last 1/3':>12}{'per hour':>12}")
    for one in grown:
        print(one.row)
    print(f"  at rest before: {before}\n  at rest after:  {after}")
    faults = list(findings.faults)
    faults += [f"{one.name} grew" for one in grown if not one.is_allowed]
    faults += [] if grown else ["too few samples for a verdict: let it run for longer"]
    for name in ("files", "threads"):
        if after[name] > before[name] + _MORE_AT_REST:
            faults.append(f"{name} at rest: {before[name]:.0f}, then {after[name]:.0f}")
    print("\n".join(f"FAULT: {fault[:1000]}" for fault in faults))
    print(f"verdict: {f'{len(faults)} faults' if faults else 'flat, and no reply is mixed'}")
    told = {"acts": dict(findings.acts), "faults": faults, "samples": samples}
    return told | {"before": before, "after": after, "is_good": not faults}

"""Hostile clients beside honest ones: nothing grows, and no reply is mixed with another.

One client of three cancels, stalls, disconnects, sends half a request or nonsense. One asks for
replies, greedy and sampled, on all routes, streamed and not, and compares each with what the
library alone wrote before the server began. One asks for all that a server can write. The last
figures of each minute are printed: they are the curve of the server's memory.
"""

import sys
import threading
import time
from argparse import Namespace
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

import mlxspec
from tests.campaigns.serving.attacks import attack
from tests.campaigns.serving.figures import growths
from tests.campaigns.serving.honest import Request, all_ways, reply_to, routes_of, true_requests
from tests.campaigns.serving.load import our_flags
from tests.campaigns.serving.model import dtype_of, model_folder
from tests.campaigns.serving.process import Served, served
from tests.campaigns.serving.watching import Sample, Sampler, at_rest
from tests.campaigns.serving.wishes import ask

_SHOWN_EVERY_S = 60.0
_ROWS = "64MB"  # so that beginnings of texts are dropped too
_MORE_AT_REST = 1  # open files or threads at the end over those at the beginning


@dataclass
class Findings:
    """What the clients met.

    Attributes:
        acts: What was done, and how often.
        faults: What must not happen, in words.
    """

    acts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, act: str) -> None:
        """Count an act."""
        with self._lock:
            self.acts[act] += 1


def run(args: Namespace) -> dict[str, Any]:
    """Let the clients work for some minutes, and judge."""
    with model_folder(args.model) as folder:
        with mlxspec.load(folder, drafter="none", dtype=dtype_of(folder)) as engine:
            requests = true_requests(engine, args.requests, args.seed)
        print(f"{len(requests)} replies of the library are known", file=sys.stderr)
        flags = [*our_flags(folder, args), "--prompt-cache-bytes", _ROWS]
        with served([*flags, "--log-level", "ERROR"]) as server:
            return _judged(server, requests, args)


def _judged(server: Served, requests: list[Request], args: Namespace) -> dict[str, Any]:
    findings = Findings()
    with ThreadPoolExecutor(args.clients) as pool:  # fills the caches, begins all threads
        list(pool.map(lambda way: _compare(server, *way, findings), all_ways(requests)))
    before = at_rest(server)
    with Sampler(server, args.every) as sampler:
        _let_loose(server, requests, findings, args, sampler)
    after = at_rest(server)
    return _told(sampler.samples, findings, before, after)


def _let_loose(
    server: Served, requests: list[Request], findings: Findings, args: Namespace, sampler: Sampler
) -> None:
    end = time.monotonic() + 60 * args.minutes
    kinds = [(_be_honest, _be_hostile, _be_curious)[index % 3] for index in range(args.clients)]
    threads = [
        threading.Thread(target=kind, args=(server, requests, findings, Random(seed), end))
        for seed, kind in enumerate(kinds, args.seed * 1000)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_SHOWN_EVERY_S)
            _show(sampler.samples, findings)


def _be_honest(
    server: Served, requests: list[Request], findings: Findings, draw: Random, end: float
) -> None:
    while time.monotonic() < end:
        request = draw.choice(requests)
        route = draw.choice(routes_of(request))
        _compare(server, request, route, draw.random() < 0.5, findings)


def _be_hostile(
    server: Served, requests: list[Request], findings: Findings, draw: Random, end: float
) -> None:
    while time.monotonic() < end:
        try:
            findings.add(attack(server, draw))
        except Exception as error:  # any fault is a finding
            findings.faults.append(f"{type(error).__name__}: {error}")


def _be_curious(
    server: Served, requests: list[Request], findings: Findings, draw: Random, end: float
) -> None:
    while time.monotonic() < end:
        try:
            findings.add(ask(server, draw))
        except Exception as error:  # any fault is a finding
            findings.faults.append(f"{type(error).__name__}: {error}")


def _compare(
    server: Served, request: Request, route: Any, is_streamed: bool, findings: Findings
) -> None:
    try:
        text = reply_to(server, request, route, is_streamed=is_streamed)
    except Exception as error:  # any fault is a finding
        findings.faults.append(f"{route.path}: {type(error).__name__}: {error}")
        return
    findings.add("honest, as the library")
    if text != request.text:
        findings.faults.append(f"{route.path}, {request}: {text!r}")


def _show(samples: list[Sample], findings: Findings) -> None:
    if not samples:
        return
    figures = ", ".join(f"{name} {value:.3g}" for name, value in samples[-1].items())
    print(f"{figures}; {dict(findings.acts)}, {len(findings.faults)} faults", file=sys.stderr)


def _told(
    samples: list[Sample], findings: Findings, before: Sample, after: Sample
) -> dict[str, Any]:
    """Print the verdict, and return all of it."""
    print(", ".join(f"{count} {act}" for act, count in findings.acts.most_common()))
    grown = growths(samples)
    print(f"\n  {'':18}{'first 1/3':>12}{'last 1/3':>12}{'per hour':>12}")
    for growth in grown:
        print(growth.row)
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

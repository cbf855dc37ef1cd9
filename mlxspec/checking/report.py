"""The results of a check as tables for people, and as a JSON document for programs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from mlxspec.bench.machine import setup_lines
from mlxspec.checking.greedy import Agreement, Parting
from mlxspec.checking.run import CacheCheck, CheckResult
from mlxspec.checking.sampled import LENGTH, SAMPLING, DistributionCheck, error_rate
from mlxspec.checking.verdict import verdict
from mlxspec.measure.drift import Drift
from mlxspec.trace.near_tie import NEAR_TIE_DRIFTS

_FIRST, _CELL, _WIDE = 24, 13, 20


def text(result: CheckResult) -> str:
    """Return the report: the setup, the results and the verdict."""
    parts = ["\n".join(setup_lines(result.setup))]
    for cache in result.caches:
        parts += [_drift(cache), _replies(cache, result)]
    parts.append(_distributions(result))
    parts += [f"! {note}" for note in (*_faults(result), *result.notes)]
    parts.append(verdict(result).text)
    return "\n\n".join(parts)


def document(result: CheckResult) -> dict[str, Any]:
    """Return all results, ready for JSON."""
    found = verdict(result)
    return {
        "setup": dict(result.setup),
        "num_draft_tokens": list(result.num_nodes),
        "grammar": result.grammar or None,
        "verdict": found.kind,
        "verdict_text": found.text,
        "is_lossless": found.is_lossless,
        "caches": [_cache_dict(cache) for cache in result.caches],
        "laws": [_check_dict(check, len(result.distributions)) for check in result.distributions],
        "least_p_value": error_rate(len(result.distributions)),
        "notes": [*_faults(result), *result.notes],
    }


def _drift(cache: CacheCheck) -> str:
    drift = cache.drift
    lines = [
        f"cache {cache.cache}: a row's logits in a forward of n rows, against the row alone",
        _line("n", ["largest drift", "best token flips"], _WIDE),
    ]
    for width in drift.widths:
        largest = "bit-identical" if width.largest == 0 else f"{width.largest:.1e}"
        flips = f"{width.num_flips} of {width.num_rows} rows"
        lines.append(_line(str(width.width), [largest, flips], _WIDE))
    lines.append(f"smallest top-2 gap {drift.smallest_gap:.2g}; {_near_tie(drift)}")
    return "\n".join(lines)


def _near_tie(drift: Drift) -> str:
    if not drift.near_tie:
        return "rounding changes nothing, so no gap is a near-tie"
    return (
        f"a near-tie is a gap of at most {drift.near_tie:.1e}, {NEAR_TIE_DRIFTS} times what "
        "rounding does to rows that are read in one forward"
    )


def _replies(cache: CacheCheck, result: CheckResult) -> str:
    nodes = ", ".join(map(str, result.num_nodes))
    lines = [
        f"cache {cache.cache}: greedy replies{_under(result)}, compared with plain decoding "
        f"(drafts of {nodes} nodes, in turn)",
        _line("", ["the same", "tokens", "drafted", "accepted"]),
    ]
    for found in cache.agreements:
        same = f"{found.num_same} of {found.num_replies}"
        counts = [found.num_tokens, found.drafted, found.accepted]
        lines.append(_line(found.drafter, [same, *map(str, counts)]))
        lines += [f"  {each.question}: {each.proof.describe()}" for each in found.partings]
    return "\n".join(lines)


def _under(result: CheckResult) -> str:
    return f" under {result.grammar}" if result.grammar else ""


def _distributions(result: CheckResult) -> str:
    checks = result.distributions
    tokens = "chosen tokens" if result.grammar else "tokens"
    lines = [
        f"cache {result.caches[0].cache}: {LENGTH} {tokens}{_under(result)} at temperature "
        f"{SAMPLING.temperature:g}, {checks[0].fit.num_draws} samples each against the exact "
        "distribution",
        _line("", ["chi-square", "freedom", "p", "drafted", "accepted"]),
    ]
    for check in checks:
        found = check.fit
        cells = [f"{found.chi_square:.1f}", str(found.freedom), f"{found.p_value:.2g}"]
        line = _line(check.drafter, [*cells, str(check.drafted), str(check.accepted)])
        lines.append(line + ("   WRONG" if check.is_off(len(checks)) else ""))
    lines.append(f"a p below {error_rate(len(checks)):.1g} means another distribution")
    return "\n".join(lines)


def _faults(result: CheckResult) -> Iterator[str]:
    """Yield notes on drafters that failed or drafted nothing: plain replies check nothing."""
    for cache in result.caches:
        for found in cache.agreements:
            for fault in dict.fromkeys(found.faults):
                times = found.faults.count(fault)
                yield f"{found.drafter} failed in {times} replies, cache {cache.cache}: {fault}"
            if not found.drafted:
                yield f"{found.drafter} drafted nothing in its replies, cache {cache.cache}"
    for check in result.distributions[1:]:
        if check.num_faults:
            yield f"{check.drafter} failed in {check.num_faults} samples"
        if not check.drafted:
            yield f"{check.drafter} drafted nothing in its samples: only plain decoding was checked"


def _cache_dict(cache: CacheCheck) -> dict[str, Any]:
    drift = cache.drift
    return {
        "cache": cache.cache,
        "largest_drift": drift.largest,
        "is_bit_identical": drift.is_zero,
        "rounding": drift.rounding,
        "near_tie": drift.near_tie,
        "smallest_gap": drift.smallest_gap,
        "widths": [asdict(width) for width in drift.widths],
        "drafters": [_agreement_dict(found) for found in cache.agreements],
    }


def _agreement_dict(found: Agreement) -> dict[str, Any]:
    partings = [_parting_dict(parting) for parting in found.partings]
    return {**asdict(found), "partings": partings, "num_same": found.num_same}


def _parting_dict(parting: Parting) -> dict[str, Any]:
    proof, found = parting.proof, parting.difference
    tokens = {
        "index": found.index,
        "drafted": proof.drafted,
        "plain": proof.plain,
        "drafted_logit": found.token_logit,
        "plain_logit": found.expected_logit,
        "near_tie": found.near_tie,
    }
    return {
        "question": parting.question,
        "proof": {
            "num_tokens": proof.num_tokens,
            "num_same": proof.num_same,
            "difference": tokens if found.gap is not None else None,
        },
        "is_near_tie": found.is_near_tie,
        "gap": found.gap,
    }


def _check_dict(check: DistributionCheck, num_checks: int) -> dict[str, Any]:
    content = asdict(check)
    fit = content.pop("fit")
    return {**content, **fit, "p_value": check.fit.p_value, "is_off": check.is_off(num_checks)}


def _line(name: str, cells: Sequence[str], width: int = _CELL) -> str:
    return f"{name:<{_FIRST}}" + "".join(f"{cell:>{width}}" for cell in cells)

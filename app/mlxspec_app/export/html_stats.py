"""Figures as HTML: the headline, bars in tables, and a row for every round.

Each figure has its definition next to it, because the field disagrees about most of them. A bar is
a share in a table cell, so the number is there without style sheets and for screen readers.
"""

from collections.abc import Iterable, Sequence
from html import escape

from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.figures import prob, seed_words
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.text.safe_text import safe_line

_NOTHING = "\u2013"
_KINDS = ("accepted", "corrected", "bonus", "plain")


def headline(reply: Reply, stats: GenerationStats) -> str:
    """Return the summary: a sentence, the settings of `reply`, and four figures of all replies."""
    passes = _times(stats.target_forwards, "pass", "passes")
    guessed = stats.kinds.get("accepted", 0) / max(1, stats.generated_tokens)
    figures = (
        (f"{guessed:.0%}", "of the text guessed", "and kept unchanged"),
        (f"{stats.generation_tps:.1f}", "tokens per second", "reading the prompt left out"),
        (f"{stats.mean_acceptance_length:.2f}", "tokens per round", "1 + accepted ÷ rounds"),
        (f"{stats.acceptance_rate:.0%}", "of the drafts kept", "accepted ÷ drafted depth"),
    )
    tiles = "".join(
        f"<div><dt>{name}<small>{meaning}</small></dt><dd>{value}</dd></div>"
        for value, name, meaning in figures
    )
    return (
        f'<p class="setting">{escape(_setting(reply))}</p>\n'
        f"<h1>{_times(stats.generated_tokens, 'token', 'tokens')} "
        f"<span>from {passes} of the model</span></h1>\n"
        f'<dl class="tiles">{tiles}</dl>'
    )


def _times(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}".replace(",", "\u202f")


def _setting(reply: Reply) -> str:
    started = reply.started
    if started is None:
        return "a recording without its beginning"
    said = [f"{started.target} ◂ {started.drafter}", started.lossless, started.weights]
    said += [started.device, f"cache {started.cache}", seed_words(reply)]
    return " · ".join(safe_line(part) for part in said if part)


def statistics(stats: GenerationStats, title: str) -> str:
    """Return the figures of a reply, or of several, as tables of bars."""
    total = max(1, stats.generated_tokens)
    kinds = [(name, stats.kinds.get(name, 0)) for name in _KINDS]
    kinds += [(name, stats.kinds[name]) for name in ("forced",) if name in stats.kinds]
    written = ((name, count / total, [str(count)], name) for name, count in kinds)
    tables = [_bars("Who wrote the tokens", ("kind", "tokens"), written)]
    if stats.rounds:
        shares = zip(stats.acceptance_by_depth, stats.acceptance_given_reached, strict=True)
        positions = (
            (str(depth), of_all, [f"{of_all:.0%}", f"{reached:.0%}"], "accepted")
            for depth, (of_all, reached) in enumerate(shares, 1)
        )
        heads = ("position", "of all rounds", "of reached")
        tables.append(_bars("Accepted at each position", heads, positions))
        most = max(stats.length_counts)
        lengths = (
            (str(length), count / most, [str(count)], "accepted" if length else "muted")
            for length, count in enumerate(stats.length_counts)
        )
        tables.append(_bars("Accepted length", ("tokens", "rounds"), lengths))
    return f'<section class="stats"><h2>{title}</h2>\n{"".join(tables)}{_split(stats)}</section>\n'


def _bars(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[tuple[str, float, Sequence[str], str]],
) -> str:
    """Return a table of (name, share, figures, colour), with a bar after each name."""
    body = "".join(
        f'<tr><th scope="row">{name}</th><td class="bar">{_bar(share, tint)}</td>'
        f"{''.join(f'<td>{figure}</td>' for figure in figures)}</tr>"
        for name, share, figures, tint in rows
    )
    first, *rest = heads
    head = "".join(f'<th scope="col">{name}</th>' for name in rest)
    return (
        f'<table class="bars"><caption>{caption}</caption><thead><tr><th scope="col">{first}</th>'
        f'<td class="bar"></td>{head}</tr></thead><tbody>{body}</tbody></table>\n'
    )


def _bar(share: float, tint: str) -> str:
    return f'<i style="--share:{share:.4f};--tint:var(--{tint})"></i>' if share > 0 else ""


def _split(stats: GenerationStats) -> str:
    spent = max(0.0, stats.total_s - stats.prefill_s)
    shares = [("draft", stats.draft_s), ("verify", stats.target_s)]
    shares.append(("host", max(0.0, spent - stats.draft_s - stats.target_s)))
    whole = sum(share for _, share in shares) or 1.0
    parts = "".join(
        f'<i class="{name}" style="--share:{share / whole:.4f}"></i>' for name, share in shares
    )
    words = " · ".join(f"{name} {share / whole:.1%}" for name, share in shares)
    each = 1e3 * whole / max(1, stats.target_forwards)
    return (
        f'<p class="split"><b>Time</b> {each:.1f} ms a pass<span class="whole">{parts}</span>'
        f"<small>{words}</small></p>\n"
    )


def round_table(reply: Reply) -> str:
    """Return a table of the rounds of a reply, inside a closed `<details>`."""
    heads = ("round", "at", "drafted", "accepted", "wrote", "p of the last", "draft", "target")
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(f"<tr>{_cells(round_)}</tr>" for round_ in reply.rounds)
    return (
        '<details class="every"><summary>Every round as a table</summary><div class="scroll">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>\n"
    )


def _cells(round_: Round) -> str:
    verdict = round_.verdict
    text = safe_line("".join(token.text for token in verdict.emit))
    last = verdict.emit[-1].target_prob if verdict.emit else None
    drafting = f"{round_.draft.ms:.1f} ms" if round_.draft is not None else _NOTHING
    cells = (
        f"{verdict.ts:.2f} s",
        str(len(round_.nodes)) if round_.nodes else _NOTHING,
        str(round_.accepted) if round_.nodes else _NOTHING,
        f"<bdi>{escape(text)}</bdi>",
        prob(last) or _NOTHING,
        drafting,
        f"{verdict.ms:.1f} ms",
    )
    return f'<th scope="row">{verdict.r}</th>' + "".join(f"<td>{cell}</td>" for cell in cells)

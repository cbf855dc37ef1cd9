"""Does a drafter leave what a target says alone? A tiny target's own plain decoding tells.

At temperature 0 the tokens are compared one by one, over several turns, widths of a draft and kinds
of cache. Above it, hundreds of replies are drawn, one seed each, and the law of their first three
tokens is compared with the exact one by chi-square tests: the target reads every beginning without
drafts, and every text gets its probability. What bends the law of a reply bends that one.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.checking.chi_square import Fit, fit
from mlxspec.device.backend import values
from mlxspec.drafters.base import Drafter
from mlxspec.engine.engine import Engine
from mlxspec.law import Law
from mlxspec.params import GenerationParams
from mlxspec.target.decoder import Decoder
from mlxspec.testing.target import tiny_engine
from mlxspec.trace.events import DrafterFailed, DraftProposed, DraftVerified, PlainDecoded
from mlxspec.verify.distribution import NodeLaws, TokenCounts

MakeDrafter = Callable[[Decoder], Drafter]
"""Makes a new drafter, given the target with its cache; most drafters do not look at that."""

_LENGTH = 3  # tokens whose joint law is compared
_WIDTHS = (1, 2, 6)  # draft nodes; a bonus token at every place of the first three
_LEAST_P = 1e-4
_PROMPT = (1, 2, 3, 1, 2, 3, 1)
_LAWS = (
    Law(temperature=2.0),  # flat enough that every token counts
    Law(temperature=2.5, top_p=0.95, presence_penalty=0.6, repetition_penalty=1.2),
)


@dataclass(frozen=True)
class DrafterReport:
    """What a drafter that passed did.

    Attributes:
        num_drafted: Draft tokens that it proposed.
        num_accepted: Of these, how many were kept.
        p_value: How often draws from the target's own law fit it as badly as those with drafts, at
            most.
    """

    num_drafted: int
    num_accepted: int
    p_value: float


def check_drafter(
    make_drafter: MakeDrafter, *, vocab_size: int = 8, num_draws: int = 1200
) -> DrafterReport:
    """Let a drafter draft for a tiny target, and compare with plain decoding.

    Args:
        make_drafter: Called with the target's decoder, several times: each drafter is new.
        vocab_size: Tokens of the target, 4 or more.
        num_draws: Sampled replies; more find smaller faults.

    Returns:
        What was drafted and kept. Whether that is much is not judged.

    Raises:
        AssertionError: Tokens or their law are not the target's own, a draft was refused, the
            drafter broke down or proposed nothing at all, or a seed gave two texts.
        Exception: Whatever a mistake in the drafter's code raises.
    """
    trial = _Trial(make_drafter, vocab_size)
    for rotates in (False, True):
        for num_nodes in _WIDTHS:
            trial.compare_greedy(num_nodes, rotates)
    trial.compare_seeds()
    if not trial.num_drafted:
        raise AssertionError("the drafter proposed nothing in any reply, so nothing was tested")
    share = -(-num_draws // (len(_LAWS) * len(_WIDTHS)))
    by_law = [trial.fits(law, share) for law in _LAWS]
    fits = [first + second for first, second in zip(*by_law, strict=True)]
    worst = min(fits, key=lambda found: found.p_value)
    p_value = min(1.0, worst.p_value * len(fits))
    if p_value < _LEAST_P:
        raise AssertionError(
            "above temperature 0 the first tokens follow another law than the target's (chi-square "
            f"{worst.chi_square:.0f} with {worst.freedom} degrees of freedom, p = {p_value:.1g}): "
            "`sampled_from` must be the law that the tokens were drawn from, with noise of their "
            "own, and no node may be left out for what was drawn"
        )
    return DrafterReport(trial.num_drafted, trial.num_accepted, p_value)


class _Trial:
    """One drafter under test, and what it has drafted so far."""

    def __init__(self, make_drafter: MakeDrafter, vocab_size: int) -> None:
        self._make_drafter, self._vocab_size = make_drafter, vocab_size
        self.num_drafted = self.num_accepted = 0

    def compare_greedy(self, num_nodes: int, rotates: bool) -> None:
        """Compare two turns, each begun and cancelled before."""
        params = GenerationParams(max_tokens=16, num_draft_tokens=num_nodes)
        engine = self._engine(rotates=rotates)
        plain = tiny_engine(vocab_size=self._vocab_size, rotates=rotates)
        prompt: tuple[int, ...] = _PROMPT
        for _ in range(2):
            self._reply(engine, prompt, params, until=1)  # and is cancelled
            said = self._reply(engine, prompt, params)
            right = _tokens(plain, prompt, params)
            if said != right:
                place = next(
                    i for i, pair in enumerate(zip(said, right, strict=True)) if len({*pair}) > 1
                )
                raise AssertionError(
                    f"at temperature 0, with {num_nodes} draft tokens, token {place + 1} after "
                    f"{list(prompt)} is {said[place]}; plain decoding says {right[place]}: does "
                    "the drafter write into the target?"
                )
            prompt = (*prompt, *right, 0, 3)

    def compare_seeds(self) -> None:
        """Compare two new drafters with one seed."""
        for seed in range(4):
            law = Law(temperature=1.0)
            params = GenerationParams(max_tokens=12, num_draft_tokens=4, law=law, seed=seed)
            first, second = (self._reply(self._engine(), _PROMPT, params) for _ in range(2))
            if first != second:
                raise AssertionError(
                    f"the seed {seed} gives two texts, {list(first)} and {list(second)}: draw with "
                    "the key that `start` is given, and with no other chance"
                )

    def fits(self, law: Law, num_draws: int) -> list[Fit]:
        """Return how well the first token, the first two and the first three fit their laws.

        Args:
            law: What is done to the target's logits.
            num_draws: Replies for each width of a draft.
        """
        exact = _joint_law(tiny_engine(vocab_size=self._vocab_size).target, law)
        engine = self._engine()
        drawn = [
            self._draw(engine, law, num_nodes, number * num_draws + draw)
            for number, num_nodes in enumerate(_WIDTHS)
            for draw in range(num_draws)
        ]
        impossible = next((text for text in drawn if not exact[text]), None)
        if impossible:
            raise AssertionError(
                f"the reply begins with {list(impossible)}, which the target never says: "
                "`sampled_from` must be the law that the tokens were drawn from"
            )
        return [
            fit([text[:length] for text in drawn], _beginnings(exact, length))
            for length in range(1, _LENGTH + 1)
        ]

    def _draw(self, engine: Engine, law: Law, num_nodes: int, seed: int) -> tuple[int, ...]:
        params = GenerationParams(
            max_tokens=_LENGTH + num_nodes,  # a draft is never larger than what is left
            num_draft_tokens=num_nodes,
            law=law,
            seed=seed,
        )
        return self._reply(engine, _PROMPT, params, until=_LENGTH)[:_LENGTH]

    def _engine(self, *, rotates: bool = False) -> Engine:
        return tiny_engine(
            make_drafter=self._make_drafter, vocab_size=self._vocab_size, rotates=rotates
        )

    def _reply(
        self,
        engine: Engine,
        prompt: Sequence[int],
        params: GenerationParams,
        until: int | None = None,
    ) -> tuple[int, ...]:
        """Return the tokens of a reply, which is cancelled behind the first `until`."""
        told: list[int] = []
        events = engine.generate(
            prompt, params, should_stop=lambda: until is not None and len(told) >= until
        )
        try:
            for event in events:
                match event:
                    case DraftProposed():
                        self.num_drafted += len(event.nodes)
                    case DraftVerified() | PlainDecoded():
                        told.extend(token.token for token in event.emit)
                        self.num_accepted += sum(token.kind == "accepted" for token in event.emit)
                    case DrafterFailed():
                        raise AssertionError(f"the drafter broke down: {event.message}")
        except ValueError as error:
            raise AssertionError(f"a draft was refused: {error}") from error
        return tuple(told)


def _tokens(engine: Engine, prompt: Sequence[int], params: GenerationParams) -> tuple[int, ...]:
    emitted = (getattr(event, "emit", ()) for event in engine.generate(prompt, params))
    return tuple(token.token for emit in emitted for token in emit)


def _joint_law(target: Decoder, law: Law) -> dict[tuple[int, ...], float]:
    """Return the probability of every text of the first tokens; nothing is drafted."""
    vocabulary = range(target.vocab_size)
    probs: dict[tuple[int, ...], float] = {(): 1.0}
    for length in range(_LENGTH):
        for text in itertools.product(vocabulary, repeat=length):
            target.rollback_to(min(len(_PROMPT), len(target)))
            for token in (*_PROMPT, *text)[len(target) :]:
                target.observe([token])
            counts = TokenCounts.of(list(_PROMPT), target.vocab_size).add(list(text))
            after = NodeLaws(law, target.next_logits()[None], counts).probs[0]
            mx.eval(after)
            begun = probs.pop(text)
            shares = zip(vocabulary, values(after), strict=True)
            probs.update({(*text, token): begun * share for token, share in shares})
    return probs


def _beginnings(exact: dict[tuple[int, ...], float], length: int) -> dict[tuple[int, ...], float]:
    """Return the probability of every beginning of texts."""
    shorter: dict[tuple[int, ...], float] = defaultdict(float)
    for text, prob in exact.items():
        shorter[text[:length]] += prob
    return shorter

"""Test whether a drafter is lossless, against plain decoding of a tiny target.

At temperature 0, the test compares tokens one by one, over several turns, numbers of draft nodes
and kinds of cache. Above 0, it samples hundreds of replies, one seed each. Chi-square tests compare
the distribution of their first three tokens with the exact one, which the target gives without
drafts: the probability of every text of three tokens. A drafter that changes the output
distribution also changes that of the first tokens.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.device.backend import values
from mlxspec.drafters.base import Drafter
from mlxspec.engine.engine import Engine
from mlxspec.measure.chi_square import Fit, fit
from mlxspec.measure.trial import run_trial
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.testing.target import tiny_engine
from mlxspec.trace.difference import common_length
from mlxspec.verify.distribution import NodeDistributions, TokenCounts, adjust

MakeDrafter = Callable[[Decoder], Drafter]
"""Makes a new drafter from the target with its cache; most drafters ignore the target."""

_LENGTH = 3  # tokens whose joint distribution is compared
_WIDTHS = (1, 2, 6)  # draft nodes, so that each of the first three tokens can be a bonus token
_LEAST_P = 1e-4  # a correct drafter fails once in ten thousand choices of seeds
_PROMPT = (1, 2, 3, 1, 2, 3, 1)
_SAMPLING = (
    SamplingParams(temperature=2.0),  # flat enough that every token counts
    SamplingParams(temperature=2.5, top_p=0.95, presence_penalty=0.6, repetition_penalty=1.2),
)


@dataclass(frozen=True)
class DrafterReport:
    """The results of a drafter that passed: its draft tokens, and how well the replies fit."""

    num_drafted: int
    num_accepted: int
    # An upper bound of the probability that plain decoding fits the exact distribution as badly as
    # the sampled replies do.
    p_value: float


def check_drafter(
    make_drafter: MakeDrafter, *, vocab_size: int = 8, num_draws: int = 1200
) -> DrafterReport:
    """Test a drafter with a tiny target, against plain decoding.

    `make_drafter` is called several times, and `vocab_size` is 4 or more. More of the `num_draws`
    sampled replies find smaller faults. Low numbers of accepted tokens are no failure.

    Raises:
        AssertionError: Tokens or their distribution are not those of plain decoding, a draft is
            invalid, the drafter failed or proposed nothing at all, or one seed gave two texts.
    """
    trial = _Trial(make_drafter, vocab_size)
    for rotates in (False, True):
        for num_nodes in _WIDTHS:
            trial.compare_greedy(num_nodes, rotates)
    trial.compare_seeds()
    if not trial.num_drafted:
        raise AssertionError("the drafter proposed nothing in any reply, so nothing was tested")
    share = -(-num_draws // (len(_SAMPLING) * len(_WIDTHS)))
    by_sampling = [trial.fits(sampling, share) for sampling in _SAMPLING]
    fits = [first + second for first, second in zip(*by_sampling, strict=True)]
    worst = min(fits, key=lambda found: found.p_value)
    p_value = min(1.0, worst.p_value * len(fits))  # Bonferroni: the worst of several tests
    if p_value < _LEAST_P:
        raise AssertionError(
            "above temperature 0 the first tokens have another distribution than the target's "
            f"(chi-square {worst.chi_square:.0f} with {worst.freedom} degrees of freedom, p = "
            f"{p_value:.1g}): `sampled_from` must be the distribution that the tokens were sampled "
            "from, with independent noise, and no node may be dropped because of its token"
        )
    return DrafterReport(trial.num_drafted, trial.num_accepted, p_value)


class _Trial:
    """One drafter under test, with the counts of its draft tokens so far."""

    def __init__(self, make_drafter: MakeDrafter, vocab_size: int) -> None:
        self._make_drafter, self._vocab_size = make_drafter, vocab_size
        self.num_drafted = self.num_accepted = 0

    def compare_greedy(self, num_nodes: int, rotates: bool) -> None:
        """Compare two turns, each after a reply that was started and cancelled."""
        params = GenerationParams(max_tokens=16, num_draft_tokens=num_nodes)
        engine = self._engine(rotates=rotates)
        plain = tiny_engine(vocab_size=self._vocab_size, rotates=rotates)
        prompt: tuple[int, ...] = _PROMPT
        for _ in range(2):
            self._reply(engine, prompt, params, until=1)  # and is cancelled
            said = self._reply(engine, prompt, params)
            right = run_trial(plain, prompt, params).tokens
            if said != right:
                index = common_length(said, right)
                raise AssertionError(
                    f"at temperature 0, with {num_nodes} draft tokens, token {index + 1} after "
                    f"{list(prompt)} is {said[index]}; plain decoding gives {right[index]}: does "
                    "the drafter write into the target?"
                )
            prompt = (*prompt, *right, 0, 3)

    def compare_seeds(self) -> None:
        """Compare the replies of two new drafters with the same seed."""
        for seed in range(4):
            sampling = SamplingParams(temperature=1.0)
            params = GenerationParams(
                max_tokens=12, num_draft_tokens=4, sampling=sampling, seed=seed
            )
            first, second = (self._reply(self._engine(), _PROMPT, params) for _ in range(2))
            if first != second:
                raise AssertionError(
                    f"the seed {seed} gives two texts, {list(first)} and {list(second)}: sample "
                    "with the key that `start` receives, and with no other randomness"
                )

    def fits(self, sampling: SamplingParams, num_draws: int) -> list[Fit]:
        """Return the fits of the first token, the first two and the first three.

        `num_draws` is the number of replies for each number of draft nodes.
        """
        exact = _joint_distribution(tiny_engine(vocab_size=self._vocab_size).target, sampling)
        engine = self._engine()
        drawn = []
        for seed, num_nodes in enumerate(width for width in _WIDTHS for _ in range(num_draws)):
            most = _LENGTH + num_nodes  # so that the end of the reply cuts no draft
            params = GenerationParams(
                max_tokens=most, num_draft_tokens=num_nodes, sampling=sampling, seed=seed
            )
            drawn.append(self._reply(engine, _PROMPT, params, until=_LENGTH)[:_LENGTH])
        impossible = next((text for text in drawn if not exact[text]), None)
        if impossible:
            raise AssertionError(
                f"the reply begins with {list(impossible)}, which has probability 0: "
                "`sampled_from` must be the distribution that the tokens were sampled from"
            )
        fits = []
        for length in range(1, _LENGTH + 1):
            probs: dict[tuple[int, ...], float] = defaultdict(float)
            for text, prob in exact.items():
                probs[text[:length]] += prob
            fits.append(fit([text[:length] for text in drawn], probs))
        return fits

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
        """Return the tokens of a reply; it is cancelled after the first `until` tokens."""
        try:
            trial = run_trial(
                engine, prompt, params, should_stop=lambda n: until is not None and n >= until
            )
        except ValueError as error:
            raise AssertionError(f"a draft is invalid: {error}") from error
        if trial.fault:
            raise AssertionError(f"the drafter failed: {trial.fault}")
        self.num_drafted += trial.stats["drafted"]
        self.num_accepted += trial.stats["accepted"]
        return trial.tokens


def _joint_distribution(target: Decoder, sampling: SamplingParams) -> dict[tuple[int, ...], float]:
    """Return the exact probability of every text of the first tokens, without drafts."""
    vocabulary = range(target.vocab_size)
    probs: dict[tuple[int, ...], float] = {(): 1.0}
    for length in range(_LENGTH):
        for text in itertools.product(vocabulary, repeat=length):
            target.rollback_to(min(len(_PROMPT), len(target)))
            for token in (*_PROMPT, *text)[len(target) :]:
                target.observe([token])
            counts = TokenCounts.of(list(_PROMPT), target.vocab_size).add(list(text))
            logits = target.next_logits()[None]
            adjusted = adjust(sampling, logits, counts)
            after = NodeDistributions(sampling, logits, adjusted).probs[0]
            mx.eval(after)
            prefix_prob = probs.pop(text)
            shares = zip(vocabulary, values(after), strict=True)
            probs.update({(*text, token): prefix_prob * share for token, share in shares})
    return probs

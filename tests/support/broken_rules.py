"""Verification rules with deliberate faults: tests and checks must detect them."""

from dataclasses import replace

import mlx.core as mx

import mlxspec.reply.verification as verification
from mlxspec.device import backend


def say_the_second_best(monkeypatch):
    """Emit the second best token after a greedy draft; sampled replies stay right."""
    right = verification.verify

    def second_best(draft, distributions, noise, rule="block"):
        verdict = right(draft, distributions, noise, rule)
        if not distributions.sampling.is_greedy or draft.tree.n_nodes == 1:
            return verdict
        last = mx.argmax(mx.where(verdict.accepted, draft.tree.depths, -1))
        return replace(verdict, bonus_token=distributions.top_tokens(2)[0][last, 1])

    monkeypatch.setattr(backend, "verifies_on_host", lambda: False)
    monkeypatch.setattr(verification, "verify", second_best)

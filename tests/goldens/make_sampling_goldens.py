"""Makes tests/goldens/sampling.json with Hugging Face's processors; run by hand, never by a test.

    pip install torch transformers && python -m tests.goldens.make_sampling_goldens

Each case is a law, a prompt, a reply, two rows of logits and the probabilities that Hugging Face
computes from them, penalties and filters in the order of its `generate`. It has no presence and
frequency penalties; those follow the formula of the OpenAI API reference, here in float64.
"""

import json

import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tests.support.paths import GOLDENS

VOCAB = 40
SAMPLING = {
    "plain": {"temperature": 1.0},
    "cold": {"temperature": 0.3},
    "hot": {"temperature": 3.0},
    "top-k": {"temperature": 1.0, "top_k": 5},
    "top-k of one": {"temperature": 1.0, "top_k": 1},
    "top-k of more than all": {"temperature": 1.0, "top_k": 400},
    "top-p": {"temperature": 1.0, "top_p": 0.9},
    "small top-p": {"temperature": 1.0, "top_p": 0.05},
    "hot top-p": {"temperature": 2.0, "top_p": 0.7},
    "min-p": {"temperature": 1.0, "min_p": 0.1},
    "min-p of one": {"temperature": 1.0, "min_p": 1.0},
    "hot min-p": {"temperature": 2.5, "min_p": 0.3},
    "top-k then top-p": {"temperature": 1.0, "top_k": 6, "top_p": 0.8},
    "all filters": {"temperature": 1.7, "top_k": 20, "top_p": 0.9, "min_p": 0.05},
    "repetition": {"temperature": 1.0, "repetition_penalty": 1.4},
    "repetition below one": {"temperature": 1.0, "repetition_penalty": 0.7},
    "presence": {"temperature": 1.0, "presence_penalty": 1.5},
    "frequency": {"temperature": 0.8, "frequency_penalty": 0.6},
    "negative presence": {"temperature": 1.0, "presence_penalty": -0.9},
    "bias": {"temperature": 1.0, "logit_bias": {3: 4.0, 11: -100.0, 20: 0.5}},
    "bias then repetition": {
        "temperature": 1.0,
        "repetition_penalty": 2.0,
        "logit_bias": {3: 4.0, 5: -6.0},
    },
    "everything": {
        "temperature": 1.3,
        "top_k": 25,
        "top_p": 0.95,
        "min_p": 0.02,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "logit_bias": {3: 1.0, 7: -1.0},
    },
}


def processors(sampling: dict) -> LogitsProcessorList:
    """What stands before the presence and frequency penalties."""
    chosen = LogitsProcessorList()
    if "logit_bias" in sampling:
        bias = {(token,): value for token, value in sampling["logit_bias"].items()}
        chosen.append(SequenceBiasLogitsProcessor(bias))
    if "repetition_penalty" in sampling:
        chosen.append(RepetitionPenaltyLogitsProcessor(sampling["repetition_penalty"]))
    return chosen


def warpers(sampling: dict) -> LogitsProcessorList:
    chosen = LogitsProcessorList([TemperatureLogitsWarper(sampling["temperature"])])
    for name, warper in (
        ("top_k", TopKLogitsWarper),
        ("top_p", TopPLogitsWarper),
        ("min_p", MinPLogitsWarper),
    ):
        if name in sampling:
            chosen.append(warper(sampling[name]))
    return chosen


def probabilities(
    sampling: dict, prompt: list[int], reply: list[int], logits: torch.Tensor
) -> list:
    text = torch.tensor([prompt + reply])
    rows = []
    for row in logits:
        scores = processors(sampling)(text, row[None])[0].double()
        for token in set(reply):
            scores[token] -= sampling.get("presence_penalty", 0.0)
            scores[token] -= sampling.get("frequency_penalty", 0.0) * reply.count(token)
        rows.append(torch.softmax(warpers(sampling)(text, scores[None])[0], dim=-1).tolist())
    return rows


def main() -> None:
    generator = torch.Generator().manual_seed(7)
    cases = {}
    for name, sampling in SAMPLING.items():
        prompt = torch.randint(VOCAB, (12,), generator=generator).tolist()
        reply = [*torch.randint(VOCAB, (9,), generator=generator).tolist(), 3, 3, 5]
        logits = (2.5 * torch.randn(2, VOCAB, generator=generator)).round(decimals=4)
        cases[name] = {
            "law": sampling,
            "prompt": prompt,
            "reply": reply,
            "logits": [[round(value, 4) for value in row] for row in logits.tolist()],
            "probs": probabilities(sampling, prompt, reply, logits),
        }
    path = GOLDENS / "sampling.json"
    path.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()

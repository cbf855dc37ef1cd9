"""A fault of one reply ends that reply alone: its neighbours say what the target says."""

import mlx.core as mx
import pytest

from mlxspec.errors import GrammarError, NumericsError
from mlxspec.params import GenerationParams, Grammar
from mlxspec.reply.continuation import Continuation
from mlxspec.trace.events import GenerationFailed, GenerationFinished
from tests.engine.test_interrupts import Late, Mistake, fail
from tests.support.adversaries import RandomTrees
from tests.support.batches import DRAFTERS, PROMPTS, VOCAB, for_each_sequence
from tests.support.pairwise import each_value
from tests.support.tiny import make_engine, tiny_model, tokens_of
from tests.support.truth import Computed, Target

NAN = VOCAB  # the token after which the target computes NaN
LENGTH, LONG = 9, 24  # tokens of a reply, and of a long one
FAULTY, SICK = [3, 7, 1], [3, 7, 1, NAN, 5, 6]


def damaged_model():
    """A tiny target whose rows are NaN after one token, which it never says itself."""
    model = tiny_model(vocab_size=NAN + 1)
    model.model.embed_tokens.weight[NAN] = mx.nan
    model.lm_head.weight[NAN] = 0.0
    return model


MODEL = damaged_model()
TRUE = Computed(lambda kind: [Target(MODEL, kind).greedy(prompt, LONG) for prompt in PROMPTS])
AFTER = Computed(lambda kind: Target(MODEL, kind).greedy([*FAULTY, 5, 6], LENGTH))


def params_of(**changes):
    return GenerationParams(**{"max_tokens": LENGTH, "num_draft_tokens": 3} | changes)


def nothing(*_):
    return None


def late_sampler(then):
    return {"sampler": Late(lambda logprobs: mx.argmax(logprobs, axis=-1), then)}


def late_processor(then):
    return {"logits_processors": (Late(lambda tokens, logits: logits, then),)}


FAULTS = {  # settings, stop_when and the error
    "grammar": lambda: ({"grammar": Grammar.regex("[a-h]{4}@")}, nothing, GrammarError),
    "processor": lambda: (late_processor(fail), nothing, Mistake),
    "NaN of a processor": lambda: (
        late_processor(lambda tokens, logits: logits * mx.nan),
        nothing,
        NumericsError,
    ),
    "sampler": lambda: (late_sampler(fail), nothing, Mistake),
    "token outside": lambda: (late_sampler(lambda logprobs: 2**31 - 1), nothing, ValueError),
    "on_logits": lambda: ({"on_logits": Late(nothing, fail, 2)}, nothing, Mistake),
    "stop_when": lambda: ({}, Late(nothing, fail), Mistake),
    "NaN": lambda: ({}, nothing, NumericsError),
}


def prompt_of(fault):
    return SICK if fault == "NaN" else FAULTY


def opened(drafter="pool", kind="full", **sizes):
    return make_engine(MODEL, DRAFTERS[drafter](), kind).open_batch(**sizes)


def join(batch, fault):
    """Let the faulty reply join: the sequence, and the error that it has to end with."""
    settings, stop_when, error = FAULTS[fault]()
    return batch.join(prompt_of(fault), params_of(**settings), stop_when), error


def written(batch):
    """The events of each sequence, until all are over."""
    events = {}
    while batch.num_replies:
        for sequence, event in batch.step():
            events.setdefault(sequence, []).append(event)
    return events


def in_company(batch, fault):
    """The tokens of seven neighbours, of which some joined before the faulty reply."""
    neighbours = [batch.join(prompt, params_of()) for prompt in PROMPTS[:3]]
    bad, error = join(batch, fault)
    neighbours += [batch.join(prompt, params_of()) for prompt in PROMPTS[3:]]
    events = written(batch)
    assert_failed(bad, events[bad], error)
    return [tokens_of(events[one]) for one in neighbours]


def assert_failed(sequence, events, error):
    assert isinstance(sequence.error, error)
    assert isinstance(events[-1], GenerationFailed)
    assert events[-1].message == str(sequence.error)
    assert not any(isinstance(event, GenerationFinished) for event in events)


def first(replies, count=LENGTH):
    return [reply[:count] for reply in replies]


@each_value(fault=FAULTS, drafter=["none", "pool"])
def test_the_neighbours_of_a_faulty_reply_say_what_the_target_says(fault, drafter):
    assert in_company(opened(drafter), fault) == first(TRUE["full"])


@pytest.mark.parametrize("fault", ["sampler", "NaN"])
def test_a_fault_stays_alone_where_sequences_have_decoders_of_their_own(fault):
    assert in_company(opened(kind="rotating", batch_size=4), fault) == first(TRUE["rotating"])


@each_value(fault=FAULTS, kind=["full", "rotating"])
def test_a_reply_after_a_faulty_one_that_was_alone_is_right(fault, kind):
    batch = opened(kind=kind, prefix_bytes=1 << 20)
    bad, error = join(batch, fault)
    assert_failed(bad, written(batch)[bad], error)
    after = batch.join([*FAULTY, 5, 6], params_of())
    assert tokens_of(written(batch)[after]) == AFTER[kind]


@pytest.mark.parametrize("num_others", [0, 2], ids=["alone", "in company"])
def test_no_row_of_nan_is_used_again(num_others):
    """The target heals after the fault, so only rows that were kept could still be NaN."""
    model = damaged_model()
    batch = make_engine(model, DRAFTERS["none"]()).open_batch(prefix_bytes=1 << 20)
    others = [batch.join(prompt, params_of(max_tokens=LONG)) for prompt in PROMPTS[:num_others]]
    bad = batch.join(SICK, params_of())
    while bad.error is None:
        batch.step()
    model.model.embed_tokens.weight[NAN] = 0.5
    again = batch.join([*SICK, 7], params_of())
    assert tokens_of(written(batch)[again]) == Target(model).greedy([*SICK, 7], LENGTH)
    assert [one.error for one in others] == [None] * num_others


def test_a_slot_with_rows_of_nan_is_given_to_nobody():
    """What a mask hides counts nothing, and nothing times NaN is NaN."""
    batch = opened("none", batch_size=2)
    long = batch.join(PROMPTS[5], params_of(max_tokens=LONG))
    bad = batch.join([*PROMPTS[5][:20], NAN, 5, 6], params_of())
    short = batch.join([4], params_of())
    events = written(batch)
    assert_failed(bad, events[bad], NumericsError)
    assert tokens_of(events[short]) == Target(MODEL).greedy([4], LENGTH)
    assert tokens_of(events[long]) == TRUE["full"][5]


def test_a_reply_that_cannot_begin_ends_alone(monkeypatch):
    batch = opened()
    neighbour = batch.join(PROMPTS[0], params_of())
    with monkeypatch.context() as patched:
        patched.setattr(Continuation, "constrain", fail)
        bad = batch.join(FAULTY, params_of())
    events = written(batch)
    assert_failed(bad, events[bad], Mistake)
    assert tokens_of(events[neighbour]) == TRUE["full"][0][:LENGTH]


@pytest.mark.parametrize("kind", ["full", "rotating"])
def test_a_reply_whose_prompt_cannot_be_read_ends_alone(kind, monkeypatch):
    batch = opened(kind=kind, prefix_bytes=1 << 20)
    neighbours = [batch.join(prompt, params_of()) for prompt in PROMPTS[:2]]
    bad = batch.join(FAULTY, params_of())
    neighbours += [batch.join(prompt, params_of()) for prompt in PROMPTS[2:4]]
    observed = bad.has_read

    def has_read(done, num_reused):
        observed(done, num_reused)
        raise MemoryError("too little memory")

    monkeypatch.setattr(bad, "has_read", has_read)
    events = written(batch)
    assert_failed(bad, events[bad], MemoryError)
    assert [tokens_of(events[one]) for one in neighbours] == first(TRUE[kind][:4])


def test_a_reply_that_was_alone_gives_its_memory_back_where_that_was_too_little(monkeypatch):
    def out_of_memory(*_):
        raise RuntimeError("unable to allocate")

    batch = opened("none")
    bad = batch.join(PROMPTS[5], params_of())
    batch.step()
    monkeypatch.setattr(Continuation, "emit", out_of_memory)
    assert_failed(bad, written(batch)[bad], RuntimeError)
    assert batch.workspace.decoder.cache.nbytes == 0


@pytest.mark.parametrize("moment", ["start", "propose"])
def test_a_mistake_in_a_drafter_ends_the_reply_for_which_it_drafts(moment):
    class Mistaken(RandomTrees):
        def start(self, prompt, *others):
            super().start(prompt, *others)
            self.fail_at("start")

        def propose(self, root, budget):
            self.fail_at("propose")
            return super().propose(root, budget)

        def fail_at(self, now):
            if now == moment and self.tokens[: len(FAULTY) - 1] == FAULTY[:-1]:
                raise TypeError("a mistake")

    engine = make_engine(MODEL, for_each_sequence(Mistaken, VOCAB))
    replies = list(engine.generate_batch([*PROMPTS, FAULTY], params_of()))
    assert [type(reply.error) for reply in replies] == [type(None)] * 7 + [TypeError]
    assert [list(reply.tokens) for reply in replies[:7]] == first(TRUE["full"])


@pytest.mark.parametrize("callback", ["should_stop", "stop_when"])
def test_a_list_of_replies_goes_on_where_a_function_of_one_of_them_raises(callback):
    check = Late(nothing, fail)
    given = {callback: lambda index, *token: check() if index == 3 else False}
    engine = make_engine(MODEL, DRAFTERS["pool"]())
    replies = list(engine.generate_batch(PROMPTS, params_of(), batch_size=2, **given))
    assert [reply.index for reply in replies] == list(range(7))
    bad = replies.pop(3)
    assert bad.finish_reason == "error"
    with pytest.raises(Mistake):
        bad.raise_error()
    assert list(bad.tokens) == TRUE["full"][3][: len(bad.tokens)]
    assert [list(reply.tokens) for reply in replies] == first(TRUE["full"][:3] + TRUE["full"][4:])


def test_an_error_holds_nothing_of_the_batch():
    """Its traceback would keep the logits of the round, and all rows, as long as the error."""
    settings, _, _ = FAULTS["processor"]()
    engine = make_engine(MODEL, DRAFTERS["none"]())
    (reply,) = engine.generate_batch([FAULTY], params_of(**settings))
    frames, found = [], reply.error.__traceback__
    while found:
        frames, found = [*frames, found.tb_frame], found.tb_next
    assert frames
    assert [dict(frame.f_locals) for frame in frames] == [{}] * len(frames)

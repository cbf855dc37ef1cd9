"""A catalogue with fixed entries."""

import threading
from dataclasses import replace

from mlxspec.drafting.entries import DrafterEntry, ModelEntry

SMALL = ModelEntry("", "SmolLM2-135M-Instruct", 0.098, True, "Q4_1", "llama", 8192, 0.73, 4096)
MIDDLE = ModelEntry(
    "org/Qwen2.5-7B-4bit", "org/Qwen2.5-7B-4bit", 4.3, True, "4-bit", "qwen2", 32768, 12.0, 4096,
)  # fmt: skip
LARGE = ModelEntry(
    "org/Llama-70B", "org/Llama-70B", 141.0, True, "bfloat16", "llama", 131072, 142.0, 4096,
)  # fmt: skip
OTHER = ModelEntry(
    "org/gemma", "org/gemma", 5.0, problem="model_type 'gemma3' is not supported; supported are "
    "llama, mistral, qwen2",
)  # fmt: skip
MISSING = ModelEntry("", "SmolLM2-135M-Instruct", 0.093, is_here=False)
OFFERED = ModelEntry(
    "org/Wanted-4bit", "org/Wanted-4bit", 2.26, is_here=False, memory_gb=2.3, licence="Apache-2.0",
    expected_tps=41.7,
)  # fmt: skip
DRAFTERS = (
    DrafterEntry("auto", "auto", "the fastest here: pool"),
    DrafterEntry("pool", "pool", "what was said before, and a table", "", 21.5, True),
    DrafterEntry("none", "none", "no drafts: plain decoding", "", 11.1),
    DrafterEntry(
        "org/other", "org/other", "a model", "vocabulary of 49,152, the target's has 32,000"
    ),
)


class FakeCatalogue:
    """A catalogue of the given entries."""

    memory_gb = 16.0

    def __init__(self, models=(SMALL, MIDDLE, LARGE, OTHER), drafters=DRAFTERS, error=None):
        self._models, self._drafters, self._error = models, drafters, error
        self.asked, self.fetched, self.forgotten = [], [], []
        self.recommends = None
        self.gate = threading.Semaphore(0)  # what a download waits for, twice

    def fetch(self, source, on_progress):
        self.fetched.append(source)
        for done in (10, 40):
            on_progress(done, 100)
            self.gate.acquire()
        self._models = [replace(m, is_here=True) if m.source == source else m for m in self._models]

    def recommended(self):
        return self.recommends

    def models(self):
        if self._error:
            raise self._error
        return self._models

    def drafters(self, source, max_kv_size=None):
        self.asked.append(source)
        return self._drafters

    def forget_verdict(self, source, max_kv_size=None):
        if self._error:
            raise self._error
        self.forgotten.append((source, max_kv_size))

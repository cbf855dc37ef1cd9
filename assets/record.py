"""Record the traces beside this file anew: `python assets/record.py [NAME ...]`.

Each is one command of mlxspec with the default model; without a name all are made, which takes
some minutes. `make_screenshot.py` draws pictures from them.
"""

import subprocess
import sys
from pathlib import Path

ASSETS = Path(__file__).parent
TURNS = (
    "Write a short paragraph about the sea.",
    "Write a Python function that adds two numbers.",
    "Write the paragraph about the sea again, but replace the word sea with ocean.",
)
CODE = (
    "Write a Python class Stack with the methods push, pop, peek and is_empty, then show how to "
    "use it."
)
STORY = "Tell me a short story about a fox who learns to read."
BREAD = "Explain step by step how bread is made, from the flour to the oven."

COMMANDS = {
    "chat": ["chat", "--plain", "--drafter", "pool"],
    "code": ["generate", "--prompt", CODE, "--drafter", "suffix,table,eagle3"],
    "code-plain": ["generate", "--prompt", CODE, "--drafter", "none"],
    "sampling": [
        *("generate", "--prompt", STORY, "--drafter", "suffix,table,medusa"),
        *("--temp", "0.8", "--max-tokens", "160"),
    ],
    "rotating": [
        *("generate", "--prompt", BREAD, "--drafter", "pool"),
        *("--max-kv-size", "128", "--max-tokens", "320"),
    ],
}


def record(name: str) -> None:
    """Run a command and keep its trace in place of the one before."""
    trace = ASSETS / f"{name}.jsonl"
    made = trace.with_suffix(".new")
    made.unlink(missing_ok=True)
    command = [sys.executable, "-m", "mlxspec", *COMMANDS[name], "--seed", "1", "--trace"]
    turns = "\n".join(TURNS) if name == "chat" else ""
    subprocess.run([*command, str(made)], input=turns, text=True, check=True)
    made.replace(trace)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or COMMANDS:
        record(wanted)

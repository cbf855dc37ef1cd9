"""The commands over two ranks, as processes: what one process says, and an end that is clean."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from mlxspec import api
from mlxspec.params import GenerationParams
from tests.support.chat_folders import save_chat_folder
from tests.support.question_file import save_questions
from tests.support.ranks import environment, gone_within, run_script

LENGTH = 12
ASKED = ["Hi", "Hi there", "Hi"]
OPTIONS = ("--drafter", "pool", "--max-tokens", str(LENGTH), "--temp", "0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_chat_folder(tmp_path_factory.mktemp("chat") / "toy")


@pytest.fixture(scope="module")
def texts(folder):
    """What one process says to each of `ASKED`."""
    with api.load(folder, drafter="none") as engine:
        params = GenerationParams(max_tokens=LENGTH)
        prompts = [[{"role": "user", "content": text}] for text in ASKED]
        return [reply_of(engine, prompt, params) for prompt in prompts]


def reply_of(engine, messages, params):
    text = engine.tokenizer.render_chat(messages)
    tokens = engine.tokenizer.encode(text, add_special_tokens=False)
    events = list(engine.generate(tokens, params))
    written = [token.token for event in events for token in getattr(event, "emit", ())]
    return engine.tokenizer.decode(written)


def run(command, *options, text=""):
    return run_both(command, *options, text=text)[0]


def run_both(command, *options, text=""):
    """What a command over two ranks writes to standard output, and to standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "mlxspec", command, "--hosts", "2", *map(str, options)],
        input=text,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr


def test_generate_says_what_one_process_says(folder, texts):
    assert run("generate", *OPTIONS, "--model", folder, ASKED[1]).strip() == texts[1].strip()


def test_chat_says_what_one_process_says(folder, texts, tmp_path):
    options = ("--model", folder, "--data-dir", tmp_path)  # a pipe needs no --plain
    written, told = run_both("chat", *OPTIONS, *options, text=f"{ASKED[0]}\n/verify\n")

    assert texts[0].strip() in written
    assert f"identical to plain decoding: {LENGTH} of {LENGTH} tokens" in told


CHANGES = """
import gc, json, sys
from mlxspec.params import GenerationParams
from mlxspec_app.conversation.events import ModelChoice
from mlxspec_cli.chat_models import SessionModels
from mlxspec_cli.parser import build_parser
from tests.support.shared_replies import tokens_of

models = SessionModels(build_parser().parse_args(["chat", "--hosts", "2"]), ModelChoice())
written = []
for folder in sys.argv[3:]:
    conversation = models.open_conversation(ModelChoice(folder, "none"), print)
    models.change_drafter(ModelChoice(folder, "pool"), print)
    params = GenerationParams(max_tokens=int(sys.argv[1]))
    tokens = tokens_of(conversation.reply(sys.argv[2], params))
    written.append(conversation.engine.tokenizer.decode(tokens))
    del conversation
    models.release()
    gc.collect()  # as the app: the engine is dropped, and nobody closes it
print(json.dumps(written))
"""


def test_the_chat_loads_one_model_after_the_other_on_the_same_ranks(folder, texts, tmp_path):
    other = save_chat_folder(tmp_path / "other", seed=3)
    params = GenerationParams(max_tokens=LENGTH)
    with api.load(other, drafter="none") as engine:
        messages = [{"role": "user", "content": ASKED[0]}]
        expected = [texts[0], reply_of(engine, messages, params)]

    assert expected[0] != expected[1]
    assert run_script(CHANGES, LENGTH, ASKED[0], folder, other) == expected


MISSING = """
import json, sys
import mlxspec
from mlxspec.distributed import ranks
from mlxspec.errors import ModelNotFoundError
from tests.support.shared_replies import tokens_of

find, folder = ranks.find_source, sys.argv[3]
ranks.find_source = lambda source, told=None: find(folder if source == "here-alone" else source)
try:
    mlxspec.load("here-alone", drafter="none", hosts="2")
except ModelNotFoundError as error:
    said = str(error)
with mlxspec.load(folder, drafter="none", hosts="2") as engine:
    prompt = engine.tokenizer.apply_chat_template([{"role": "user", "content": sys.argv[2]}])
    params = mlxspec.GenerationParams(max_tokens=int(sys.argv[1]))
    text = engine.tokenizer.decode(tokens_of(engine.generate(prompt, params)))
print(json.dumps([said, text]))
"""


def test_a_model_that_another_rank_does_not_find_is_refused_and_the_ranks_stay(folder, texts):
    said, text = run_script(MISSING, LENGTH, ASKED[0], folder)
    assert said.startswith("rank 1 does not find the model: ")
    assert "here-alone" in said
    assert text == texts[0]


def test_bench_shows_the_estimate_beside_the_measurement(folder, tmp_path):
    options = ("--arms", "plain,pool", "--max-tokens", "8", "--limit", "1", "--categories", "qa")
    found = run("bench", folder, *options, "--prompts", save_questions(tmp_path))

    (row,) = (line for line in found.splitlines() if "estimate, tokens/s" in line)
    assert len(re.findall(r"\d+\.\d", row)) == 2


def test_doctor_says_what_the_link_takes_and_what_decoding_gives(folder):
    found = run("doctor", "--model", folder)

    assert "toy, float32, tensor parallel on 2 ranks; GB of weights by rank: 0.00, 0.00" in found
    assert re.search(r"link: \d+\.\d\d ms a sum of 1,024 numbers, \d+ MB/s", found)
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    assert f"{2 * layers} collectives a forward take" in found
    plain, drafted = (
        next(line.split() for line in found.splitlines() if line.startswith(name))
        for name in ("none", "pool")
    )
    assert plain[3] == "1.00"
    assert float(drafted[3]) >= 1
    assert all(float(speed) > 0 for speed in (*plain[1:3], *drafted[1:3]))


SSH = """#!/bin/bash
# Runs here what would run on another machine, as ssh does: with a clean environment, in a shell.
echo "$@" > "{said}"
while [[ "$1" == -* ]]; do if [[ "$1" == -o ]]; then shift; fi; shift; done
shift
exec env -i PATH="$PATH" HOME="$HOME" PYTHONPATH="$PYTHONPATH" bash -c "$*"
"""


def test_ranks_of_a_hostfile_are_started_over_ssh(folder, texts, tmp_path, monkeypatch):
    said, ssh = tmp_path / "said.txt", tmp_path / "ssh"
    ssh.write_text(SSH.format(said=said))
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    names = [{"ssh": name, "ips": ["127.0.0.1"]} for name in ("studio-1", "studio-2")]
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps(names))

    found = run("generate", *OPTIONS, "--hosts", file, "--model", folder, ASKED[1])

    assert found.strip() == texts[1].strip()
    command = said.read_text()
    assert re.match(r"(-o \w+=\w+ )+studio-2 ", command)
    assert "export MLX_RANK=1; " in command
    assert f"{sys.executable} -m mlxspec.distributed ring" in command


@contextmanager
def served(folder):
    """A server over two ranks: its process, its address, and what it says."""
    command = [sys.executable, "-m", "mlxspec", "serve", str(folder), "--hosts", "2"]
    command += [*OPTIONS, "--port", "0"]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        log = []
        for line in process.stderr:
            log.append(line)
            if found := re.search(r"(http://127\.0\.0\.1:\d+)/v1 answers", line):
                break
        rest = threading.Thread(target=lambda: log.extend(process.stderr), daemon=True)
        rest.start()
        try:
            yield process, found[1], log
        finally:
            process.kill()


def children_of(pid):
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True
    )
    return [int(word) for word in listed.stdout.split()]


def busy_seconds(pid):
    """The processor time that a process has taken."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as state:
        ticks = state.read().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def ask(address, text, **more):
    body = {"messages": [{"role": "user", "content": text}], **more}
    kind = {"content-type": "application/json"}
    where = f"{address}/v1/chat/completions"
    return urllib.request.urlopen(
        urllib.request.Request(where, json.dumps(body).encode(), kind), timeout=120
    )


def said(address, text):
    with ask(address, text) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def test_a_server_answers_several_at_once_and_ends_with_a_lost_rank(folder, texts):
    with served(folder) as (process, address, log):
        assert "tensor parallel on 2 ranks: replies" in "".join(log)
        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(lambda text: said(address, text), ASKED)) == texts

        ranks = children_of(process.pid)
        before = busy_seconds(ranks[0])
        time.sleep(1)
        assert busy_seconds(ranks[0]) - before < 0.2  # a rank that waits takes no processor time

        stream = ask(address, "Go on", max_tokens=10_000, stream=True)
        assert stream.readline().startswith(b"data: ")
        os.kill(ranks[0], signal.SIGKILL)
        assert process.wait(60) == 1
        assert gone_within(ranks, 15)
    assert "the target is lost" in log[-1]
    assert "Traceback" not in "".join(log)

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
def other(tmp_path_factory):
    return save_chat_folder(tmp_path_factory.mktemp("chat") / "other", seed=3)


def texts_of(folder, asked):
    """What one process says to each of some messages."""
    with api.load(folder, drafter="none") as engine:
        prompts = [engine.tokenizer.render_chat([user(text)]) for text in asked]
        return [engine.generate_text(prompt, GenerationParams(LENGTH)) for prompt in prompts]


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def texts(folder):
    return texts_of(folder, ASKED)


# ---- commands in one process, one after the other: MLX joins the ranks once --------------------

COMMANDS = """
import gc, io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from mlxspec.distributed import ranks
from mlxspec.errors import ModelNotFoundError
from mlxspec.params import GenerationParams
from mlxspec_app.conversation.events import ModelChoice
from mlxspec_cli.chat_models import SessionModels
from mlxspec_cli.main import main
from mlxspec_cli.parser import build_parser

plan, find = json.loads(sys.argv[1]), ranks.find_source
told = {"texts": []}
ranks.find_source = lambda source, told=None: find(plan["first"] if source == "alone" else source)
models = SessionModels(build_parser().parse_args(["chat", "--hosts", "2"]), ModelChoice())
try:
    models.open_conversation(ModelChoice("alone", "none"), print)
except ModelNotFoundError as error:
    told["missing"] = str(error)
for folder in (plan["first"], plan["second"]):
    conversation = models.open_conversation(ModelChoice(folder, "none"), print)
    models.change_drafter(ModelChoice(folder, "pool"), print)
    told["texts"] += [""]
    for event in conversation.reply(plan["asked"], GenerationParams(plan["length"])):
        told["texts"][-1] += "".join(token.text for token in getattr(event, "emit", ()))
    del conversation
    models.release()
    gc.collect()  # as the app: the engine is dropped, and nobody closes it
for command in plan["commands"]:
    sys.stdin = io.StringIO(plan["asked"] + "\\n/verify\\n")
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main([command[0], "--hosts", "2", *command[1:]])
    assert code == 0, (command, err.getvalue())
    told[command[0]] = [out.getvalue(), err.getvalue()]
    gc.collect()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(folder, other, tmp_path_factory):
    """What each of the commands says, and the chat of the app of two models."""
    home = tmp_path_factory.mktemp("home")
    few = ["--max-tokens", "8", "--limit", "1", "--categories", "qa"]
    commands = [
        ["chat", *OPTIONS, "--model", str(folder), "--data-dir", str(home)],  # a pipe: bare lines
        ["doctor", "--model", str(folder)],
        ["bench", str(folder), "--arms", "plain,pool", *few, "--prompts", save_questions(home)],
    ]
    plan = {"first": str(folder), "second": str(other), "asked": ASKED[0], "length": LENGTH}
    return run_script(COMMANDS, json.dumps(plan | {"commands": commands}, default=str))


def test_the_chat_loads_one_model_after_the_other_on_the_same_ranks(told, texts, other):
    expected = [texts[0], *texts_of(other, ASKED[:1])]
    assert expected[0] != expected[1]
    assert told["texts"] == expected


def test_a_model_that_another_rank_does_not_find_is_refused_and_the_ranks_stay(told):
    assert told["missing"].startswith("rank 1 does not find the model: ")
    assert "alone" in told["missing"]


def test_chat_says_what_one_process_says(told, texts):
    written, said = told["chat"]
    assert texts[0].strip() in written
    assert f"identical to plain decoding: {LENGTH} of {LENGTH} tokens" in said


def test_bench_shows_the_estimate_beside_the_measurement(told):
    lines = told["bench"][0].splitlines()
    (row,) = (line for line in lines if "estimate, tokens/s" in line)
    assert len(re.findall(r"\d+\.\d", row)) == 2


def test_doctor_says_what_the_link_takes_and_what_decoding_gives(told, folder):
    found = told["doctor"][0]
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


# ---- commands of their own processes ------------------------------------------------------------

SSH = """#!/bin/bash
# Runs here what would run on another machine, as ssh does: with a clean environment, in a shell.
echo "$@" > "{said}"
while [[ "$1" == -* ]]; do if [[ "$1" == -o ]]; then shift; fi; shift; done
shift
exec env -i PATH="$PATH" HOME="$HOME" PYTHONPATH="$PYTHONPATH" bash -c "$*"
"""


def command(name, *options):
    return [sys.executable, "-m", "mlxspec", name, *map(str, options)]


def test_ranks_of_a_hostfile_are_started_over_ssh_and_generate_what_one_process_says(
    folder, texts, tmp_path
):
    said, ssh, file = tmp_path / "said.txt", tmp_path / "ssh", tmp_path / "hosts.json"
    ssh.write_text(SSH.format(said=said))
    ssh.chmod(0o755)
    names = ("studio-1", "studio-2")
    file.write_text(json.dumps([{"ssh": name, "ips": ["127.0.0.1"]} for name in names]))
    options = (*OPTIONS, "--hosts", file, "--model", folder, ASKED[1])
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.check_output(
        command("generate", *options), env=environment(PATH=path), text=True, timeout=200
    )
    assert found.strip() == texts[1].strip()
    given = said.read_text()
    assert re.match(r"(-o \w+=\w+ )+studio-2 ", given)
    assert "export MLX_RANK=1; " in given
    assert f"{sys.executable} -m mlxspec.distributed ring" in given


@contextmanager
def served(folder):
    """A server over two ranks: its process, its address, and what it says."""
    words = command("serve", folder, "--hosts", "2", *OPTIONS, "--port", "0")
    with subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True) as process:
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
    body = json.dumps({"messages": [user(text)], **more}).encode()
    kind = {"content-type": "application/json"}
    request = urllib.request.Request(f"{address}/v1/chat/completions", body, kind)
    return urllib.request.urlopen(request, timeout=120)


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
    assert "(rank 1 on 127.0.0.1 has ended with the code -9; " in log[-1]
    assert "Traceback" not in "".join(log)

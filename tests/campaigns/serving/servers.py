"""Servers in processes of their own, `mlxspec serve` or mlx-lm's; their model, what they use."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.request import urlopen

import mlx.core as mx
from mlx.utils import tree_flatten

from mlxspec.api import load_target
from mlxspec.bench.peers import mlx_lm_model
from mlxspec.params import Options

OURS, THEIRS = "mlxspec", "mlx-lm"
_COMMANDS = {
    OURS: ("-m", "mlxspec", "serve"),
    # With the same BLAS as ours, which works only before MLX is imported.
    THEIRS: ("-c", "import mlxspec, runpy; runpy.run_module('mlx_lm.server', run_name='__main__')"),
}
_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Served:
    """A server that answers: whose it is, its address, the name of its model, its process."""

    name: str
    url: str
    model: str
    pid: int

    def get(self, path):
        with urlopen(self.url + path, timeout=600) as response:
            return response.read().decode()


@contextmanager
def served(flags=(), name=OURS):
    """Run a server until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    where = ["--host", "127.0.0.1", "--port", str(port)]
    command = [sys.executable, *_COMMANDS[name], *where, *flags]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            server = Served(name, f"http://127.0.0.1:{port}", "default_model", process.pid)
            _wait_for(server, process)
            if name == OURS:
                (model, *_) = json.loads(server.get("/v1/models"))["data"]
                server = Served(name, server.url, model["id"], process.pid)
            yield server
        except BaseException:
            log.seek(0)
            print(log.read()[-3000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(60)


def _wait_for(server, process):
    for _ in range(1200):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            return server.get("/health")
        except OSError:
            time.sleep(0.5)
    raise RuntimeError("the server did not answer within ten minutes")


# ---- the model ---------------------------------------------------------------------------------


@contextmanager
def model_folder(source):
    """Yield a folder that mlx-lm's server can load too; for None the default model is written."""
    if source is not None:
        yield Path(source)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "SmolLM2-135M-Instruct"
        folder.mkdir()
        loaded = load_target(None, Options())
        weights = dict(tree_flatten(mlx_lm_model(loaded.model).parameters()))
        mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
        config = {name: value for name, value in asdict(loaded.config).items() if value is not None}
        config["eos_token_id"] = list(loaded.tokenizer.eos_token_ids)
        (folder / "config.json").write_text(json.dumps(config, default=list))
        loaded.tokenizer.wrapped.save_pretrained(folder)
        loaded.free()
        yield folder


def dtype_of(folder):
    """Return the dtype of most weights of a folder; mlx-lm computes in it."""
    counts = Counter()
    for path in folder.glob("*.safetensors"):
        names = (str(array.dtype).rpartition(".")[2] for array in mx.load(str(path)).values())
        counts.update(name for name in names if name in _DTYPES)
    return counts.most_common(1)[0][0]


def our_flags(folder, args):
    """Return the flags of our server: the dtype is that in which mlx-lm computes."""
    return [str(folder), "--dtype", dtype_of(folder), "--drafter", args.drafter]


# ---- what a server uses; Linux alone tells it in /proc ------------------------------------------


def use_of(server):
    """Return the memory in MB, the threads and the open files of a server."""
    proc = Path(f"/proc/{server.pid}")
    return {
        "rss_mb": int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "threads": len(os.listdir(proc / "task")),
        "files": len(os.listdir(proc / "fd")),
    }


@contextmanager
def sampled(server, every_s):
    """Yield a list that gets what the server uses every some seconds, with the `hours` so far."""
    samples, is_over, begin = [], threading.Event(), time.monotonic()

    def run():
        while not is_over.wait(every_s):
            samples.append({"hours": (time.monotonic() - begin) / 3600} | use_of(server))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


def at_rest(server, patience_s=120):
    """Wait until no reply is written; return what is used then."""
    deadline = time.monotonic() + patience_s
    while "mlxspec_replies_running 0" not in server.get("/metrics"):
        assert time.monotonic() < deadline, "replies are written for clients that have gone"
        time.sleep(0.5)
    time.sleep(3)  # for connections that are being closed
    return use_of(server)

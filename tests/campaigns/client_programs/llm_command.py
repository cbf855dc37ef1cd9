"""The command `llm` with the server as a model of its file `extra-openai-models.yaml`."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL, URL = os.environ["MLXSPEC_MODEL"], os.environ["MLXSPEC_URL"]
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"days": {"enum": [1, 2, 3]}},
        "required": ["days"],
        "additionalProperties": False,
    }
)
LLM = str(Path(sys.executable).parent / "llm")


def llm(*words):
    command = [LLM, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


with tempfile.TemporaryDirectory() as folder:
    os.environ["LLM_USER_PATH"] = folder
    entry = {"model_id": "served", "model_name": MODEL, "api_base": f"{URL}/v1"}
    entry |= {"api_key_name": "served", "supports_schema": True, "supports_tools": True}
    (Path(folder) / "extra-openai-models.yaml").write_text(json.dumps([entry]))
    llm("keys", "set", "served", "--value", "any")
    ask = ("-m", "served", "-o", "temperature", "0", "-o", "max_tokens", "8", "One colour?")
    whole = llm(*ask, "--no-stream")
    assert llm(*ask) == whole
    print("chat:", repr(whole))
    print("goes on:", repr(llm("-c", "-o", "max_tokens", "8", "And another one?")))
    found = llm("-m", "served", "--no-stream", "--schema", SCHEMA, "How long?")
    assert set(json.loads(found)) == {"days"}
    print("schema:", found)

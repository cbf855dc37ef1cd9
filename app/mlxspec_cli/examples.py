"""The first lines of the help of each command: what is typed most, by the words of the command."""

EXAMPLES = {
    "mlxspec": (
        "mlxspec chat                         talk with a model in this terminal",
        "mlxspec generate explain tides       one reply to standard output",
        "mlxspec models --fetch MODEL         download a model that `mlxspec models` lists",
        "mlxspec serve                        answer programs as OpenAI's servers do",
    ),
    "mlxspec chat": (
        "mlxspec chat",
        "mlxspec chat --model mlx-community/Qwen3-4B-4bit --temp 0.7",
        "mlxspec chat --continue",
    ),
    "mlxspec generate": (
        "mlxspec generate explain tides to a child",
        "cat notes.txt | mlxspec generate summarise this in three lines",
        "mlxspec generate --json-schema city.json --max-tokens 200 tell me about Rome",
    ),
    "mlxspec replay": ("mlxspec replay chat.jsonl --speed 0.5",),
    "mlxspec race": ("mlxspec race plain.jsonl drafted.jsonl --html race.html",),
    "mlxspec export": ("mlxspec export chat.jsonl --html chat.html",),
    "mlxspec bench": (
        "mlxspec bench",
        "mlxspec bench mlx-community/Qwen3-4B-4bit --arms plain,pool --limit 2",
    ),
    "mlxspec verify": (
        "mlxspec verify",
        "mlxspec verify mlx-community/Qwen3-4B-4bit --drafters pool --draws 200",
    ),
    "mlxspec serve": (
        "mlxspec serve",
        "mlxspec serve mlx-community/Qwen3-4B-4bit --port 8000",
    ),
    "mlxspec watch": ("mlxspec watch http://127.0.0.1:8080",),
    "mlxspec models": (
        "mlxspec models",
        "mlxspec models mlx-community/Qwen3-4B-4bit --fetch",
    ),
    "mlxspec train": ("mlxspec train table --minutes 10 --model mlx-community/Qwen3-4B-4bit",),
}

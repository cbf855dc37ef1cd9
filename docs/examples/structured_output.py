"""Replies that fit a JSON schema; other forms of grammars."""

import mlxspec

engine = mlxspec.load()
person = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
params = mlxspec.GenerationParams(grammar=person)
print(engine.generate_text("A person as JSON: ", params))

date = mlxspec.Grammar.regex("[0-9]{4}-[0-9]{2}-[0-9]{2}")
answer = mlxspec.Grammar.choices(["yes", "no"])
sums = mlxspec.Grammar.lark('start: NUMBER ("+" NUMBER)*\nNUMBER: /[0-9]+/')

"""Grammars that are compiled, and those that are refused: at once, with the place and in bounds."""

import json
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from mlxspec.errors import UnsupportedOperationError
from mlxspec.grammar import compiled
from mlxspec.grammar.compiled import Grammars
from mlxspec.grammar.finite import endless_place
from mlxspec.params import GenerationParams, Grammar
from mlxspec.params.grammar import MAX_DEPTH, MAX_LENGTH, drop_formats
from tests.support.tiny import ToyTokenizer, make_engine, tiny_model

SECONDS = 30.0  # on a busy machine; most take milliseconds


class ByteTokenizer(ToyTokenizer):
    """A token for each byte."""

    def __init__(self):
        super().__init__(256)

    def token_bytes(self, token):
        return bytes([token])

    def encode(self, text, *, add_special_tokens=True):
        return list(text.encode())


@pytest.fixture(scope="module")
def grammars():
    return Grammars(ByteTokenizer())


def accepts(grammars, grammar, text):
    matcher = grammars.matcher(grammar)
    tokens = list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


# ---- what is served ----------------------------------------------------------------------------


def test_a_schema_is_written_as_json_dumps_writes_it(grammars):
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "null"}}}}
    value = json.dumps({"a": [None, None]})
    assert accepts(grammars, Grammar.json_schema(schema), value)
    assert not accepts(grammars, Grammar.json_schema(schema), '{"a":[null,null]}')
    loose = Grammar.json_schema(schema, any_whitespace=True)
    assert accepts(grammars, loose, '{\n  "a":[null,\tnull]\n}')


CHOICES = ["yes", "no\n", 'a"b\\c', "é☃ \t", "x\x00y", "{{a}}|(", "]", "-"]


@pytest.mark.parametrize(
    ("grammar", "text", "other"),
    [
        *((Grammar.choices(["maybe", text]), text, text + text) for text in CHOICES),
        (Grammar.regex("[0-9]{3}-[a-z]+"), "123-abc", "1234-a"),
        (Grammar.lark('start: "(" start ")" | "x"'), "((x))", "((x)"),
    ],
)
def test_choices_regular_expressions_and_lark_grammars_are_served(grammars, grammar, text, other):
    assert accepts(grammars, grammar, text)
    assert not accepts(grammars, grammar, other)


def test_a_dict_a_path_and_a_model_class_are_schemas(tmp_path):
    schema = {"type": "integer"}
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema))

    class Model:  # as pydantic's
        @classmethod
        def model_json_schema(cls):
            return schema

    wanted = Grammar("json-schema", '{"type": "integer"}')
    for given in (schema, path, Model, Grammar.json_schema(str(path)), wanted):
        assert GenerationParams(grammar=given).grammar == wanted


def test_a_grammar_is_compiled_once(grammars, monkeypatch):
    grammar = Grammar.regex("[a-e]{7}")
    grammars.matcher(grammar)
    monkeypatch.setattr(grammars, "_compile", None)
    first, second = grammars.matcher(grammar), grammars.matcher(grammar)
    assert first.consume_token(ord("a"))
    assert second.compute_bitmask() != first.compute_bitmask() or not second.is_stopped()


# ---- what is refused ---------------------------------------------------------------------------


ENDLESS = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["x"]}


def deep(levels):
    schema = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def doubled(levels):
    value = {"type": "integer"}
    for _ in range(levels):
        value = {"anyOf": [value, value]}
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no such file", "cannot read the schema file no such file"),
        (3, "must be a JSON schema"),
        (dict, "must be a JSON schema"),
        ({"const": float("nan")}, "cannot be read: Out of range float values"),
        ({"properties": {"a/b": {"enum": [{1}]}}}, "cannot be read: Object of type set"),
        ({"const": 10**5000}, "cannot be read: Exceeds the limit"),
        ({3: "x"}, "a name that is not a text"),
        (deep(MAX_DEPTH + 1), f"nested more than {MAX_DEPTH} levels"),
        (doubled(40), "has more than|levels deep"),
        ({"enum": [[0] * 50_000] * 50_000}, "has more than"),
        ({"const": "x" * (MAX_LENGTH + 1)}, "characters; allowed are"),
        ({"multipleOf": 99999989}, "common multiple of more than 100000"),
        ({"anyOf": [{"multipleOf": 9973}, {"multipleOf": 99.67}]}, "common multiple"),
        ({"allOf": [{"multipleOf": 0.00001}, {"multipleOf": 9973}]}, "common multiple"),
        ({"multipleOf": 1e300}, "common multiple"),
    ],
)
def test_what_is_no_schema_is_refused_by_the_settings(value, message):
    begin = time.perf_counter()
    with pytest.raises(ValueError, match=message):
        GenerationParams(grammar=value)
    assert time.perf_counter() - begin < SECONDS


@pytest.mark.parametrize("name", ["multipleOf", "multiple\\u004ff"])
@pytest.mark.parametrize("number", ["99999989", "1e999999999"])
def test_a_schema_inside_a_grammar_is_bounded_likewise(name, number):
    with pytest.raises(ValueError, match="common multiple of more than 100000"):
        Grammar.lark(f'start: %json {{"type": "integer", "{name}": {number}}}')


def test_multiples_that_real_schemas_ask_for_are_served():
    numbers = (0.01, 0.5, 5, 60, 1000)
    schema = {"properties": {str(number): {"multipleOf": number} for number in numbers}}
    assert Grammar.json_schema(schema).source
    assert Grammar.json_schema({"allOf": [{"multipleOf": 0.01}, {"multipleOf": 60}]}).source
    assert Grammar.json_schema({"multipleOf": 0}).source


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"schema\.json is not JSON"),
        (" " * (5 * MAX_LENGTH), "give a smaller one"),
        ("[" * 100_000, "too deeply"),
        (None, r"cannot read the schema file .*schema"),
    ],
    ids=["broken", "large", "deep", "missing"],
)
def test_a_file_that_is_no_schema_is_refused(tmp_path, text, message):
    path = tmp_path / "schema.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message):
        GenerationParams(grammar=path)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (False, "cannot be served: "),
        ({"type": "strange"}, r"Invalid type: strange \(in #\)"),
        (
            {"properties": {"a": {"type": "array", "items": {"not": {"type": "null"}}}}},
            r"not.*\(in #/properties/a/items\)",
        ),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": {"type": "array", "uniqueItems": True}}},
            r"uniqueItems.*\(in #/\$defs/x\)",
        ),
        ({"anyOf": [{"type": "null"}, {"pattern": "(?=a)b"}]}, r"look-around.*\(in #/anyOf/1\)"),
        ({"$ref": "http://example.com/schema.json"}, "example.com"),
        ({"properties": {"a": False}, "required": ["a"], "type": "object"}, "nsatisfiable"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "no"),
        ({"$ref": "#/$defs/a", "$defs": {"a": ENDLESS}}, r"no finite text fits #/\$defs/a"),
        (
            {"properties": {f"p{index}": {"type": "string"} for index in range(15_000)}},
            "too big|too large",
        ),
    ],
)
def test_a_schema_that_cannot_be_served_is_refused_with_its_place(grammars, schema, message):
    begin = time.perf_counter()
    with pytest.raises(ValueError, match=message) as raised:
        grammars.matcher(Grammar("json-schema", json.dumps(schema)))
    assert time.perf_counter() - begin < SECONDS
    assert str(raised.value).startswith("the JSON schema cannot be served")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar.regex("(a{1000}){1000}"),
        Grammar.regex("((a{1,100}b){1,100}c){1,100}"),
        Grammar.regex("(unclosed"),
        Grammar.regex("a&~(a)"),
        Grammar.lark('start: start "a" | start'),
    ],
    ids=lambda grammar: grammar.source[:24],
)
def test_a_costly_or_wrong_grammar_is_served_or_refused_in_bounded_time(grammars, grammar):
    begin = time.perf_counter()
    with suppress(ValueError):
        grammars.matcher(grammar)
    assert time.perf_counter() - begin < SECONDS


def test_recursion_with_an_end_is_finite():
    tree = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "left": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
                    "others": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                },
                "required": ["left", "others"],
            }
        },
    }
    assert endless_place(tree) == ""
    tree["$defs"]["node"]["properties"]["others"]["minItems"] = 1
    assert endless_place(tree) == "#/$defs/node"


def test_references_that_double_are_looked_at_once():
    defs = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)}
    begin = time.perf_counter()
    schema = {"$ref": "#/$defs/a0", "$defs": {**defs, "a60": {"type": "null"}}}
    assert endless_place(schema) == ""
    assert time.perf_counter() - begin < SECONDS


def test_a_text_that_no_token_can_write_is_refused_before_anything_is_computed():
    engine = make_engine(tiny_model(), None)  # its tokens are letters
    with pytest.raises(ValueError, match="no text of this model's tokens"):
        engine.generate([1, 2], GenerationParams(grammar={"type": "object"}))
    assert engine.target.history == ()


def test_without_the_library_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    engine = make_engine(tiny_model(), None)
    with pytest.raises(UnsupportedOperationError, match=r"pip install 'mlxspec\[grammar\]'"):
        engine.generate([1, 2], GenerationParams(grammar=Grammar.regex("a")))


def test_no_thread_waits_for_what_another_one_compiles(monkeypatch):
    grammars, may_end, has_begun = Grammars(ByteTokenizer()), Event(), Event()
    costly, served = Grammar.regex("[a-z]{9}"), Grammar.regex("ab")
    grammars.matcher(served)
    tried = grammars._tried

    def held(grammar):
        if grammar == costly:
            has_begun.set()
            assert may_end.wait(20), "the other grammars waited for this one"
        return tried(grammar)

    monkeypatch.setattr(grammars, "_tried", held)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(grammars.matcher, costly)
        assert has_begun.wait(20)
        for grammar in (served, Grammar.regex("cd")):
            assert grammars.matcher(grammar)
        may_end.set()
        assert slow.result()


def test_the_search_for_a_place_ends_in_time(grammars, monkeypatch):
    monkeypatch.setattr(compiled, "_MAX_PLACE_S", 0.0)
    schema = {"properties": {"a": {"type": "strange"}}}
    with pytest.raises(ValueError, match=r"Invalid type: strange \(in #\)"):
        grammars.matcher(Grammar.json_schema(schema))


# ---- formats that no text can be made to have: they only describe it ----------------------------


def test_what_pydantic_names_is_served_and_told(grammars):
    pydantic = pytest.importorskip("pydantic")

    class Upload(pydantic.BaseModel):
        path: Path
        file: pydantic.FilePath | None = None
        content: bytes
        encoded: pydantic.Base64Bytes
        password: pydantic.SecretStr
        address: pydantic.IPvAnyAddress

    with pytest.warns(UserWarning, match="format 'base64', 'binary', 'file-path', 'ipvanyaddress'"):
        grammar = GenerationParams(grammar=Upload).grammar
    text = json.dumps(
        {"path": "/a", "content": "b", "encoded": "aGk=", "password": "p", "address": "::1"}
    )
    Upload.model_validate_json(text)
    assert accepts(grammars, grammar, text)
    assert not accepts(grammars, grammar, text.replace('"p"', "5"))
    with pytest.raises(pydantic.ValidationError):
        Upload.model_validate_json(text.replace('"p"', "5"))


@pytest.mark.parametrize("place", ["anyOf", "items", "$defs", "additionalProperties", "tuple"])
def test_an_unknown_format_is_dropped_wherever_a_schema_stands(grammars, place):
    own = {"type": "string", "format": "path"}
    schema = {
        "anyOf": {"anyOf": [{"type": "null"}, own]},
        "items": {"type": "array", "items": own},
        "$defs": {"$ref": "#/$defs/a", "$defs": {"a": own}},
        "additionalProperties": {"type": "object", "additionalProperties": own},
        "tuple": {"type": "array", "prefixItems": [own]},
    }[place]
    before = json.dumps(schema)
    grammar = Grammar.json_schema(schema)
    assert grammars.matcher(grammar)
    assert grammar.unchecked == ("path",)
    assert json.dumps(schema) == before  # it is the caller's


def test_what_is_named_format_elsewhere_stays(grammars):
    schema = {
        "type": "object",
        "properties": {"format": {"enum": [{"format": "path"}]}},
        "required": ["format"],
        "additionalProperties": False,
    }
    grammar = Grammar.json_schema(schema)
    assert json.loads(grammar.source) == schema
    assert accepts(grammars, grammar, '{"format": {"format": "path"}}')
    assert not accepts(grammars, grammar, "{}")


@pytest.mark.parametrize(
    "name",
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"],
)
def test_a_format_that_the_library_has_is_kept_and_checked(grammars, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grammar = GenerationParams(grammar={"type": "string", "format": name}).grammar
    assert not accepts(grammars, grammar, '" no such text "')


@pytest.mark.parametrize(
    "name", ["path", "regex", "idn-email", "iri", "uri-reference", "json-pointer", "Date", ""]
)
def test_a_format_that_is_dropped_is_none_of_the_library(grammars, name):
    schema = {"type": "string", "format": name}
    with pytest.raises(ValueError, match="Unknown format"):
        grammars.matcher(Grammar("json-schema", json.dumps(schema)))
    assert drop_formats(schema) == [name]
    assert schema == {"type": "string"}

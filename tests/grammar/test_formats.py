"""Formats that no text can be made to have: they describe it, and a schema with them is served."""

import json
import warnings
from pathlib import Path

import pytest

from mlxspec.params import GenerationParams, Grammar
from mlxspec.params.grammar import drop_formats
from tests.grammar.test_compiled import ByteTokenizer, Grammars, accepts

pydantic = pytest.importorskip("pydantic")
GRAMMARS = Grammars(ByteTokenizer())
KEPT = ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"]


class Upload(pydantic.BaseModel):
    path: Path
    file: pydantic.FilePath | None = None
    content: bytes
    encoded: pydantic.Base64Bytes
    password: pydantic.SecretStr
    address: pydantic.IPvAnyAddress


def test_what_pydantic_names_is_served_and_told():
    with pytest.warns(UserWarning, match="format 'base64', 'binary', 'file-path', 'ipvanyaddress'"):
        grammar = GenerationParams(grammar=Upload).grammar
    text = json.dumps(
        {"path": "/a", "content": "b", "encoded": "aGk=", "password": "p", "address": "::1"}
    )
    Upload.model_validate_json(text)
    assert accepts(GRAMMARS, grammar, text)
    assert not accepts(GRAMMARS, grammar, text.replace('"p"', "5"))
    with pytest.raises(pydantic.ValidationError):
        Upload.model_validate_json(text.replace('"p"', "5"))


@pytest.mark.parametrize("place", ["anyOf", "items", "$defs", "additionalProperties", "tuple"])
def test_an_unknown_format_is_dropped_wherever_a_schema_stands(place):
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
    assert GRAMMARS.matcher(grammar)
    assert grammar.unchecked == ("path",)
    assert json.dumps(schema) == before  # it is the caller's


def test_what_is_named_format_elsewhere_stays():
    schema = {
        "type": "object",
        "properties": {"format": {"enum": [{"format": "path"}]}},
        "required": ["format"],
        "additionalProperties": False,
    }
    grammar = Grammar.json_schema(schema)
    assert json.loads(grammar.source) == schema
    assert accepts(GRAMMARS, grammar, '{"format": {"format": "path"}}')
    assert not accepts(GRAMMARS, grammar, "{}")


@pytest.mark.parametrize("name", KEPT)
def test_a_format_that_the_library_has_is_kept_and_checked(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grammar = GenerationParams(grammar={"type": "string", "format": name}).grammar
    assert not accepts(GRAMMARS, grammar, '" no such text "')


@pytest.mark.parametrize(
    "name", ["path", "regex", "idn-email", "iri", "uri-reference", "json-pointer", "Date", ""]
)
def test_a_format_that_is_dropped_is_none_of_the_library(name):
    schema = {"type": "string", "format": name}
    with pytest.raises(ValueError, match="Unknown format"):
        GRAMMARS.matcher(Grammar("json-schema", json.dumps(schema)))
    assert drop_formats(schema) == [name]
    assert schema == {"type": "string"}

"""JSON and YAML of others: values or one kind of error. The deep ones would end the process."""

import msgspec
import pytest
import yaml

from dgbench.runtime.documents import DEEPEST, decode_json, load_yaml


def test_yaml_that_is_refused():
    for text in (
        b"[" * 200_000,  # libyaml's loader overflows the stack of C
        b"- " * 200_000, b"a: &x [1]\nb: [*x, *x]", b"a: &x [*x]", b"a: {b: 1}\na: {b: 2}",
        b"{tolerance: 0.1, tolerance: 0.9}", b"a: 2001-99-99", b"!!bool x", b"!!timestamp x",
        b"!!int x", b"0b_", b"9" * 5000, b"\xff", b"\x00", b"? [a]\n: b",
        b"!!python/object/apply:os.getcwd []",
    ):  # fmt: skip
        with pytest.raises(yaml.YAMLError):
            load_yaml(text)


def test_yaml_that_is_read():
    text = b"a: {low: 1, high: 2.5}\nb: [x, null, true]\nc: {a: 1}\n"
    assert load_yaml(text) == {"a": {"low": 1, "high": 2.5}, "b": ["x", None, True], "c": {"a": 1}}
    assert load_yaml(b"[" * DEEPEST + b"]" * DEEPEST) != []
    assert load_yaml(b"") is None
    assert load_yaml("\ufeffa: é".encode()) == {"a": "é"}


def test_json_that_is_refused():
    for text in (b"[" * 200_000, b'{"a":' * 200_000, b'"\xff"', b'{"\xff": 1}', b""):
        for kind in (msgspec.Raw, dict[str, int], list[list[int]]):
            with pytest.raises(msgspec.DecodeError):
                decode_json(text + b"?", kind)


def test_json_that_is_read():
    assert decode_json(b'{"a": [1, 2]}', dict[str, list[int]]) == {"a": [1, 2]}

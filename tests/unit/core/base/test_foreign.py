"""Every reader of JSON from outside counts the parts before it parses them."""

from __future__ import annotations

import ast
import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import nbagent
from nbagent.core.base import incoming_json
from nbagent.core.base.errors import (
    ModelConfigError,
    StoreError,
    UsageError,
)
from nbagent.core.base.events import parse
from nbagent.core.base.incoming_json import (
    MAX_PARTS,
    TooManyParts,
    check_parts,
    parts_of,
    within_parts,
)
from nbagent.core.base.messages import input_of, object_in
from nbagent.core.journal.rows import last_of
from nbagent.core.stored.document import import_run
from nbagent.core.tools.answer_type import Misfit, answer_type, partial_of
from nbagent.models.openai.stream import BrokenStream, parsed
from nbagent.models.recorded.recording import load
from nbagent.notebook.wire import MAX_TEXT, parse_message

ROOT = Path(nbagent.__file__).parent
odd = st.text(st.sampled_from('{}[],:"\\ax\n\u20ac\ud800\U0001f600'), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | odd,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(odd, inner, max_size=5),
    max_leaves=40,
)


def counts(value):
    """The number of parts of a value, and of empty parts."""
    if isinstance(value, dict):
        inside = [counts(each) for each in value.values()]
        return 1 + len(value) + sum(n for n, _ in inside), sum(e for _, e in inside) + (not value)
    if isinstance(value, list):
        inside = [counts(each) for each in value]
        return 1 + sum(n for n, _ in inside), sum(e for _, e in inside) + (not value)
    return 1, 0


@given(values, st.booleans(), st.sampled_from([1, 3, 7, 262_144]))
@example('\\"', True, 1)
@example({'"': "\\\\"}, False, 1)
def test_parts_are_counted_as_they_are_parsed(value, escapes, piece):
    """Brackets in strings do not count; an empty list counts twice, as its bracket may have content."""
    text = json.dumps(value, ensure_ascii=escapes)
    whole, empty = counts(value)
    before, incoming_json._PIECE = incoming_json._PIECE, piece
    try:
        assert parts_of(text, 10**9) >= whole
        assert parts_of(text, whole + empty - 1) == whole + empty
    finally:
        incoming_json._PIECE = before


@given(values)
def test_a_parsed_value_is_counted_the_same(value):
    """One part too many is refused."""
    whole, _ = counts(value)
    check_parts(value, whole)
    if whole > 1:
        with pytest.raises(TooManyParts):
            check_parts(value, whole - 1)


def test_a_short_text_is_not_counted():
    """For a short text, only the length is checked."""

    class Untouched(bytes):
        def count(self, *_):
            raise AssertionError

    text = Untouched(b"[" * MAX_PARTS)
    assert within_parts(text) is text
    with pytest.raises(AssertionError):
        within_parts(Untouched(b"[" * (MAX_PARTS + 1)))


def test_a_page_is_bounded_in_characters_over_all_its_texts():
    """50 MB are refused, in a text, a key or a list."""
    for content in (
        {"type": "drafts", "interrupt": "i", "drafts": "x" * 50_000_000},
        {"type": "drafts", "interrupt": "i", "drafts": {"x" * 50_000_000: 1}},
        {"type": "drafts", "interrupt": "i", "drafts": ["x" * 1_000_000] * 50},
    ):
        with pytest.raises(TooManyParts, match=f"{MAX_TEXT:,} characters"):
            check_parts(content, characters=MAX_TEXT)


# --- every reader

REFUSES = {
    "a model's event": (lambda text, _: parsed(text.encode(errors="replace")), BrokenStream),
    "a model's arguments": (lambda text, _: object_in(text), ()),
    "a provider's arguments": (lambda text, _: input_of(text), ()),
    "a model's answer": (lambda text, _: answer_type(dict[str, int]).parse(text), Misfit),
    "half of an answer": (lambda text, _: partial_of(text, "json"), ()),
    "a stored event": (lambda text, _: parse(text), StoreError),
    "the end of a journal": (lambda text, _: last_of(text), ()),
    "an exported run": (lambda text, path: import_run(written(path, text)), UsageError),
    "a recording": (lambda text, path: load(written(path, text)), ModelConfigError),
    "a page's message": (lambda text, _: page_message(json_or_none(text)), ValueError),
}


def page_message(content):
    check_parts(content, characters=MAX_TEXT)
    return parse_message(content)


def written(path, text):
    path.write_text(text, encoding="utf-8", errors="replace")
    return path


def json_or_none(text):
    """A message as a kernel parses it; a kernel drops invalid JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def many(count):
    return st.sampled_from(
        [
            "[" + "1," * count + "1]",
            "[" + '{"type":"text","text":""},' * (count // 5) + "1]",
            '{"a":' * count,
            "[" * count,
            '["' + '","' * count + '"]',
            '{"type":"run_failed","at":[' + "[]," * count + "1]}",
            '"' + "[{:,\\\\" * count + '"',
            '{"a":"' + '\\"' * count + '"}',
        ]
    )


hostile = st.one_of(
    st.sampled_from([10, 300, MAX_PARTS + 1, 3 * MAX_PARTS]).flatmap(many),
    st.integers(1, 300_000).map(lambda n: "9" * n),
    st.integers(1, 300_000).map(lambda n: '{"a":-' + "9" * n + "}"),
    st.integers(1, 300_000).map(lambda n: '{"at":1e' + "9" * n + "}"),
    st.integers(1, 300_000).map(lambda n: '{"at":0.' + "0" * n + "1}"),
    st.sampled_from(["NaN", '{"a":Infinity}', '"\\ud800"', "\ud800", "\x00", "", "[", '{"a":1']),
    values.map(json.dumps),
    st.text(max_size=50),
    st.fixed_dictionaries(
        {"nbagent_recording": st.just(1), "session": values, "format": st.just("nbagent-run")}
    ).map(json.dumps),
    st.tuples(st.sampled_from(["drafts", "focus", "say", "answer"]), values).map(
        lambda pair: json.dumps({"type": pair[0], "drafts": pair[1], "opened": pair[1]})
    ),
)


@pytest.mark.parametrize("reader", REFUSES)
@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(text=hostile)
def test_each_reader_reads_or_refuses(reader, text, tmp_path):
    """Sizes, depths, digits and invalid Unicode: each reader raises only its own error."""
    reads, refusal = REFUSES[reader]
    with suppress(refusal):
        reads(text, tmp_path / "given.json")


@pytest.mark.parametrize("reader", REFUSES)
def test_no_reader_builds_objects_of_too_many_parts(reader, tmp_path, monkeypatch):
    """A text of millions of tiny parts is refused before any parser gets it."""
    seen = []

    def refused(text, most=MAX_PARTS):
        seen.append(most)
        found = parts_of(text, most)
        assert found > most
        raise TooManyParts("it has too many")

    count = 7_000_000 if reader in {"an exported run", "a recording"} else 2_400_000
    text = '{"at":[' + "1," * count + "1]}"
    for module in ("core.base.messages", "core.base.events", "core.journal.rows",
                   "core.stored.document", "core.tools.answer_type", "models.openai.stream",
                   "models.recorded.recording"):  # fmt: skip
        monkeypatch.setattr(f"nbagent.{module}.within_parts", refused)
    reads, refusal = REFUSES[reader]
    if reader == "a page's message":
        with pytest.raises(TooManyParts):
            page_message({"type": "drafts", "interrupt": "i", "drafts": [1] * count})
        return
    with suppress(refusal):
        reads(text, tmp_path / "given.json")
    assert seen


# --- no reader without a check

READS = {
    "read_by",
    "loads",
    "load",
    "from_json",
    "validate_json",
    "model_validate_json",
    "raw_decode",
}
OWN = {
    "a person types it": {
        "cli/answering.py: loads(text)",
        "notebook/magics.py: loads(blocks[0] if len(blocks) == 1 else answe)",
    },
    "a person names the file": {
        "mcp_servers/address.py: loads(given.expanduser().read_text(encoding='u)",
        "models/recorded/environment.py: loads(Path(place).read_text(encoding='utf-8'))",
    },
    "this process wrote it": {
        "core/base/messages.py: from_json(b'[' * outer + data + b']' * outer)",
        "core/run/result.py: loads(dump(event))",
        "core/stored/decisions.py: loads(dump(asked))",
        "core/stored/decisions.py: loads(dump(answer))",
        "core/tools/result_text.py: validate_json(text)",
        "notebook/render/outline.py: loads(node['cells'])",
        "notebook/view/grids.py: loads(cells)",
        "data/reading.py: loads(given)",
        "data/reading.py: loads(process.stdout.readline() or b'[]')",
        "data/worker.py: loads(sys.stdin.buffer.readline())",
        "forms/answer/check.py: validate_json(text)",
        "forms/form.py: loads(self.json_text)",
        "models/demo/model.py: loads(request.content)",
        "models/demo/model.py: loads(self._api.body(request, self.name))",
        "models/demo/talk.py: loads(arguments)",
        "models/openai/errors.py: loads(request.content)",
        "models/openai/history.py: loads(b'[' + encoded + b']')",
        "models/openai/exchange.py: loads(body)",
        "others/legs.py: from_json(text)",
    },
    "it is not a parser: the framework reads its own state, a dict that was stored": {
        "others/openai_agents.py: from_json(self._agent)",
    },
    "it comes with a package": {
        "cli/demo.py: loads(notebook.read_text(encoding='utf-8'))",
    },
    "it was counted before, in the same function or by who gave it": {
        "core/base/events.py: loads(data)",
        "core/base/events.py: read_by(data)",
        "core/stored/document.py: loads(text)",
        "core/tools/answer_type.py: validate_json(text)",
        "core/tools/answer_type.py: loads(text)",
        "models/openai/stream.py: loads(payload)",
        "playback.py: loads(path.read_text(encoding='utf-8'))",
    },
    "its length is bounded there, or its marks are counted": {
        "core/tools/answer_type.py: raw_decode(text)",
        "cli/editor.py: loads(self._text)",
        "forms/values.py: loads(text)",
        "forms/answer/controls.py: loads(text)",
        "models/openai/calls.py: loads(text)",
        "notebook/render/facts.py: loads(text)",
    },
}


def roads(path):
    """The calls in a file that parse JSON which was not counted in the same expression."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        of = getattr(getattr(node.func, "value", None), "id", "")
        if name not in READS or (name in {"load", "loads"} and of not in {"json", ""}):
            continue
        if name == "load" and of != "json":
            continue
        first = ast.unparse(node.args[-1] if name == "read_by" else node.args[0])
        if not first.startswith(("within_parts(", "dumps(")):
            yield f"{path.relative_to(ROOT).as_posix()}: {name}({first:.40})"


def test_every_json_parse_of_foreign_text_is_bounded():
    """Every JSON parser counts parts, or is listed with the reason."""
    found = {road for path in ROOT.rglob("*.py") for road in roads(path)}
    assert found == set().union(*OWN.values())

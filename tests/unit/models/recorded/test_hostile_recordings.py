"""Recordings from others, and folders where others can write: sizes are limited, and no foreign file changes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import nbagent as nb
from nbagent.core.base.errors import ModelConfigError, ModelError
from nbagent.core.base.private import write_private
from nbagent.models.recorded import recording
from nbagent.models.recorded.scrub import Scrubber


def _growing(count: int) -> str:
    """Requests that each repeat the previous request and add a message."""
    said = {"role": "user", "content": [{"type": "text", "text": "x" * 100}]}
    session = []
    for number in range(1, count + 1):
        like = {"same_as": {"number": number - 1, "messages": number - 1}} if number > 1 else {}
        asked = {**like, "messages": [said]}
        answer = {"said": [], "finished": {}}
        session.append({"number": number, "model": "m", "request": asked, "answer": answer})
    return json.dumps({"nbagent_recording": 1, "session": session})


def test_a_small_recording_cannot_expand_to_a_huge_one(tmp_path, monkeypatch):
    """A file stores only the new part of each request; the limit is for the whole requests together."""
    path = tmp_path / "session.json"
    path.write_text(_growing(40))
    assert len(recording.load(path)) == 40
    monkeypatch.setattr(recording, "MAX_REQUESTS", 100_000)
    with pytest.raises(ModelConfigError, match="have more than 100,000 characters"):
        recording.load(path)


def test_a_recording_has_no_more_values_than_can_be_read(tmp_path, monkeypatch):
    """Loading and recording have the same limit, so a written file can be read."""
    path = tmp_path / "session.json"
    path.write_text(_growing(300))
    monkeypatch.setattr(recording, "MAX_FILE_PARTS", 2_000)
    monkeypatch.setattr(recording, "HEAD", 10)
    with pytest.raises(ModelConfigError, match="more than 2,000 values"):
        recording.load(path)
    under_way = recording.Recording(tmp_path / "new.json", Scrubber())
    said = {**recording.EMPTY, "messages": [{"role": "user", "content": [[]] * 200}]}
    answer = {"finished": {}, "said": [[]] * 200}
    for _ in range(3):
        under_way.exchanged("m", said, answer)
    with pytest.raises(ModelError, match=r"2,000 values. Record a shorter session"):
        under_way.exchanged("m", said, {**answer, "said": [[]] * 2_000})
    assert recording.load(tmp_path / "new.json")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_special_file_is_not_read(kind, tmp_path):
    """Reading a pipe would wait, and a device may have no end."""
    path = {"pipe": tmp_path / "pipe", "device": Path("/dev/zero"), "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(ModelConfigError, match="not a regular file"):
        nb.RecordedModel(path, mode="replay")


def test_a_recording_follows_no_link_made_by_another_user(tmp_path, monkeypatch):
    """If others can write to the folder, they cannot guess the draft's name."""
    victim, path = tmp_path / "victim", tmp_path / "session.json"
    victim.write_text("mine")
    opened = []
    real = os.open

    def watched(name, flags, *rest, **more):
        if str(name).startswith(str(tmp_path)):
            opened.append(flags)
        return real(name, flags, *rest, **more)

    monkeypatch.setattr(os, "open", watched)
    write_private(path, "recorded")
    assert path.read_text() == "recorded"
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(flags & os.O_EXCL for flags in opened)
    assert opened
    assert sorted(each.name for each in tmp_path.iterdir()) == ["session.json", "victim"]

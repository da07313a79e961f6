"""Files in prompts and in results of tools, for a model to see: their types and limits."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from IPython import display
from matplotlib.figure import Figure
from PIL import Image

import nbagent as nb
from nbagent.core.base.errors import UsageError
from nbagent.core.base.messages import dumps, freeze, load, user
from nbagent.core.tools import attachments, image_bytes
from nbagent.core.tools.attachments import File, prompt_content, take_files

PDF = b"%PDF-1.4\n%%EOF"
WAV = b"RIFF\0\0\0\0WAVEfmt "


def figure() -> Figure:
    made = Figure()
    made.subplots().plot([1, 3, 2])
    return made


def photo(**saved: Any) -> bytes:
    """A JPEG as a camera makes it: on its side, and with the place it was taken at."""
    image = Image.new("RGB", (40, 20), "orange")
    exif = image.getexif()
    exif[0x0112] = 6
    exif[0x010F] = "Cam & Co"
    exif.get_ifd(0x8825)[2] = (48.0, 12.0, 7.0)
    out = io.BytesIO()
    image.save(out, "JPEG", exif=exif, comment=b"at home", **saved)
    return out.getvalue()


class Shows:
    """A value with its own picture, like IPython's display objects."""

    def _repr_png_(self) -> bytes:
        return picture("PNG")


class ShowsTable(Shows):
    def _repr_html_(self) -> str:
        return "<table></table>"


def picture(kind: str, size: tuple[int, int] = (8, 4)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, "teal").save(out, kind)
    return out.getvalue()


GIVEN: dict[str, tuple[Any, str, str | None]] = {
    "a figure": (figure(), "image/png", "figure.png"),
    "the axes of a figure": (figure().axes[0], "image/png", "figure.png"),
    "an image": (Image.new("RGB", (3, 2)), "image/png", None),
    "an image of colors nobody sends": (Image.new("CMYK", (3, 2)), "image/png", None),
    "gray bytes": (np.zeros((4, 6), "uint8"), "image/png", "array.png"),
    "fractions in color": (np.full((4, 6, 3), 0.5), "image/png", "array.png"),
    "whole numbers with alpha": (np.full((4, 6, 4), 255), "image/png", "array.png"),
    "a mask": (np.eye(4, dtype=bool), "image/png", "array.png"),
    "a table": (pd.DataFrame({"a": [1]}), "text/plain", "@value"),
    "a column": (pd.Series([1, 2]), "text/plain", "@value"),
    "all rows of a table": (File(pd.DataFrame({"a": [1]})), "text/csv", "table.csv"),
    "all rows of a column": (File(pd.Series([1, 2])), "text/csv", "table.csv"),
    "what shows itself": (Shows(), "image/png", None),
    "bytes that say what they are": (picture("GIF"), "image/gif", None),
    "bytes of a PDF": (PDF, "application/pdf", None),
    "bytes of sound": (WAV, "audio/wav", None),
    "a type that models do not see": (picture("BMP"), "image/png", None),
    "a file": (File(b"a,b\n", "text/csv", name="x.csv"), "text/csv", "x.csv"),
}


@pytest.mark.parametrize("given", GIVEN)
def test_each_kind_of_value_is_a_file_of_the_right_type(given):
    """In a prompt the value is a file with only type, name and bytes, in its place."""
    value, media_type, name = GIVEN[given]
    text, part = prompt_content(["What is this?", value])
    assert text == {"type": "text", "text": "What is this?"}
    assert (part["media_type"], part.get("name")) == (media_type, name)
    assert image_bytes.type_of(base64.b64decode(part["data"])) in (media_type, None)
    assert load(json.loads(dumps([user((text, part))])))[0] == user((text, part))


@pytest.mark.parametrize(
    ("array", "pixel"),
    [
        (np.array([[0, 255]], "uint8"), 255),
        (np.array([[0.0, 0.5]]), 128),
        (np.array([[False, True]]), 255),
        (np.array([[[1, 2, 3], [9, 8, 7]]]), (9, 8, 7)),
        (np.array([[[1, 2, 3, 4], [9, 8, 7, 6]]], "uint16"), (9, 8, 7, 6)),
        (np.asfortranarray(np.array([[0.0, 1.0], [0.0, 0.0]])), 255),
    ],
)
def test_an_array_becomes_the_picture_of_its_numbers(array, pixel):
    """Whole numbers up to 255, fractions up to 1, and masks; another library reads them back."""
    image = Image.open(io.BytesIO(image_bytes.png(array)))
    assert image.getpixel((1, 0)) == pixel


REFUSED: dict[str, tuple[Any, str]] = {
    "nothing": ("  ", "text"),
    "an empty list": ([], "no text"),
    "blank texts": ([" "], "no text"),
    "a figure alone": (figure(), "Pass a list, such as"),
    "a number": ([3], "is not a file"),
    "a dict": ([{"type": "file"}], "is not a file"),
    "a long array": ([np.zeros(9)], "is not an image"),
    "wide numbers": ([np.full((2, 2), 300)], "from 300 to 300"),
    "fractions over one": ([np.full((2, 2), 1.5)], "fractions from 0 to 1"),
    "not a number": ([np.full((2, 2), np.nan)], "not an image"),
    "bytes of nothing": ([b""], "is unknown"),
    "bytes of anything": ([b"\1\2\3"], "Set it"),
    "a picture cut short": ([picture("PNG")[:40]], "valid"),
    "a photo of its first bytes": ([b"\xff\xd8\xff\xff"], "valid"),
    "too many files": ([WAV] * 21, "limit is 20"),
}


@pytest.mark.parametrize("given", REFUSED)
def test_a_value_that_cannot_be_sent_is_refused_where_it_is_passed(given):
    """The error comes before a run starts, and says what to pass instead."""
    value, told = REFUSED[given]
    with pytest.raises(UsageError, match=told):
        nb.Agent(nb.ScriptedModel([])).run(value)


def test_a_path_is_read_once_and_sent_only_as_its_name(tmp_path):
    """The first bytes decide the type, then the name; the folder is never sent."""
    for name, data, media_type in [
        ("scan.pdf", PDF, "application/pdf"),
        ("wrong.txt", picture("PNG"), "image/png"),
        ("data.json", b"{}", "application/json"),
        ("Makefile", b"all:\n", "text/plain"),
    ]:
        (tmp_path / name).write_bytes(data)
        file = File(tmp_path / name)
        assert (file.media_type, file.name) == (media_type, name)
        assert str(tmp_path) not in str(file.part)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "a folder"),
        ("nope.png", "does not exist"),
        ("pipe", "not a regular file"),
        ("~no-such-user/a.png", "home directory"),
    ],
)
def test_a_path_that_is_not_a_file_is_named(tmp_path, name, told):
    """A folder, a missing file, a pipe that would never end, and the home of nobody."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=told):
        File(Path(name) if name.startswith("~") else tmp_path / name)


def test_a_file_is_read_up_to_a_limit_and_text_is_what_has_no_zero_byte(tmp_path, monkeypatch):
    """Both for a name that says nothing about the type."""
    monkeypatch.setattr(attachments, "_READ", 10)
    for size in (10, 11):
        (tmp_path / f"notes{size}").write_bytes(b"a" * size)
    (tmp_path / "binary").write_bytes(b"a\0b")
    assert File(tmp_path / "notes10").media_type == "text/plain"
    with pytest.raises(UsageError, match="notes11"):
        File(tmp_path / "notes11")
    with pytest.raises(UsageError, match="type of 'binary' is unknown"):
        File(tmp_path / "binary")


def test_a_string_is_never_treated_as_a_path():
    """Neither one that looks like a path, nor an address: nothing is fetched."""
    assert prompt_content(["/etc/passwd", "https://example.org/x.png"]) == (
        "/etc/passwd\n\nhttps://example.org/x.png"
    )
    with pytest.raises(UsageError, match="Path"):
        File("/etc/passwd")


@pytest.mark.parametrize("name", ["../../etc/x.png", "C:\\me\\x.png", "a/b/x.png"])
def test_a_file_name_is_one_line_without_a_folder(name):
    """File names come from others."""
    assert File(PDF, name=name).name == "x.png"


def test_a_file_name_has_no_invisible_characters():
    """The name is one printable line of at most 100 characters."""
    name = File(PDF, name="x\u202egnp.exe\n\x1b[2J" + "y" * 500).name
    assert name is not None
    assert name.isprintable()
    assert len(name) == 100
    assert load([user([File(PDF, name=name).part])])
    assert load(json.loads(dumps([user([File(PDF, name=name).part])])))


def test_a_photo_does_not_reveal_where_and_when_it_was_taken():
    """The camera's data is removed, except for the orientation."""
    assert b"Cam & Co" in photo()
    data = File(photo()).data
    assert b"Cam & Co" not in data
    assert b"at home" not in data
    exif = Image.open(io.BytesIO(data)).getexif()
    assert dict(exif) == {0x0112: 6}
    assert Image.open(io.BytesIO(data)).tobytes() == Image.open(io.BytesIO(photo())).tobytes()


def test_data_after_or_around_a_picture_is_not_sent():
    """A film after a photo's end, texts in a PNG, and EXIF data in a WebP."""
    assert File(photo(progressive=True) + b"a film").data.endswith(b"\xff\xd9")
    out = io.BytesIO()
    info = __import__("PIL.PngImagePlugin").PngImagePlugin.PngInfo()
    info.add_text("Author", "somebody")
    Image.new("RGB", (3, 3)).save(out, "PNG", pnginfo=info)
    data = File(out.getvalue() + b"more").data
    assert b"somebody" not in data
    assert data.endswith(b"IEND\xaeB`\x82")
    exif = Image.Exif()
    exif[0x010F] = "Cam & Co"
    out = io.BytesIO()
    Image.new("RGB", (3, 3)).save(out, "WEBP", exif=exif)
    data = File(out.getvalue()).data
    assert b"Cam & Co" not in data
    assert Image.open(io.BytesIO(data)).size == (3, 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_a_picture_is_scaled_to_the_size_that_providers_use(kind):
    """The longer side shrinks; the shape stays."""
    data = File(picture(kind, (4000, 1000))).data
    assert image_bytes.sides_of(data) == (2048, 512)


def test_a_picture_of_much_detail_becomes_small_enough():
    """A PNG of noise is sent as a JPEG."""
    noise = np.random.default_rng(1).integers(0, 256, (1500, 1500, 3), "uint8")
    file = File(noise)
    assert file.media_type == "image/jpeg"
    assert len(file.data) <= attachments.MAX_IMAGE


def test_a_figure_of_many_dots_is_drawn_with_fewer():
    """At 600 dots an inch it would have 3,840 pixels."""
    large = figure()
    large.set_dpi(600)
    sides = image_bytes.sides_of(File(large).data)
    assert sides is not None
    assert 1500 < max(sides) <= 2048


def test_a_picture_that_would_decode_to_gigabytes_is_not_decoded():
    """A few bytes that say they are 60,000 by 60,000 pixels."""
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    small = bytearray(picture("PNG", (1, 1)))
    small[16:33] = head + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    bomb = bytes(small)
    with pytest.raises(UsageError, match="3,600,000,000 pixels"):
        File(bomb)


@pytest.mark.parametrize(
    ("data", "media_type", "told"),
    [
        (PDF + b"0" * attachments.MAX_FILE, None, "20.0 MB"),
        (b"a" * (attachments.MAX_TEXT + 1), "text/plain", "1.0 MB"),
        (b"\xff\xfe", "text/plain", "UTF-8"),
        (PDF, "image/png", "first bytes are application/pdf"),
        (PDF, "pdf", "not a media type"),
        (b"<svg/>", "image/PNG\r\nx", "not a media type"),
    ],
)
def test_a_file_that_is_too_large_or_of_the_wrong_type_is_refused(data, media_type, told):
    """The message names the size or the type."""
    with pytest.raises(UsageError, match=told):
        File(data, media_type)


@pytest.mark.parametrize(
    "changed",
    [
        {"data": 'x"}],"evil":1'},
        {"data": "abc"},
        {"media_type": 'image/png"'},
        {"name": "a/b"},
        {"data": None},
    ],
)
def test_a_history_with_an_invalid_file_is_refused(changed):
    """No content of a saved history breaks out of a request."""
    part = {**File(PDF, name="x.pdf").part, **changed}
    result = {"type": "tool_result", "id": "c", "name": "t", "output": "", "files": [part]}
    with pytest.raises(UsageError):
        load([{"role": "user", "content": [part]}])
    call = {"type": "tool_call", "id": "c", "name": "t", "input": {}}
    with pytest.raises(UsageError):
        load(
            ["Go", {"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]
        )


def test_a_figure_of_another_library_needs_its_renderer(monkeypatch):
    """Plotly draws in the browser; without kaleido the error says what to install."""
    module = ModuleType("plotly.basedatatypes")

    class BaseFigure:
        def to_image(self, **_: Any) -> bytes:
            raise ValueError("Image export requires the kaleido package")

        def _repr_html_(self) -> str:
            return "<div></div>"

    module.BaseFigure = BaseFigure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plotly.basedatatypes", module)
    with pytest.raises(UsageError, match="pip install kaleido"):
        prompt_content(["Look", BaseFigure()])
    monkeypatch.setattr(BaseFigure, "to_image", lambda self, **_: picture("PNG"))
    assert prompt_content(["Look", BaseFigure()])[1]["media_type"] == "image/png"
    assert not take_files(BaseFigure(), nothing).files


def test_the_repr_of_a_file_in_a_history_is_one_line():
    """``run.messages`` does not flood the output, but has all bytes."""
    message = user(prompt_content(["Look", np.random.default_rng(1).random((99, 99))]))
    assert len(repr(message)) < 300
    assert freeze(json.loads(json.dumps(message))) == message


# --- what a tool returns


def nothing(_value: Any) -> None:
    return None


RETURNED: dict[str, tuple[Any, Any]] = {
    "a figure": (figure(), "[image figure.png]"),
    "its axes": (figure().axes[0], "[image figure.png]"),
    "an image": (Image.new("RGB", (3, 2)), "[image]"),
    "a file": (File(PDF, name="x.pdf"), "[file x.pdf]"),
    "a list": (["Trend:", figure(), 3], ["Trend:", "[image figure.png]", 3]),
    "a dict": ({"plot": figure(), "n": 3}, {"plot": "[image figure.png]", "n": 3}),
}


@pytest.mark.parametrize("returned", RETURNED)
def test_a_picture_returned_by_a_tool_is_a_file_with_a_word_in_its_place(returned):
    """Alone, and in a list or a dict."""
    value, told = RETURNED[returned]
    found = take_files(value, nothing)
    assert found.value == told
    assert len(found.files) == 1


@pytest.mark.parametrize(
    "value",
    [
        "/etc/passwd",
        Path("/etc/passwd"),
        [Path("/etc/passwd")],
        PDF,
        np.zeros((3, 3)),
        pd.DataFrame({"a": [1]}),
        ShowsTable(),
        Figure(),
        display.SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"),
        {"deep": [[figure()]]},
        Shows,
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_returned_by_a_tool_are_not_files(value):
    """Paths are not read, and data and tables stay as they are."""
    found = take_files(value, nothing)
    assert found.value is value
    assert not found.files


def test_a_value_that_fails_to_draw_itself_is_not_a_file_and_not_a_failure(caplog):
    """The value is unchanged, and the log says why."""

    class Broken:
        def _repr_png_(self) -> bytes:
            raise RuntimeError("no ink")

    broken = Broken()
    found = take_files(broken, nothing)
    assert found.value is broken
    assert "not an image" in caplog.text


def test_a_value_that_is_not_a_picture_loads_no_library():
    """A PDF loads neither numpy nor PIL nor matplotlib nor pandas."""
    code = (
        "import sys, nbagent as nb; nb.File(b'%PDF-', name='x.pdf');"
        "print([m for m in ('numpy', 'PIL', 'matplotlib', 'pandas') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize(
    ("mode", "values", "sent"),
    [
        ("I;16", [0, 32768, 65535], [0, 128, 255]),
        ("I;16B", [0, 32768, 65535], [0, 128, 255]),
        ("I", [0, 2048, 4095], [0, 128, 255]),
        ("I", [0, 7, 255], [0, 7, 255]),
        ("F", [0, 0.25, 0.5], [0, 64, 128]),
        ("F", [0, 100, 1000], [0, 26, 255]),
    ],
)
def test_wide_values_of_an_image_are_scaled_to_bytes(mode, values, sent, tmp_path):
    """The picture of a microscope or a depth map is not sent as plain white or black."""
    kind = mode if mode == "F" else "I"
    image = Image.new(kind, (3, 1))
    image.putdata(values)
    image = image.convert(mode)
    image.save(tmp_path / "a.tif")
    for content in (image, tmp_path / "a.tif"):
        picture = Image.open(io.BytesIO(File(content).data))
        assert (picture.mode, list(picture.tobytes())) == ("L", sent)


def test_an_image_of_negative_values_is_refused():
    """No scale is right for these values; the error comes before the request."""
    with pytest.raises(UsageError, match=r"from -1 to -1 .*Scale it"):
        File(Image.new("F", (3, 3), -1))


def test_making_a_picture_emits_no_library_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "F", "HSV"):
            assert File(Image.new(mode, (3000, 3))).media_type == "image/png"


async def test_files_declared_by_a_tool_are_checked_at_once():
    """A single file needs no list; a text is not a file, and the tool fails."""

    @nb.tool
    def one() -> nb.ToolResult:
        """Draw."""
        return nb.ToolResult("one", files=figure())  # type: ignore[arg-type]

    @nb.tool
    def none() -> nb.ToolResult:
        """Draw."""
        return nb.ToolResult("none", files=["plot.png"])

    call = nb.ScriptedModel.call
    run = nb.Agent(nb.ScriptedModel([[call("one"), call("none")], "Done."]), tools=[one, none]).run(
        "Go"
    )
    await run
    first, second = run.messages[2]["content"]
    assert (first["output"], len(first["files"])) == ("one", 1)
    assert second["error"]
    assert "Path('plot.png')" in second["output"]


def test_a_tool_can_declare_that_it_returns_files():
    """Such return types need no schema."""

    def many() -> list[File]: ...
    def maybe() -> File | None: ...
    def drawn() -> Figure: ...
    def mixed() -> dict[str, Any]: ...

    for function in (many, maybe, drawn, mixed):
        function.__doc__ = "Draw."
        assert nb.tool(function).name == function.__name__


def test_without_pillow_a_small_picture_is_sent_unchanged(monkeypatch):
    """An array, and a picture that must be shrunk or converted, give an error that names it."""
    wide = image_bytes.png(np.zeros((3000, 10), "uint8"))
    noise = image_bytes.png(np.random.default_rng(1).integers(0, 256, (2400, 2400), "uint8"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert image_bytes.sides_of(File(wide).data) == (10, 3000)
    for given in (np.zeros((3, 3), "uint8"), noise, picture("BMP")):
        with pytest.raises(UsageError, match="pip install pillow"):
            File(given)


def test_an_ipython_picture_is_a_picture():
    """SVG keeps its type, and an image on the web is not fetched."""
    assert File(display.Image(picture("PNG"))).media_type == "image/png"
    assert File(display.Image(picture("JPEG"))).media_type == "image/jpeg"
    assert File(display.SVG("<svg xmlns='http://www.w3.org/2000/svg'/>")).media_type == (
        "image/svg+xml"
    )
    with pytest.raises(UsageError, match="is not a file"):
        File(display.Image(url="https://example.org/x.png"))
    assert not take_files(display.Image(url="https://example.org/x.png"), nothing).files
    assert File(Figure()).media_type == "image/png"

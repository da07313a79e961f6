"""Conversion of values to files: figures, pictures, arrays, paths, bytes, summaries of tables.

matplotlib, PIL, numpy, pandas, plotly and altair are never imported to check a value: only a library that is
already imported can have made the value. Pillow is imported if a picture must be drawn, converted or made smaller.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import io
import logging
import math
import mimetypes
import os
import re
import stat
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeAlias

from nbagent.core.base.controls import escaped
from nbagent.core.base.errors import UsageError
from nbagent.core.base.file_parts import (
    IMAGES,
    MAX_FILE_BYTES,
    Content,
    Part,
    bracketed_label,
    file_part,
    in_bytes,
    is_media_type,
    is_text,
    plain_name,
    size_of,
    tokens_of,
)
from nbagent.core.base.keywords import calling_frame

from . import image_bytes, tables
from .tables import is_of

log = logging.getLogger("nbagent")

MAX_FILE = 20_000_000
"""Maximum bytes of one file."""
MAX_IMAGE = 4_000_000
"""Maximum bytes of one picture: providers accept 5 MB of base64."""
MAX_SIDE = 2048
"""Maximum pixels of a picture's longer side. Providers make larger pictures smaller themselves."""
MAX_TEXT = 1_000_000
"""Maximum bytes of one text file."""
MAX_FILES = 20
"""Maximum files of one prompt, or of one result."""
MANY_TOKENS = 20_000
"""Tokens of a prompt's text files above which a warning is shown."""
MAX_WIDTH = 4_000
"""The largest width or precision of a value in a prompt."""
_GIVEN = "text, nb.File(bytes, 'image/png'), a Path, a figure, an image, an array, or a table"


Prompt: TypeAlias = str | Sequence[Any]
"""The type of a prompt: text, or a list of texts, files and tables."""


class File:
    """A file for a model: its bytes, their media type and a name.

    Args:
        content: bytes, a ``Path``, a figure (matplotlib, plotly, altair), a PIL image, an array with height and
            width, a table (pandas, polars, Arrow: all its rows, as CSV), or a value that IPython shows as a picture.
        media_type: such as ``"image/png"``; by default detected from the bytes, the path or the value.
        name: the name for the model and the person; by default the file name of a path.

    A picture is made smaller if it is larger than providers use (2,048 pixels, 4 MB), and metadata from a
    camera, such as the place, is removed.

    Raises:
        UsageError: the content cannot be sent; the message says what to do.
    """

    __slots__ = ("data", "media_type", "name")

    def __init__(
        self, content: Any, media_type: str | None = None, *, name: str | None = None
    ) -> None:
        if media_type is not None and not is_media_type(media_type):
            raise UsageError(f"{media_type!r:.80} is not a media type, such as 'image/png'")
        found = _found_file(content)
        if found is None:
            raise UsageError(f"{_named(content)} is not a file. Pass {_GIVEN}")
        data, kind, own_name = found
        self.name = plain_name(name) if name else own_name
        declared_type = media_type or kind or _guessed(data, self.name)
        label = repr(self.name) if self.name else f"the {declared_type}"
        self.data, self.media_type = _fitted(data, declared_type, label)

    def __repr__(self) -> str:
        named = f", name={self.name!r}" if self.name else ""
        tokens = f", about {tokens_of(self.data):,} tokens" if is_text(self.media_type) else ""
        return f"<File {self.media_type}, {in_bytes(len(self.data))}{tokens}{named}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and self.part == other.part

    def __hash__(self) -> int:
        return hash((self.data, self.media_type, self.name))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The mime bundle for a notebook, which shows a picture as an image."""
        shown = {self.media_type: self.data} if self.media_type in IMAGES else {}
        return {"text/plain": repr(self), **shown}

    @property
    def part(self) -> Part:
        """The part of a message that has this file."""
        return file_part(self.data, self.media_type, self.name)


class _FileBytes(NamedTuple):
    data: bytes
    media_type: str | None
    name: str | None


# --- prompts


def check_spec(spec: str) -> None:
    """Check the format spec of a value in a prompt, before a width takes minutes.

    Raises:
        ValueError: the width or precision exceeds ``MAX_WIDTH``.
    """
    for size in re.findall(r"\d+", spec):
        if len(size) > 9 or int(size) > MAX_WIDTH:
            raise ValueError(f"{size:.20} is too wide. The limit is {MAX_WIDTH:,} characters")


def prompt_content(prompt: Any) -> Content:
    """A prompt as text, or as the parts of a message: texts, files and summaries of tables, in their order.

    Raises:
        UsageError: the prompt is empty, or has an item that is neither text nor a file.
    """
    if isinstance(prompt, str):
        if not prompt.strip():
            raise UsageError(f"A prompt must be non-empty text, got {prompt!r:.80}")
        if "{" in prompt:
            _hint_at_braces(prompt)
        return prompt
    if not isinstance(prompt, list | tuple):
        hint = ""
        if isinstance(prompt, File | os.PathLike) or _drawn(prompt) is not None:
            hint = ". Pass a list, such as ['What is odd here?', figure]"
        elif is_table(prompt):
            hint = (
                ". Pass a list, such as ['What is odd here?', df], to send its columns and first rows. Or set the agent's "
                "tools=nb.notebook_tools(df), so that the model can query it"
            )
        raise UsageError(
            f"A prompt must be non-empty text, or a list of texts and files, got {_named(prompt)}{hint}"
        )
    items = [item if isinstance(item, str) else _file_from(item) for item in prompt]
    parts = [{"type": "text", "text": x} if isinstance(x, str) else x.part for x in items]
    if not any(part["type"] == "file" or part["text"].strip() for part in parts):
        raise UsageError(f"The prompt has no text: {prompt!r:.80}")
    files = [part for part in parts if part["type"] == "file"]
    if len(files) > MAX_FILES:
        raise UsageError(f"This prompt has {len(files)} files. The limit is {MAX_FILES}")
    if not files:
        return "\n\n".join(part["text"] for part in parts)
    _warn_of_tokens([each for each in items if isinstance(each, File)])
    return tuple(parts)


def _file_from(item: Any) -> File:
    """An item of a prompt that is not text, as a file; a table becomes its summary."""
    if isinstance(item, File):
        return item
    return File(item) if tables.frame_of(item) is None else mention(item, _name_of(item))


def mention(
    value: Any, name: str, summarize: Callable[[Any], str | None] = tables.table_summary
) -> File:
    """The description of a variable that a prompt names: a text file with a summary of the value.

    Args:
        value: the value of the variable.
        name: the variable's name, as the person writes it.
        summarize: a function that returns the summary; by default that of a table.

    Raises:
        UsageError: the value's own code failed.
    """
    try:
        text = summarize(value) or ""
    except Exception as error:  # raised by the value's own code
        raise UsageError(
            f"@{name} could not be summarized: {type(error).__name__}: {error}"
        ) from error
    plain = re.sub(r"[\\/]", "_", name)  # a file's name has no folders
    return File(text.encode("utf-8", "replace"), "text/plain", name=f"@{plain}")


def _name_of(table: Any) -> str:
    """The name of a table in the person's code."""
    frame = calling_frame()
    for scope in () if frame is None else (frame.f_locals, frame.f_globals):
        for name, value in [*scope.items()]:
            if value is table and not name.startswith("_"):
                return name
    return "table"


_BRACES = re.compile(r"(?<![\w{}\\^])\{([^\W\d]\w*)(?:(?:[.\[(!]|:(?!\s))[^{}\n]*)?\}(?!\})")
"""A pattern for a variable's name in braces, as in an f-string, but not in a formula, such as ``x_{i}``."""
_NO_DATA = (ModuleType, FunctionType, BuiltinFunctionType, type)


def _hint_at_braces(prompt: str) -> None:
    """Warn if a name in braces is a variable of the person's code, because a text prompt is sent unchanged."""
    found = [*dict.fromkeys(_BRACES.findall(prompt))]
    frame = calling_frame() if found else None
    if frame is None:
        return
    names = {**frame.f_globals, **frame.f_locals}
    known = [name for name in found if name in names and not isinstance(names[name], _NO_DATA)]
    if not known:
        return
    table_name = next((name for name in known if tables.frame_of(names[name]) is not None), None)
    advice = (
        f"write f'…' to insert their values, or use %%agent, which inserts them: {{{known[0]}}}"
        if table_name is None
        else f"pass a list, ['…', {table_name}], to send its columns and first rows, or use %%agent, which inserts it"
    )
    listed_names = ", ".join(f"{{{name}}}" for name in known[:5])
    _warn(f"The prompt contains {listed_names} as plain text, not the variable's value: {advice}")


def _warn_of_tokens(files: Sequence[File]) -> None:
    """Warn about text files with many tokens, before they are sent."""
    sizes = {file: tokens_of(file.data) for file in files if is_text(file.media_type)}
    if sum(sizes.values()) <= MANY_TOKENS:
        return
    largest = max(sizes, key=lambda file: sizes[file])
    hint = (
        ". To send only its columns and first rows, use ['…', df]. To let the model query it, use "
        "tools=nb.notebook_tools(df)"
        if largest.media_type == "text/csv"
        else ""
    )
    _warn(
        f"The files of this prompt have about {sum(sizes.values()):,} tokens ({largest.name or largest.media_type}: "
        f"{sizes[largest]:,}), which are sent with every turn{hint}"
    )


def _warn(text: str) -> None:
    frame = calling_frame()
    if frame is not None:
        at = frame.f_code.co_filename, frame.f_lineno
        warnings.warn_explicit(escaped(text), UserWarning, *at)


# --- results of tools


class ValueAndFiles(NamedTuple):
    """A tool's value, separated from its files."""

    value: Any
    """The value, with a label in the place of each file."""
    files: list[Part]
    drawn: list[Any]
    """The original mime bundles of the values that became files."""


NOTHING = ValueAndFiles(None, [], [])
"""The result of ``take_files`` without a value and files."""


def take_files(
    value: Any,
    present: Any,
    more: Sequence[Any] = (),
    room: Callable[[], int] = lambda: MAX_FILE_BYTES,
) -> ValueAndFiles:
    """Take the files out of a tool's value: the value itself, the items of a list or dict, and ``more``.

    A path or bytes become a file only as ``nb.File`` or in ``more``: a returned path is never read automatically.

    Args:
        value: the return value of the tool.
        present: a function that returns the mime bundle of a value, or None.
        more: values that the tool sent as files.
        room: a function that returns the maximum bytes of all files; called only if there are files.

    Raises:
        UsageError: an item of ``more`` is not a file, or there are too many files or bytes.
    """
    found = ValueAndFiles(value, [], [])
    match value:
        case list() | tuple() if len(value) <= _LOOKED_AT:
            items = [_taken_one(item, present, found) for item in value]
            plain: Any = items if found.files else value
        case dict() if len(value) <= _LOOKED_AT:
            entries = {key: _taken_one(item, present, found) for key, item in value.items()}
            plain = entries if found.files else value
        case _:
            plain = _taken_one(value, present, found)
    listed = more if isinstance(more, list | tuple) else [more]
    found.files.extend((one if isinstance(one, File) else File(one)).part for one in listed)
    if len(found.files) > MAX_FILES:
        raise UsageError(f"The result has {len(found.files)} files. The limit is {MAX_FILES}")
    size, left = sum(map(size_of, found.files)), room() if found.files else 0
    if found.files and size > left:
        raise UsageError(
            f"The files of the result have {in_bytes(size)}. The limit for one conversation is {in_bytes(MAX_FILE_BYTES)}, of "
            f"which {in_bytes(max(0, left))} are left"
        )
    return found._replace(value=plain)


_LOOKED_AT = 100
"""Maximum length of a list or dict that is searched for files."""


def _taken_one(item: Any, present: Any, found: ValueAndFiles) -> Any:
    if item is None or isinstance(item, str | int | float | list | dict | tuple):
        return item
    try:
        file = item if isinstance(item, File) else _pictured(item, present, found)
    # the value's own code failed, or the picture is too large: no picture
    except Exception:
        log.warning(
            "a %s is not an image that a model can read", type(item).__name__, exc_info=True
        )
        return item
    if file is None:
        return item
    part = file.part
    found.files.append(part)
    return bracketed_label(part, sized=False)


def _pictured(item: Any, present: Any, found: ValueAndFiles) -> File | None:
    """The file of a value that is displayed only as a picture; None for any other value."""
    figure = _figure(item)
    if figure is None and not is_of(item, "PIL.Image", "Image") and not _shows_itself(item):
        return None
    value = item if figure is None else figure
    bundle = present(value)
    picture = _picture_in(bundle) if bundle else _at_hand(value)
    if picture is None or picture.media_type not in IMAGES:
        return None
    name = picture.name if figure is None else "figure.png"
    file = File(picture.data, picture.media_type, name=name)
    if bundle:
        found.drawn.append(bundle)
    return file


def _picture_in(bundle: Mapping[str, Any] | None) -> _FileBytes | None:
    """The picture of a value's mime bundle; None if the bundle has more, such as a table."""
    if not bundle or "text/html" in bundle:
        return None

    for kind in IMAGES:
        data = bundle.get(kind)
        if isinstance(data, str):
            return _FileBytes(base64.b64decode(data), kind, None)
    return None


# --- from a value to bytes


def _found_file(content: Any) -> _FileBytes | None:
    """The bytes of any file value; None if it is not a file."""
    if isinstance(content, File):
        return _FileBytes(content.data, content.media_type, content.name)
    if isinstance(content, bytes | bytearray | memoryview):
        return _FileBytes(bytes(content), None, None)
    if isinstance(content, str):
        raise UsageError(
            f"{content!r:.80} is text. To send the file of that name, use Path({content[:80]!r})"
        )
    if isinstance(content, os.PathLike):
        return _of_path(Path(os.fspath(content)))
    found = _drawn(content) or _array(content)
    rows = tables.as_csv(content) if found is None else None
    return found if rows is None else _FileBytes(rows, "text/csv", "table.csv")


def _of_path(path: Path) -> _FileBytes:
    try:
        status = path.expanduser().stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise UsageError(f"{str(path)!r} is {kind}. Pass the path of a file")
        with path.expanduser().open("rb") as file:
            data = file.read(_READ + 1)
    except OSError as error:
        reason = (
            "the file does not exist" if isinstance(error, FileNotFoundError) else error.strerror
        )
        raise UsageError(f"{str(path)!r} cannot be read: {reason}") from error
    except RuntimeError as error:  # "~" of a user who does not exist
        raise UsageError(f"{str(path)!r} cannot be read: {error}") from error
    if len(data) > _READ:
        raise _too_large(f"{path.name!r}", status.st_size, _READ)
    return _FileBytes(data, image_bytes.type_of(data), plain_name(path.name) or None)


_READ = 100_000_000
"""Maximum bytes that are read of a file. A picture of this size may be made small enough."""


def _guessed(data: bytes, name: str | None) -> str:
    """The media type from the bytes, or from the name."""
    media_type = image_bytes.type_of(data)
    if media_type is None and name:
        media_type = mimetypes.guess_type(name)[0]
        media_type = media_type if media_type and is_media_type(media_type) else None
    if media_type is None and name and _is_utf8(data):
        media_type = "text/plain"
    if media_type is None:
        label = repr(name) if name else "bytes"
        raise UsageError(
            f"The media type of {label} is unknown. Set it, as in nb.File(…, 'application/pdf')"
        )
    return media_type


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _figure(value: Any) -> Any:
    """The matplotlib figure of a value: the figure itself, or that of its axes; None for anything else."""
    drawn = value.figure if is_of(value, "matplotlib.axes", "Axes") else value
    return drawn if is_of(drawn, "matplotlib.figure", "Figure") else None


def _drawn(value: Any) -> _FileBytes | None:
    """The picture of a figure, of an image, or of a value that displays itself as one."""
    if is_of(value, *_PLOTLY):
        return _static(value, "plotly", "kaleido", lambda: value.to_image(format="png", scale=2))
    if is_of(value, *_ALTAIR):
        return _static(value, "altair", "vl-convert-python", lambda: _of_chart(value))
    figure = _figure(value)
    return _at_hand(value) if figure is None else _of_figure(figure)


def _at_hand(value: Any) -> _FileBytes | None:
    """The picture of a figure or an image, if no other program is needed to make the picture."""
    figure = _figure(value)
    if figure is not None:
        return _of_figure(figure) if figure.axes or figure.lines else None
    if is_of(value, "PIL.Image", "Image"):
        return _of_image(value)
    return _shown(value)


_PLOTLY = ("plotly.basedatatypes", "BaseFigure")
_ALTAIR = ("altair", "TopLevelMixin")


def _of_figure(figure: Any) -> _FileBytes:
    out = io.BytesIO()
    dpi = min(float(figure.dpi), MAX_SIDE / max(*figure.get_size_inches(), 0.1))
    figure.savefig(out, format="png", bbox_inches="tight", dpi=dpi)
    return _FileBytes(out.getvalue(), "image/png", "figure.png")


def _of_image(image: Any) -> _FileBytes:
    """A PIL image, upright and small enough; as JPEG if it came from one."""
    if image.width * image.height > image_bytes.MAX_PIXELS:
        raise _too_many_pixels("the image", *image.size)
    is_photo = getattr(image, "format", None) in ("JPEG", "MPO")
    filename = str(getattr(image, "filename", "") or "")
    data, kind = _saved(image, "image/jpeg" if is_photo else "image/png")
    return _FileBytes(data, kind, plain_name(filename) or None)


def _saved(image: Any, kind: str) -> tuple[bytes, str]:
    """A PIL image as bytes, no larger than providers use: a PNG that is too large becomes a JPEG."""
    upright = _in_bytes(importlib.import_module("PIL.ImageOps").exif_transpose(image))
    if max(upright.size) > MAX_SIDE:
        upright = upright if upright.mode in ("L", "LA", "RGB", "RGBA") else upright.convert("RGBA")
        upright.thumbnail((MAX_SIDE, MAX_SIDE))
    if kind == "image/png":
        out = io.BytesIO()
        plain = upright if upright.mode in _PNG_MODES else upright.convert("RGB")
        plain.save(out, "PNG")
        if out.tell() <= MAX_IMAGE:
            return out.getvalue(), kind
    out = io.BytesIO()
    upright.convert("RGB").save(out, "JPEG", quality=90)
    return out.getvalue(), "image/jpeg"


_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")


def _in_bytes(image: Any) -> Any:
    """A PIL image with values up to 255: fractions up to 1 are scaled to it, and so is a largest value above it.

    Raises:
        UsageError: the values of a wide mode are negative or not finite.
    """
    if image.mode[0] not in "IF":  # the modes of integers and floats
        return image
    wide = image.convert("F")
    least, most = wide.getextrema() or (0, 0)
    if not 0 <= least <= most < math.inf:
        raise UsageError(
            f"an image of mode {image.mode!r} with values from {least:g} to {most:g} cannot be sent. Its values must be "
            "at least 0. Scale it, or draw it as a figure"
        )
    is_fraction = image.mode == "F" and most <= 1
    factor = 255 if is_fraction else 255 / max(most, 255)
    return wide.point(lambda value: value * factor + 0.5).convert("L")


def _static(value: Any, library: str, needs: str, draw: Any) -> _FileBytes:
    """The picture of a chart that is made for browsers. The chart's library draws the picture.

    Raises:
        UsageError: the library failed, for example because ``needs`` is not installed.
    """
    try:
        data = draw()
    except Exception as error:
        raise UsageError(
            f"{needs} could not draw this {library} {type(value).__name__} "
            f"({type(error).__name__}: {error!s:.200}). Is it installed? pip install {needs}"
        ) from error
    return _FileBytes(data, "image/png", "figure.png")


def _of_chart(chart: Any) -> bytes:
    out = io.BytesIO()
    chart.save(out, format="png")
    return out.getvalue()


_REPRS = {
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_svg_": "image/svg+xml",
}


def _shows_itself(value: Any) -> bool:
    """Whether a value displays itself without a browser. Browser charts become pictures only on request."""
    if isinstance(value, type) or any(is_of(value, *kind) for kind in (_PLOTLY, _ALTAIR)):
        return False
    return any(hasattr(type(value), name) for name in (*_REPRS, "_repr_mimebundle_"))


def _shown(value: Any) -> _FileBytes | None:
    """The picture that a value displays in a notebook; None if the value displays HTML, such as a table."""
    kind = type(value)
    if not _shows_itself(value):
        return None
    bundle: dict[str, Any] = {}
    if hasattr(kind, "_repr_mimebundle_"):
        bundle = dict(_data(value._repr_mimebundle_(include=None, exclude=None)) or {})
    if "text/html" not in bundle and hasattr(kind, "_repr_html_"):
        bundle["text/html"] = _data(value._repr_html_())
    if bundle.get("text/html"):
        return None
    for method, media_type in _REPRS.items():
        data = bundle.get(media_type)
        if data is None and hasattr(kind, method):
            data = _data(getattr(value, method)())
        if isinstance(data, bytes):
            return _FileBytes(data, media_type, None)
        if isinstance(data, str) and data:
            plain = data.encode() if "svg" in media_type else base64.b64decode(data)
            return _FileBytes(plain, media_type, None)
    return None


def _data(result: Any) -> Any:
    """The data that a repr method returned, without its metadata."""
    return result[0] if isinstance(result, tuple) else result


def _array(value: Any) -> _FileBytes | None:
    if not is_of(value, "numpy", "ndarray"):
        return None
    try:
        return _FileBytes(image_bytes.png(value), "image/png", "array.png")
    except ValueError as error:
        raise UsageError(str(error)) from error


def _fitted(data: bytes, media_type: str, label: str) -> tuple[bytes, str]:
    """The bytes to send, and their type. A picture is made as small as providers use, without metadata.

    Raises:
        UsageError: there are no bytes or too many, or the bytes are not of this type.
    """
    if not data:
        raise UsageError(f"{label} is empty")
    if media_type in IMAGES or media_type in image_bytes.CONVERTED:
        return _fitted_picture(data, media_type, label)
    most = MAX_TEXT if is_text(media_type) else MAX_FILE
    if len(data) > most:
        raise _too_large(label, len(data), most)
    if is_text(media_type) and not _is_utf8(data):
        raise UsageError(f"{label} is {media_type}, but its text is not UTF-8")
    return data, media_type


def _fitted_picture(data: bytes, media_type: str, label: str) -> tuple[bytes, str]:
    actual_type = image_bytes.type_of(data)
    if media_type in IMAGES and actual_type != media_type:
        raise UsageError(
            f"{label} was declared as {media_type}, but its first bytes are {actual_type or 'not an image'}"
        )
    sides = image_bytes.sides_of(data) or (0, 0)
    if sides[0] * sides[1] > image_bytes.MAX_PIXELS:
        raise _too_many_pixels(label, *sides)
    if media_type not in IMAGES or len(data) > MAX_IMAGE or max(sides) > MAX_SIDE:
        data, media_type = _smaller(data, media_type, label)
    if len(data) > MAX_IMAGE:
        raise _too_large(label, len(data), MAX_IMAGE)
    try:
        return image_bytes.stripped(data, media_type), media_type
    except ValueError as error:
        raise UsageError(f"{label} cannot be sent: {error}") from error


def _smaller(data: bytes, media_type: str, label: str) -> tuple[bytes, str]:
    """A picture made smaller with Pillow; unchanged if Pillow is not installed and the picture can be sent as it is."""
    if importlib.util.find_spec("PIL") is None:
        if media_type not in IMAGES:
            raise UsageError(
                f"{label} is {media_type}, which models cannot read. Pass a PNG or JPEG, or install Pillow to convert it: "
                "pip install pillow"
            )
        if len(data) > MAX_IMAGE:
            raise UsageError(
                f"{label} has {in_bytes(len(data))}. The limit for an image is {in_bytes(MAX_IMAGE)}. Pass a smaller image, "
                "or install Pillow to shrink it: pip install pillow"
            )
        return data, media_type
    images = importlib.import_module("PIL.Image")
    try:
        with images.open(io.BytesIO(data)) as image:
            if image.width * image.height > image_bytes.MAX_PIXELS:
                raise _too_many_pixels(label, *image.size)
            return _saved(image, "image/jpeg" if media_type == "image/jpeg" else "image/png")
    except (OSError, ValueError, SyntaxError, images.DecompressionBombError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{label} is not a readable {media_type}: {error}") from error


def _too_many_pixels(label: str, width: int, height: int) -> UsageError:
    most = image_bytes.MAX_PIXELS
    return UsageError(f"{label} has {width * height:,} pixels. The limit is {most:,}")


def _too_large(label: str, size: int, most: int) -> UsageError:
    return UsageError(f"{label} has {in_bytes(size)}. The limit is {in_bytes(most)}")


def is_table(value: Any) -> bool:
    """Whether a value is a table, or is like one. A table cannot be a tool or a whole prompt."""
    is_one = all(hasattr(value, name) for name in ("columns", "itertuples"))
    return tables.frame_of(value) is not None or (is_one and not isinstance(value, type))


def _named(value: Any) -> str:
    kind = f"a {type(value).__name__}"
    return kind if is_table(value) else f"{kind} ({value!r:.60})"

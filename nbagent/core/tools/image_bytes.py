"""Pictures as bytes: their type, their size, and the removal of a camera's metadata.

The metadata of a photo has its place, time, camera and owner. It is removed: only the pixels, colors and
orientation of a JPEG, PNG or WebP stay, as they are: Pillow would compress a photo again.
"""

from __future__ import annotations

import importlib.util
import io
import re
import struct
from collections.abc import Iterator
from typing import Any

CONVERTED = ("image/bmp", "image/tiff", "image/heic", "image/avif", "image/x-ms-bmp")
"""Types that models do not accept, and that are converted to PNG."""
MAX_PIXELS = 50_000_000
"""Maximum pixels of one picture; reading more uses a gigabyte of memory."""

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
)
_SOF = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}
"""Markers of the JPEG segments that contain the size of the picture."""
_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
_PNG_KEPT = {
    *(b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"sBIT"),
    *(b"cICP", b"bKGD", b"pHYs", b"acTL", b"fcTL", b"fdAT"),
}
_WEBP_DROPPED = {b"EXIF", b"XMP "}


def type_of(data: bytes) -> str | None:
    """The media type according to the first bytes, or None if it is unknown."""
    if data[:4] == b"RIFF" and data[8:12] in (b"WEBP", b"WAVE"):
        return "image/webp" if data[8:12] == b"WEBP" else "audio/wav"
    if data[4:8] == b"ftyp" and data[8:12] in (b"heic", b"heix", b"mif1", b"avif"):
        return "image/avif" if data[8:12] == b"avif" else "image/heic"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)


def sides_of(data: bytes) -> tuple[int, int] | None:
    """Width and height of a picture in pixels; None if they cannot be read."""
    try:
        match type_of(data):
            case "image/png":
                width, height = struct.unpack(">II", data[16:24])
            case "image/gif":
                width, height = struct.unpack("<HH", data[6:10])
            case "image/jpeg":
                height, width = next(
                    struct.unpack(">HH", segment[5:9])
                    for marker, segment in _segments(data)
                    if marker in _SOF
                )
            case "image/webp":
                width, height = _webp_sides(data)
            case _:
                return None
    except (struct.error, IndexError, StopIteration, ValueError):
        return None
    return int(width), int(height)


def stripped(data: bytes, media_type: str) -> bytes:
    """The picture without its metadata.

    Raises:
        ValueError: the picture is malformed, so that its parts are unknown.
    """
    try:
        match media_type:
            case "image/jpeg":
                return _stripped_jpeg(data)
            case "image/png":
                return _stripped_png(data)
            case "image/webp":
                return _stripped_webp(data)
            case _:
                return data
    except (struct.error, IndexError) as error:
        raise ValueError(f"it is not a valid {media_type}") from error


def png(array: Any) -> bytes:
    """A PNG of an array with height, width, and 1, 3 or 4 values per pixel.

    The values must be integers from 0 to 255, fractions from 0 to 1, or booleans.

    Raises:
        ValueError: the array is not a picture, or Pillow is not installed.
    """
    shape = tuple(array.shape)
    channels = 1 if len(shape) == 2 else shape[2] if len(shape) == 3 else 0
    if channels not in (1, 3, 4) or not all(shape):
        raise ValueError(
            f"an array of shape {shape} is not an image. An image has height and width, or height, width and 1, 3 or 4 "
            "values per pixel"
        )
    if shape[0] * shape[1] > MAX_PIXELS:
        raise ValueError(f"it has {shape[0] * shape[1]:,} pixels. The limit is {MAX_PIXELS:,}")
    kind = array.dtype.kind
    least, most = (array.min(), array.max()) if kind in "iuf" else (0, 1)
    if kind == "b" or (kind == "f" and least >= 0 and most <= 1):
        array = (array * 255.0).round()
    elif kind not in "iu" or least < 0 or most > 255:
        raise ValueError(
            f"an array of {array.dtype} from {least} to {most} is not an image. Its values must be integers from 0 to "
            "255, fractions from 0 to 1, or booleans. Scale it, or draw it as a figure"
        )
    if importlib.util.find_spec("PIL") is None:
        raise ValueError(
            "an array is drawn with Pillow, which is not installed: pip install pillow"
        )
    out = io.BytesIO()
    sides = shape[: 2 if channels == 1 else 3]
    importlib.import_module("PIL.Image").fromarray(array.astype("uint8").reshape(sides)).save(
        out, "PNG"
    )
    return out.getvalue()


def _stripped_png(data: bytes) -> bytes:
    out, at = [data[:8]], 8
    while True:
        (size,) = struct.unpack(">I", data[at : at + 4])
        name, end = data[at + 4 : at + 8], at + 12 + size
        if end > len(data):
            raise ValueError("it is not a valid image/png")
        if name in _PNG_KEPT:
            out.append(data[at:end])
        if name == b"IEND":
            return b"".join(out)
        at = end


def _segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Marker and bytes of each segment of a JPEG; a scan includes its data.

    Raises:
        ValueError: the JPEG is malformed, or its end is missing.
    """
    at = 2
    while True:
        marker = data[at + 1] if data[at : at + 1] == b"\xff" else -1
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker == 0xD9:  # the end of the picture; a short video may follow
            yield marker, data[at : at + 2]
            return
        if marker < 0xC0:
            raise ValueError("it is not a valid image/jpeg")
        (size,) = struct.unpack(">H", data[at + 2 : at + 4])
        end = at + 2 + size
        if marker == 0xDA:
            found = _MARKER.search(data, end)
            end = len(data) + 1 if found is None else found.start()
        if size < 2 or end > len(data):
            raise ValueError("it is not a valid image/jpeg: the end is missing")
        yield marker, data[at:end]
        at = end


def _stripped_jpeg(data: bytes) -> bytes:
    out = [b"\xff\xd8"]
    for marker, segment in _segments(data):
        if marker == 0xE1 and segment[4:10] == b"Exif\0\0":
            out.append(_upright(segment[10:]))
        elif _affects_drawing(marker, segment[4:]):
            out.append(segment)
    return b"".join(out)


def _affects_drawing(marker: int, body: bytes) -> bool:
    if marker == 0xE2:
        return body.startswith(b"ICC_PROFILE")
    return marker in (0xE0, 0xEE) or not (0xE0 <= marker <= 0xEF or marker == 0xFE)


def _upright(tiff: bytes) -> bytes:
    """A segment with only the orientation; empty if the camera was not rotated."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return b""
    (first,) = struct.unpack(order + "I", tiff[4:8])
    (count,) = struct.unpack(order + "H", tiff[first : first + 2])
    for at in range(first + 2, first + 2 + 12 * count, 12):
        tag, kind = struct.unpack(order + "HH", tiff[at : at + 4])
        if (tag, kind) == (0x0112, 3):
            (orientation,) = struct.unpack(order + "H", tiff[at + 8 : at + 10])
            if not 2 <= orientation <= 8:
                return b""
            entry = struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
            exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + entry + b"\0\0\0\0"
            return struct.pack(">BBH", 0xFF, 0xE1, len(exif) + 2) + exif
    return b""


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 12
    while at + 8 <= len(data):
        name = data[at : at + 4]
        (size,) = struct.unpack("<I", data[at + 4 : at + 8])
        if at + 8 + size > len(data):
            raise ValueError("it is not a valid image/webp")
        yield name, data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2


def _stripped_webp(data: bytes) -> bytes:
    out = []
    for name, chunk in _webp_chunks(data):
        if name in _WEBP_DROPPED:
            continue
        body = bytes([chunk[0] & ~0x0C]) + chunk[1:] if name == b"VP8X" else chunk
        out.append(name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2))
    content = b"WEBP" + b"".join(out)
    return b"RIFF" + struct.pack("<I", len(content)) + content


def _webp_sides(data: bytes) -> tuple[int, int]:
    name, body = next(_webp_chunks(data))
    match name:
        case b"VP8X":
            return (
                int.from_bytes(body[4:7], "little") + 1,
                int.from_bytes(body[7:10], "little") + 1,
            )
        case b"VP8L":
            bits = int.from_bytes(body[1:5], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            width, height = struct.unpack("<HH", body[6:10])
            return width & 0x3FFF, height & 0x3FFF

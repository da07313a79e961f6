"""Which file of the repository is which page of the site, and where its links go.

A link is meant as it reads in the repository. Where its target is a page of the site, it goes there; any other
file is read at ``extra.source_url``, and without one only named. A notebook's page has the outputs that are saved in it,
and the reference has every name of ``nbagent.__all__``, in the groups of the guide.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Iterator
from inspect import ismodule
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import nbagent

ROOT = Path(__file__).parents[2]
BESIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "nbagent/frontend/markup.md": "markup.md",
}
"""Pages that stand elsewhere in the repository."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
IMAGE = re.compile(r'(<img\b[^>]*\bsrc=")(?!\w+:)([^"]+)')
"""An image with a width, which Markdown cannot give it."""
DEFINED = re.compile(r"^\[(\w+)\]: (?!\w+:)(\S+)\n?", re.MULTILINE)
FENCED = re.compile(r"(^```.*?^```[^\n]*$)", re.DOTALL | re.MULTILINE)
KEPT = "@@block@@"
LITE = "<!-- lite -->"
"""Where a page opens the quickstart in JupyterLite."""
REMOTE = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b(?=[^>]*stylesheet|[^>]*preconnect|[^>]*icon)[^>]*\bhref=["']?(?:https?:)?//[^>]*>"""
    r"""|@import[^;]*//[^;]*;|url\(["']?(?:https?:)?//[^)]*\)"""
)
"""What a browser would fetch from another host."""
OUTPUT = (
    '<div class="nb-output"><template shadowrootmode="open">'
    '<link rel="stylesheet" href="../../site/output.css">{}</template></div>'
)
"""An output by itself: the theme's styles do not reach it, nor its own the page."""

outputs: dict[str, list[str]] = {}
"""The saved outputs of each notebook's page, as HTML, in order."""


def pages() -> dict[str, str]:
    """Each page's path in the repository, and its path in the site."""
    found = {f"docs/{path.name}": path.name for path in sorted(ROOT.glob("docs/*.md"))}
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        found[f"notebooks/{path.name}"] = f"tutorials/{path.stem}.md"
    return found | BESIDE


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the navigation: an entry with ``*`` is each page of that folder that has no entry."""
    sections = [section for section in config.nav or [] if isinstance(*section.values(), list)]
    named = {page_of(entry) for section in config.nav or [] for entry in entries(section)}
    for section in sections:
        found: list[Any] = []
        for entry in entries(section):
            found += left_in(entry, named) if "*" in page_of(entry) else [entry]
        section[next(iter(section))] = found
    return config


def entries(section: dict[str, Any]) -> list[Any]:
    """What a section of the navigation has: pages, and pages with a title."""
    (found,) = section.values()
    return found if isinstance(found, list) else [found]


def page_of(entry: str | dict[str, str]) -> str:
    """The page that an entry names."""
    return entry if isinstance(entry, str) else next(iter(entry.values()))


def left_in(entry: str, named: set[str]) -> list[str]:
    """The pages of the folder that no entry names, in the order of their names."""
    folder = posixpath.dirname(entry)
    return [
        page for page in pages().values() if posixpath.dirname(page) == folder and page not in named
    ]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere, and those that are made."""
    for source, uri in pages().items():
        if source.endswith(".ipynb"):
            text, outputs[uri] = notebook_page(ROOT / source)
            files.append(File.generated(config, uri, content=text))
        elif source in BESIDE:
            text = (ROOT / source).read_text(encoding="utf-8")
            files.append(File.generated(config, uri, content=text))
    files.append(File.generated(config, "reference.md", content=reference()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn each link of the repository into one of the site."""
    uri = page.file.src_uri
    sources = {uri: source for source, uri in pages().items()}
    if uri not in sources:
        return markdown
    markdown = markdown.replace(LITE, lite_button(config.extra["lite_url"], uri))
    blocks = FENCED.findall(markdown)
    text = linked(FENCED.sub(KEPT, markdown), sources[uri], uri, config.extra["source_url"])
    for block in blocks:
        text = text.replace(KEPT, block, 1)
    return text


def lite_button(folder: str, uri: str) -> str:
    """What opens the quickstart in JupyterLite, where the site has that: a link, so that nothing loads before."""
    if not folder:
        return "This copy of the site has no JupyterLite beside it."
    there = posixpath.relpath(folder, posixpath.splitext(uri)[0])
    url = f"{there}/lab/index.html?path=01_quickstart.ipynb"
    return f'<a class="md-button md-button--primary" target="_blank" href="{url}">Open the quickstart (21 MB, about 15 s)</a>'


def linked(text: str, source: str, uri: str, elsewhere: str) -> str:
    """A page's text with the site's links."""

    def there(target: str, anchor: str = "") -> str | None:
        """Where the site has what the repository has there."""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if not (ROOT / path).exists():
            raise PluginError(f"{source} has a link to {target}, which is not there")
        if path in (known := pages()):
            return posixpath.relpath(known[path], posixpath.dirname(uri) or ".") + anchor
        if path.startswith("docs/images/"):
            return posixpath.relpath(path[5:], posixpath.dirname(uri) or ".") + anchor
        return elsewhere + path + anchor if elsewhere else None

    def inline(found: re.Match[str]) -> str:
        mark, words, target, anchor = found.groups(default="")
        url = there(target, anchor)
        return f"{mark}[{words}]({url})" if url else named(words, target)

    text = IMAGE.sub(lambda found: found[1] + (there(found[2]) or ""), text)
    defined = dict(DEFINED.findall(text))
    text = DEFINED.sub("", LINK.sub(inline, text))
    for name, target in defined.items():
        if url := there(target):
            text += f"\n[{name}]: {url}"
        else:
            by_name = re.compile(rf"\[([^\[\]]+)\]\[{name}\]")
            text = by_name.sub(lambda found, target=target: named(found[1], target), text)
    return text


def named(words: str, target: str) -> str:
    """What is not on the site, by its name."""
    return f'<span title="{target.lstrip("./")}">{words}</span>'


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put a notebook's outputs in; refuse what Markdown reads otherwise here than on GitHub."""
    if "<p>" in content and (lost := re.search(r"<p>[^<]*\n(?:[-*]|1\.) [^<]*", content)):
        raise PluginError(f"{page.file.src_uri}: a list needs an empty line before: {lost[0]!r}")
    for number, output in enumerate(outputs.get(page.file.src_uri, ())):
        content = content.replace(f"<p>@@output-{number}@@</p>", output)
    return content


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that fetches from elsewhere."""
    for path in Path(config.site_dir).rglob("*"):
        if path.suffix in (".html", ".css") and (
            found := REMOTE.search(path.read_text(encoding="utf-8"))
        ):
            raise PluginError(f"{path} fetches from elsewhere: {found[0][:200]}")


def notebook_page(path: Path) -> tuple[str, list[str]]:
    """A notebook as Markdown with marks, and the outputs that belong there."""
    text, shown = [], []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text.append(source)
            continue
        text.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            text.append(f"@@output-{len(shown)}@@")
            shown.append(OUTPUT.format("".join(drawn(output))))
    return "\n\n".join(text), shown


def drawn(output: dict[str, Any]) -> Iterator[str]:
    """One output as a reader without a kernel sees it."""
    data = output.get("data", {})
    if "text/html" in data:
        yield "".join(data["text/html"])
    elif "image/svg+xml" in data:
        yield "".join(data["image/svg+xml"])
    elif "image/png" in data:
        yield f'<img alt="A figure" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    else:
        lines = data.get("text/plain") or output.get("text") or output.get("traceback") or ""
        yield f"<pre>{html.escape(''.join(lines))}</pre>"


def reference() -> str:
    """Every public name, in the groups of the guide's table."""
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    table = guide.partition("\n## All names\n")[2].partition("\nWhat these have:")[0]
    text = ["# All names", "`import nbagent as nb`: these are the names that it has.\n"]
    left = set(nbagent.__all__)
    for group, names in re.findall(r"^\| ([a-z ,]+) \| (.*) \|$", table, re.MULTILINE):
        here = [name for name in dict.fromkeys(re.findall(r"`nb\.(\w+)", names)) if name in left]
        if here:
            text.append(f"## {group.capitalize()}\n")
        text.extend(entry(name) for name in here)
        left -= set(here)
    if left:
        raise PluginError(f"docs/guide.md, All names: these are missing: {sorted(left)}")
    return "\n".join(text)


def entry(name: str) -> str:
    """What mkdocstrings makes a name's entry of; what loads late is not loaded."""
    late = nbagent._LATE.get(name)  # noqa: SLF001
    thing = None if late else getattr(nbagent, name)
    path = thing.__name__ if ismodule(thing) else f"{late or thing.__module__}.{name}"
    return f"::: {path}\n    options:\n      heading: nb.{name}\n      toc_label: nb.{name}\n"

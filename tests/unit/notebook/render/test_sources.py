"""Links to a model's sources: the provider chooses their text, so each link also shows its host."""

from __future__ import annotations

import re

import pytest

from nbagent.notebook.render import sources

SPOOFS = {
    "a title that holds the host as a part": ("accounts.google.com", "https://le.com/x", "le.com"),
    "a title that names the host and another": (
        "google.com (evil.example)",
        "https://evil.example/",
        "evil.example",
    ),
    "a user's name in the place of the host": (
        "",
        "https://google.com@evil.example/",
        "evil.example",
    ),
    "a letter of another script": ("Apple", "https://\u0430pple.com/", "xn--pple-43d.com"),
    "the same without a title": ("", "https://\u0430pple.com/", "xn--pple-43d.com"),
    "an address as the title": ("https://bank.example/in", "https://evil.example/", "evil.example"),
}


@pytest.mark.parametrize(("title", "url", "host"), SPOOFS.values(), ids=SPOOFS.keys())
@pytest.mark.parametrize("draw", [sources.listed, sources.cited])
def test_a_link_shows_its_host_after_its_text(draw, title, url, host):
    """Whatever the text says, the host follows the link, in unambiguous letters."""
    assert f"</a> ({host})" in draw([{"title": title, "url": url}])


@pytest.mark.parametrize(
    "url",
    ["javascript:alert(1)", "data:text/html,x", "https://evil.example\\@good.example/", "https://"],
)
def test_a_link_without_a_host_is_not_a_link(url):
    """The text stays."""
    assert "href" not in sources.listed([{"title": "Read me", "url": url}])
    assert "Read me" in sources.cited([{"title": "Read me", "url": url}])


def test_a_page_whose_title_is_its_address_shows_its_host_once():
    """A plain address already shows the host."""
    drawn = sources.listed([{"url": "https://towers.example/list"}])
    assert len(re.findall(r"towers\.example", re.sub(r'href="[^"]*"', "", drawn))) == 1

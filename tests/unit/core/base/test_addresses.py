"""The host of an address that somebody else wrote."""

from __future__ import annotations

import pytest

from nbagent.core.base.addresses import host_of

HOSTS = {
    "https://example.org/a?b=c#d": "example.org",
    "HTTPS://Example.ORG:8443/": "example.org",
    "https://google.com@evil.example/": "evil.example",
    "https://google.com:x@evil.example/": "evil.example",
    "https://\u0430pple.com/": "xn--pple-43d.com",
    "https://b\u00fccher.example/": "xn--bcher-kva.example",
    "http://[::1]:80/x": "[::1]",
    # browsers read the backslash as a slash, and ask evil.example
    "https://evil.example\\@good.example/": None,
    "https://good.example\t.evil.example/": None,
    "https://evil.example\u2100good.example/": None,
    "https://a:port/": None,
    "https:///x": None,
    "javascript:alert(1)//good.example/": None,
    "data:text/html,x": None,
    "//good.example/x": None,
    f"https://{'a.' * 4_000}example/": None,
    "": None,
}


@pytest.mark.parametrize(("address", "host"), HOSTS.items())
def test_the_host_of_an_address_is_the_one_that_a_browser_asks(address, host):
    """The host is in ASCII; an ambiguous address has none."""
    assert host_of(address) == host

"""An independent check of HTML: every element, attribute and address must be on these lists.

The check shares no code with the sanitizer on purpose: own lists, and Python's own parser.
"""

import re
from html.parser import HTMLParser


def names(text):
    return frozenset(text.split())


ELEMENTS = names(
    "a abbr b blockquote br caption cite code col colgroup dd del details dfn div dl dt em "
    "figcaption figure footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li mark ol p pre q s samp "
    "section small span strong sub summary sup table tbody td tfoot th thead tr u ul var wbr "
    "math maction menclose merror mfenced mfrac mi mmultiscripts mn mo mover mpadded mphantom "
    "mprescripts mroot mrow ms mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder "
    "munderover none semantics"
)
ATTRIBUTES = names(
    "class dir role open title align colspan rowspan scope span start alt src width height href "
    "target rel aria-label aria-level data-status data-state data-tone "
    "display xmlns notation linethickness mathvariant mathcolor mathbackground accent accentunder "
    "fence form largeop lspace rspace maxsize minsize movablelimits separator stretchy symmetric "
    "depth voffset linebreak displaystyle scriptlevel columnalign columnlines columnspacing frame "
    "rowlines rowspacing columnspan"
)
URLS = {
    "href": re.compile(r"(https?://|mailto:)[^\s]*", re.IGNORECASE),
    "src": re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/]*=*"),
    "xmlns": re.compile(r"http://www\.w3\.org/1998/Math/MathML"),
}


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.wrong = []

    def handle_starttag(self, tag, attrs):
        if tag not in ELEMENTS:
            self.wrong.append(f"<{tag}>")
        for name, value in attrs:
            url = URLS.get(name)
            if name not in ATTRIBUTES or (url and not url.fullmatch(value or "")):
                self.wrong.append(f"<{tag} {name}={value!r}>")
            if name == "src" and tag != "img":
                self.wrong.append(f"<{tag} src>")
            if tag in {"math", "mrow"} and name == "href":
                self.wrong.append(f"<{tag} href>")

    handle_startendtag = handle_starttag

    def handle_comment(self, data):
        self.wrong.append(f"<!--{data}-->")

    def handle_decl(self, decl):
        self.wrong.append(f"<!{decl}>")

    def handle_pi(self, data):
        self.wrong.append(f"<?{data}>")

    def unknown_decl(self, data):
        self.wrong.append(f"<![{data}>")


def violations(markup):
    """The parts of this HTML that are on none of the lists."""
    reader = _Reader()
    reader.feed(markup)
    reader.close()
    return reader.wrong

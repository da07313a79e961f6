"""A static card has only the style rules that can match in it."""

from __future__ import annotations

import json
import re

from nbagent.notebook.cards import front_end
from nbagent.notebook.render import static, styles
from nbagent.notebook.wire import CallItem, CardHead, TextItem, View


def test_a_rule_is_kept_if_all_its_names_exist_and_animations_are_kept_with_their_rules(
    monkeypatch,
):
    """Names below the card count, one of those in ``:is`` is enough; the host's own names do not count."""
    root = styles._ROOT
    sheet = (
        f"{root}{{--nba-x: 1;--nba-y: var(--nba-z);--nba-z: 2;a:b}}.jp-x {root} .nba-in{{c:var(--nba-y)}}"
        f"{root} .nba-in,{root} .nba-out{{e:f}}{root} .nba-in .nba-out{{g:h}}"
        f"{root} :is(.nba-out,p):not(.nba-out){{i:j}}{root} :is(.nba-out,li:is(li,ul)){{i:l}}"
        f"{root} p:has(>b)[x=y]:hover{{s:t}}{root} table td{{u:v}}"
        f"@media print{{{root} .nba-out{{k:l}}}}"
        f"@media screen{{{root} .nba-in{{animation:nba-turn 1s}}{root} .nba-out{{m:n}}}}"
        "@keyframes nba-turn{0%{o:p}to{q:r}}@keyframes nba-other{to{s:t}}"
    )
    monkeypatch.setattr(styles, "_sheet", lambda: sheet)
    forget()
    try:
        kept = styles.used_by('<p class="nba-in theirs">nba-out</p>')
        name, rules = styles.scoped('<p class="nba-in theirs">nba-out</p>')
    finally:
        forget()
    assert kept == (
        f"{root}{{--nba-y: var(--nba-z);--nba-z: 2;a:b}}.jp-x {root} .nba-in{{c:var(--nba-y)}}"
        f"{root} .nba-in{{e:f}}{root} :is(.nba-out,p):not(.nba-out){{i:j}}"
        f"{root} p:has(>b)[x=y]:hover{{s:t}}"
        f"@media screen{{{root} .nba-in{{animation:nba-turn 1s}}}}"
        "@keyframes nba-turn{0%{o:p}to{q:r}}"
    )
    assert rules == (
        f".{name}:not(#nba){{&{{--nba-y: var(--nba-z);--nba-z: 2;a:b}}.jp-x & .nba-in{{c:var(--nba-y)}}"
        "& .nba-in{e:f}& :is(.nba-out,p):not(.nba-out){i:j}& p:has(>b)[x=y]:hover{s:t}"
        f"@media screen{{& .nba-in{{animation:nba-turn-{name} 1s}}}}}}"
        f"@keyframes nba-turn-{name}{{0%{{o:p}}to{{q:r}}}}"
    )


def test_a_saved_card_is_sent_to_a_page_without_the_rules_that_the_page_has():
    """With the page's sheet the pieces equal the saved card, and almost no styles are sent."""
    call = CallItem(key="c", name="look", state="done", printed="a\n" * 20)
    head = CardHead(
        run="r", agent="a", prompt="p", started_at=0.0, status="running", status_text="works"
    )
    html = static.render(View(head=head, items=[TextItem(key="t", blocks=["<p>Hi</p>"]), call]))
    kept = f"{html}\n{html}"
    pieces = styles.in_pieces(kept)
    sheet = front_end.SHEET
    assert kept == "".join(p if isinstance(p, str) else sheet[slice(*p)] for p in pieces)
    told = len(json.dumps(pieces)) - len(json.dumps(re.sub("<style>.*?</style>", "", kept)))
    assert told < len("".join(re.findall("<style>.*?</style>", kept))) / 8
    assert styles.in_pieces("<style>no rule of ours") == ["<style>no rule of ours"]


def forget() -> None:
    """Clear the caches."""
    styles._names.cache_clear()
    styles._css_for.cache_clear()


def test_with_every_name_the_whole_sheet_is_kept():
    """The shipped sheet is split and joined without loss."""
    classes = " ".join(name[1:] for name in styles._names() if name[0] == ".")
    tags = "".join(f"<{name}>" for name in styles._names() if name[0] != ".")
    every = f'<p class="{classes}">{tags}'
    assert re.sub(r"\s", "", styles.used_by(every)) == re.sub(r"\s", "", styles._sheet())

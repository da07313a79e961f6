"""A static card carries the rules that can match in it, and no others."""

from __future__ import annotations

import re

from nbagent.notebook.render import styles


def test_a_rule_stays_where_all_it_names_is_there_and_animations_stay_with_their_rules(monkeypatch):
    """Classes and elements below the card count, one of those in ``:is``; what is the host's decides nothing."""
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


def forget() -> None:
    """Read the sheet anew."""
    styles._names.cache_clear()
    styles._kept.cache_clear()


def test_with_every_name_the_whole_sheet_stays():
    """Nothing is lost on the way: the shipped sheet is taken apart and put together the same."""
    classes = " ".join(name[1:] for name in styles._names() if name[0] == ".")
    tags = "".join(f"<{name}>" for name in styles._names() if name[0] != ".")
    every = f'<p class="{classes}">{tags}'
    assert re.sub(r"\s", "", styles.used_by(every)) == re.sub(r"\s", "", styles._sheet())

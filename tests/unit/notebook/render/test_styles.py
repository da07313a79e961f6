"""A static card carries the rules that can match in it, and no others."""

from __future__ import annotations

import re

from nbagent.notebook.render import styles


def test_a_rule_stays_where_all_its_classes_are_and_animations_stay_with_their_rules(monkeypatch):
    """Classes of the host and those in parentheses decide nothing."""
    sheet = (
        ".nbagent.nbagent{a:b}.jp-x .nbagent .nba-in{c:d}.nbagent .nba-in,.nbagent .nba-out{e:f}"
        ".nbagent .nba-in .nba-out{g:h}.nbagent :is(.nba-out,p){i:j}"
        "@media print{.nba-out{k:l}}@media screen{.nba-in{animation:nba-turn 1s}.nba-out{m:n}}"
        "@keyframes nba-turn{0%{o:p}to{q:r}}@keyframes nba-other{to{s:t}}"
    )
    monkeypatch.setattr(styles, "_sheet", lambda: sheet)
    styles._our_classes.cache_clear()
    styles._kept.cache_clear()
    try:
        kept = styles.used_by('<p class="nba-in theirs">nba-out</p>')
    finally:
        styles._our_classes.cache_clear()
        styles._kept.cache_clear()
    assert kept == (
        ".nbagent.nbagent{a:b}.jp-x .nbagent .nba-in{c:d}.nbagent .nba-in{e:f}"
        ".nbagent :is(.nba-out,p){i:j}@media screen{.nba-in{animation:nba-turn 1s}}"
        "@keyframes nba-turn{0%{o:p}to{q:r}}"
    )


def test_with_every_class_the_whole_sheet_stays():
    """Nothing is lost on the way: the shipped sheet is taken apart and put together the same."""
    every = f'<p class="{" ".join(sorted(styles._our_classes()))}">'
    assert re.sub(r"\s", "", styles.used_by(every)) == re.sub(r"\s", "", styles._sheet())

"""Scenes of cards in one page without Jupyter: accessible names, what is announced, and the keyboard, in each theme."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

import nbagent as nb
from nbagent.forms.form import Form
from nbagent.notebook.export import empty_view_of
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.thread import ThreadView
from nbagent.notebook.wire import Snapshot, View
from tests.browser.form_page import UNFIT, FormPage, axe_finds

call = nb.ScriptedModel.call
ANSWER = "## Result\n\nThe [South](https://example.org/) lost **42**.\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n```python\nx = 1\n```"


def _agent(*steps, **options):
    agent = nb.Agent(nb.ScriptedModel(list(steps)), name="clerk", **options)

    @agent.tool
    def look(region: str, ctx: nb.ToolContext) -> pd.DataFrame:
        """Look at a region."""
        ctx.plan(["Look", "Pay"], done=1)
        print("looked")
        return pd.DataFrame({"region": [region]})

    @agent.tool
    def count(n: int) -> int:
        """Count."""
        return n

    @agent.tool(approval=True, approve_label="Pay")
    def pay(to: str, amount: float) -> str:
        """Pay somebody."""
        return f"paid {amount} to {to}"

    @agent.tool
    def drop(ctx: nb.ToolContext) -> str:
        """Drop the table."""
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Drop the table?", danger=True))
        return "dropped"

    @agent.tool
    async def ask(ctx: nb.ToolContext) -> str:
        """Ask."""
        return str(await ctx.ask(nb.Choose("Which one?", choices=["red", "blue"])))

    @agent.tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no such table")

    return agent


def _view(run, *, in_thread=False):
    view = empty_view_of(run, in_thread=in_thread)
    for event in run.journal:
        view.apply(event)
    return view


async def _settled(agent, prompt="Do it", **options):
    run = agent.run(prompt, show=False, attended=True, **options)
    await run.settled()
    return run


async def _play() -> dict[str, View]:
    """The scenes by name."""
    work = [call("look", region="South"), *(call("count", n=n) for n in range(4))]
    pays = [call("pay", to=who, amount=n) for n, who in enumerate(("Ada", "Bob", "Cy"))]
    scenes = {}
    for name, agent in {
        "done": _agent(work, ANSWER),
        "approval": _agent([call("pay", to="Ada", amount=20.0)], "Paid."),
        "danger": _agent([call("drop")], "Dropped."),
        "choice": _agent([call("ask")], "Asked."),
        "alike": _agent(pays, "Paid."),
        "limit": _agent([call("count", n=1)], "Counted.", max_turns=1),
        "failed": _agent([call("fail")], nb.errors.ModelError("The server is down")),
    }.items():
        run = await _settled(agent)
        scenes[name] = _view(run).snapshot()
        if name == "alike":
            await run.cancel()
            scenes["stopped"] = _view(run).snapshot()
    chat = _agent("One.", ANSWER).chat(show=False)
    await chat.send("First?")
    await chat.send("Second?")
    thread = ThreadView("clerk")
    for run in chat.runs:
        thread.add_run(_view(run, in_thread=True))
    thread.flush(0)
    scenes["chat"] = thread.snapshot()
    scenes["empty chat"] = ThreadView("clerk").snapshot()
    return scenes


@pytest.fixture(scope="module")
def scenes() -> dict[str, View]:
    """The scenes, played on another thread: Playwright's loop runs on this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(_play())).result()


NAMED = r"- '?(button|textbox|radio|checkbox|link|heading|region) \"([^\"]*)\""
THEMES = [
    {"dark": dark, **media}
    for dark in (False, True)
    for media in ({}, {"contrast": "more"}, {"forced_colors": "active"})
]
HEARD = "() => [...document.querySelectorAll('.nbagent > .nba-sr p')].map((p) => p.textContent)"
TABBABLE = """() => [...document.querySelectorAll(
  "#out :is(a[href], button, input, select, textarea, summary, [tabindex='0'])")].filter((el) =>
    el.tabIndex === 0 && el.checkVisibility({ visibilityProperty: true }) && !el.closest("[inert]")
    && el.type !== "file" && !(el.type === "radio" && el !== el.closest("fieldset").querySelector("[type=radio]")))
  .length"""
FOCUS = """() => {
  const el = document.activeElement;
  if (!el.closest("#out")) return null;
  const shows = [el, el.closest(".nba-box, .nba-option") ?? el].map((one) => getComputedStyle(one)).some(
    ({ outlineStyle, boxShadow }) => outlineStyle !== "none" || boxShadow !== "none");
  window.stops ??= [];
  if (!window.stops.includes(el)) window.stops.push(el);
  return `${shows ? "" : "no outline: "}${window.stops.indexOf(el)} ${el.tagName} ${el.textContent.slice(0, 30)}`;
}"""


class ScenePage(FormPage):
    """A page that shows scenes."""

    def play(self, *views: View) -> None:
        """Show these views, one after the other."""
        for view in views:
            self._asked += 1
            now = view.head.started_at + 4
            self._tell(Snapshot(seq=self._asked, view=view, now=now, texts=TEXTS))
        if not views[-1].items:
            names = [{"name": "Which one?", "about": ""}, {"name": "/pay", "about": "Pay"}]
            self.page.evaluate("names => kernel({ type: 'names', text: '', names })", names)

    def look(self, *, dark: bool, contrast: str = "no-preference", forced_colors: str = "none"):
        """Set the theme."""
        scheme = "dark" if dark else "light"
        self.page.emulate_media(color_scheme=scheme, contrast=contrast, forced_colors=forced_colors)
        self.page.evaluate(
            "([scheme, light]) => { document.documentElement.style.colorScheme = scheme;"
            " document.body.dataset.jpThemeLight = light; }",
            [scheme, str(not dark).lower()],
        )

    def unfit(self) -> list[str]:
        """Small targets and pale outlines."""
        return self.page.evaluate(UNFIT, "#out .nbagent")

    def fresh(self) -> None:
        """Load the page again."""
        self.page.reload()
        self.page.wait_for_function("window.ready")
        self._asked = 0

    def mount(self, view: View) -> None:
        """Show the view in a new card; faster than another page."""
        self.page.evaluate("mount()")
        self._asked = 0
        self.play(view)

    def press(self, control: str, keys: list[str]) -> None:
        """Press keys in the last control of this role and name."""
        role, _, name = control.partition(" ")
        self.page.get_by_role(role, name=name, exact=True).last.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def names(self) -> list[str]:
        """Roles and names of all controls, headings and regions, in their order."""
        shot = self.page.locator("#out").aria_snapshot()
        return [f"{role} {name}" for role, name in re.findall(NAMED, shot)]


@pytest.fixture(scope="module")
def page(browser):
    """The page of all scenes."""
    with_scenes = ScenePage(browser, Form(int))
    yield with_scenes
    assert with_scenes.errors == []
    with_scenes.close()


NAMES = {
    "done": ["heading Result", "link South", "button Copy"],
    "approval": [
        "heading Pay somebody",
        "button Pay",
        "button Reject…",
        "button More ways to approve",
        "button 1 question waiting",
        "button Stop",
    ],
    "danger": [
        "heading Drop the table?",
        "button Drop the table",
        "button Reject…",
        "button More ways to approve",
        "button 1 question waiting",
        "button Stop",
    ],
    "choice": [
        "heading Which one?",
        "radio red",
        "radio blue",
        "button Send",
        "button Decline…",
        "button 1 question waiting",
        "button Stop",
    ],
    "alike": [
        "region 3 calls of pay are waiting",
        "heading 3 calls of pay are waiting",
        "button Pay: to Ada, amount 0",
        "button Reject…: to Ada, amount 0",
        "button Open: to Ada, amount 0",
        "button Pay: to Bob, amount 1",
        "button Reject…: to Bob, amount 1",
        "button Open: to Bob, amount 1",
        "button Pay: to Cy, amount 2",
        "button Reject…: to Cy, amount 2",
        "button Open: to Cy, amount 2",
        "button Pay (all 3)",
        "button Reject all 3…",
        "button 3 questions waiting",
        "button Stop",
    ],
    "stopped": [],
    "limit": [
        "heading The model has used its 1 turn.",
        "textbox More turns",
        "button Continue",
        "button Stop here",
        "button 1 question waiting",
        "button Stop",
    ],
    "failed": ["button Retry"],
    "chat": [
        "button Edit this message",
        "button Copy the answer",
        "button More ways to copy",
        "button Retry this answer",
        "button Edit this message",
        "heading Result",
        "link South",
        "button Copy the answer",
        "button More ways to copy",
        "button Retry this answer",
        "button Attach a file",
        "textbox Message",
        "button Send",
        "button Copy",
    ],
    "empty chat": [
        "button Which one?",
        "button /pay",
        "button Attach a file",
        "textbox Message",
        "button Send",
    ],
}
"""Roles and names of the controls and headings of each scene, below the card's own."""
ENDS = {
    "done": "clerk: done",
    "stopped": "clerk: stopped. Stopped by code.",
    "failed": "clerk: failed. ModelError: The server is down",
    "chat": "clerk: Result The South lost 42. a b 1 2 x = 1",
}
"""What a screen reader hears of each end, once."""


def test_c883_each_control_of_a_card_has_a_name_of_its_own_and_axe_finds_nothing(page, scenes):
    """In each scene, the light and the dark; outlines and targets also with more contrast and forced colors."""
    assert set(scenes) == set(NAMES)
    for name, view in scenes.items():
        page.fresh()
        page.play(view)
        region, heading, *names = page.names()
        assert (region[:19], heading) == ("region Run of clerk", "heading clerk")
        assert names == NAMES[name]
        for theme in THEMES:
            page.look(**theme)
            found = axe_finds(page.page, "#out .nbagent") if len(theme) == 1 else page.unfit()
            assert found == [], f"{name}, {theme}"


def test_c883_each_end_is_heard_once(page, scenes):
    """Done, failed, stopped, and the answer of a chat."""
    for name, heard in ENDS.items():
        view = scenes[name]
        head = view.head.model_copy(update={"status": "running", "status_text": "running"})
        page.fresh()
        page.play(view.model_copy(update={"head": head, "items": []}), view, view)
        assert [" ".join(one.split()) for one in page.page.evaluate(HEARD)] == [heard]


def test_c883_the_keyboard_reaches_each_control_and_shows_where_it_is(page, scenes):
    """Tab stops once at each control, in the order of the page, with an outline, and leaves the card."""
    keys = page.page.keyboard
    for name, view in scenes.items():
        page.fresh()
        page.play(view)
        page.page.get_by_role("button", name="before").focus()
        stops = []
        while (keys.press("Tab"), stop := page.page.evaluate(FOCUS))[1]:
            stops.append(stop)
        assert [stop for stop in stops if stop.startswith("no outline")] == []
        assert len(stops) == page.page.evaluate(TABBABLE) == len(set(stops)), name


OPERATED = {
    "done": {
        "link South": "opens https://example.org/",
        "button Copy": "sends copy",
    },
    "approval": {
        "button Pay": "sends answer approve",
        "button Reject…": "textarea Reason (the agent sees it)",
        "button More ways to approve": "button Answer instead…",
        "button 1 question waiting": "h4 Pay somebody",
        "button Stop": "sends stop",
    },
    "danger": {
        "button Drop the table": "sends answer approve",
        "button Reject…": "textarea Reason (the agent sees it)",
        "button More ways to approve": "button Answer instead…",
        "button 1 question waiting": "h4 Drop the table?",
        "button Stop": "sends stop",
    },
    "choice": {
        "radio red": "input red1 checked",
        "radio blue": "input blue2 checked",
        "button Send": "sends answer submit",
        "button Decline…": "textarea Reason (the agent sees it)",
        "button 1 question waiting": "input red1",
        "button Stop": "sends stop",
    },
    "alike": {
        "button Pay: to Ada, amount 0": "sends answer approve",
        "button Reject…: to Ada, amount 0": "textarea Reason (the agent sees it)",
        "button Open: to Ada, amount 0": "button Close: to Ada, amount 0",
        "button Pay: to Bob, amount 1": "sends answer approve",
        "button Reject…: to Bob, amount 1": "textarea Reason (the agent sees it)",
        "button Open: to Bob, amount 1": "button Close: to Bob, amount 1",
        "button Pay: to Cy, amount 2": "sends answer approve",
        "button Reject…: to Cy, amount 2": "textarea Reason (the agent sees it)",
        "button Open: to Cy, amount 2": "button Close: to Cy, amount 2",
        "button Pay (all 3)": "sends answer approve, sends answer approve, sends answer approve",
        "button Reject all 3…": "textarea Reason (the agent sees it)",
        "button 3 questions waiting": "h4 3 calls of pay are waiting",
        "button Stop": "sends stop",
    },
    "stopped": {},
    "limit": {
        "textbox More turns": "input 7",
        "button Continue": "sends answer submit",
        "button Stop here": "sends answer reject",
        "button 1 question waiting": "input 1",
        "button Stop": "sends stop",
    },
    "failed": {
        "button Retry": "sends retry",
    },
    "chat": {
        "button Edit this message": "textarea Message Second?",
        "button Copy the answer": "sends copy",
        "button More ways to copy": "button Copy as Markdown",
        "button Retry this answer": "sends say Second?",
        "link South": "opens https://example.org/",
        "button Attach a file": "opens the files",
        "textbox Message": "sends say Hi",
        "button Send": "sends say h",
        "button Copy": "sends copy",
    },
    "empty chat": {
        "button Which one?": "sends say Which one?",
        "button /pay": "textarea Message /pay ",
        "button Attach a file": "opens the files",
        "textbox Message": "sends say Hi",
        "button Send": "sends say h",
    },
}
"""What each control of a scene does when it is pressed by keyboard: what is sent, or what has the focus then."""
BEFORE = {
    ("choice", "button Send"): ("radio red", "Space"),
    ("chat", "button Send"): ("textbox Message", "h"),
    ("empty chat", "button Send"): ("textbox Message", "h"),
}
"""The key that is pressed in another control before."""
KEYS = {
    "radio": ["Space"],
    "textbox Message": ["H", "i", "Enter"],
    "textbox More turns": ["Control+a", "7"],
}
EFFECT = """() => {
  const at = document.activeElement;
  const label = at.getAttribute("aria-label") ?? at.labels?.[0]?.textContent ?? at.firstChild?.textContent ?? "";
  const text = [at.tagName.toLowerCase(), label, at.checked ? "checked" : at.type === "radio" ? "" : at.value];
  const sent = window.sent.filter(({ type }) => !["hello", "focus", "drafts", "complete"].includes(type));
  return sent.map((one) => ["sends", one.type, one.action, one.text].filter(Boolean).join(" ")).join(", ")
    || text.filter(Boolean).join(" ");
}"""
IS_OPEN = "summary => summary.parentElement.open"
LEGEND = "() => getComputedStyle(document.querySelector('.nba-legend')).visibility"


def test_c848_each_control_works_by_keyboard(page, scenes):
    """The control has the focus and a key is pressed: the kernel gets a message, or something else has the focus."""
    opened: list[str] = []
    page.page.context.route("https://**", lambda route: route.fulfill(body="opened"))
    page.page.on("popup", lambda popup: (opened.append(f"opens {popup.url}"), popup.close()))
    page.page.on("filechooser", lambda _: opened.append("opens the files"))
    page.fresh()
    for name, view in scenes.items():
        controls = {c for c in NAMES[name] if c.split()[0] not in ("heading", "region")}
        assert controls == set(OPERATED[name]), name
        for control, effect in OPERATED[name].items():
            opened.clear()
            page.mount(view)
            for before, key in [BEFORE[name, control]] if (name, control) in BEFORE else []:
                page.press(before, [key])
            page.press(control, KEYS.get(control) or KEYS.get(control.split()[0], ["Enter"]))
            if effect.startswith("opens"):
                while not opened:  # the test's time limit ends it
                    page.page.wait_for_timeout(20)
                found = opened
            else:
                found = [page.page.evaluate(EFFECT)]
            assert found == [effect], f"{name}: {control}"


def test_c848_rows_open_and_the_time_strip_is_explained_by_keyboard(page, scenes):
    """Enter opens and closes each row; the legend is visible while the strip has the focus."""
    for name, view in scenes.items():
        page.mount(view)
        for summary in page.page.locator("#out details > summary").all():
            if summary.is_hidden():  # in a closed row
                continue
            for expected in (True, False):
                summary.press("Enter")
                assert summary.evaluate(IS_OPEN) is expected, name
        if view.head.spans and not view.head.chat:
            assert page.page.evaluate(LEGEND) == "hidden"
            page.page.locator(".nba-strip").focus()
            assert page.page.evaluate(LEGEND) == "visible"


def test_c854_a_time_strip_is_parts_with_gaps_not_a_bar_that_fills(page, scenes):
    """Nothing is drawn behind the parts; each ends before the next, and a wait is hatched."""
    page.look(dark=False)
    page.mount(scenes["approval"])
    strip = page.page.locator(".nba-strip")
    assert strip.evaluate("el => getComputedStyle(el).backgroundColor") == "rgba(0, 0, 0, 0)"
    styles = strip.locator("i").evaluate_all(
        "all => all.map((el) => [el.dataset.lane, getComputedStyle(el).clipPath, getComputedStyle(el).backgroundImage])"
    )
    assert {lane: "gradient" in image for lane, _, image in styles} == {
        "wait": True,
        "model": False,
    }
    assert all("2px" in clip for _, clip, _ in styles)


def test_c845_find_stands_beside_stop(page, scenes):
    """In a long run that goes on, at any width; the counts are at the other end."""
    view = scenes["done"]
    items = [item.model_copy(update={"key": f"{n}{item.key}"}) for n in "12" for item in view.items]
    head = view.head.model_copy(update={"status": "running", "status_text": "running"})
    page.mount(view.model_copy(update={"head": head, "items": items}))
    for width in (1400, 400):
        page.page.set_viewport_size({"width": width, "height": 900})
        counts, find, stop = (
            page.page.locator(f".nba-footer {one}").bounding_box()
            for one in (".nba-counts > :last-child", ".nba-find", ".nba-stop:last-child")
        )
        assert 0 < stop["x"] - find["x"] - find["width"] <= 16
        assert abs(find["y"] + find["height"] / 2 - stop["y"] - stop["height"] / 2) < 3
        assert find["x"] - counts["x"] - counts["width"] > 60
    page.page.set_viewport_size({"width": 900, "height": 900})


def test_c849_what_an_edit_drops_is_faded_and_readable(page, scenes):
    """Links and colored code below the edited message have the contrast of text, in the light and the dark."""
    for dark in (False, True):
        page.mount(scenes["chat"])
        page.look(dark=dark)
        page.page.get_by_role("button", name="Edit this message").first.press("Enter")
        answer = page.page.locator(".nba-edited ~ .nba-say").last
        assert float(answer.evaluate("el => getComputedStyle(el).opacity")) < 0.8
        assert axe_finds(page.page, "#out .nbagent") == []
    page.look(dark=False)


def test_c851_what_cannot_be_undone_says_so_and_a_refusal_is_never_red(page, scenes):
    """The words stand beside the red button, and nowhere else; the button that refuses has the color of text."""
    for name in ("danger", "approval", "alike"):
        page.mount(scenes[name])
        words = page.page.get_by_text("Cannot be undone", exact=True)
        assert words.is_visible() is (name == "danger")
        refuse = page.page.locator(".nba-button:not([hidden])", has_text="Reject").first
        colors = [
            refuse.evaluate("el => getComputedStyle(el).color"),
            page.page.locator(".nba-stop").first.evaluate("el => getComputedStyle(el).color"),
        ]
        assert colors[0] == colors[1]

"""``await nb.form(…)`` in real kernels of several versions, with a simulated page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.kernels import KERNELS, front_end
from tests.integration.test_runs_in_kernels import Page

MODEL = """
from pydantic import BaseModel, Field, SecretStr

class Login(BaseModel):
    user: str
    tries: int = Field(3, ge=1)
    password: SecretStr
"""
ASK = "login = await nb.form(Login, title='Who?')\nprint('got', repr(login))"
DRAFTS = {"fields": {"user": {"text": "ada"}, "password": {"text": "hushhush"}}}


@pytest.fixture(scope="module", params=KERNELS)
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    """A kernel of each version."""
    version, subshell = request.param
    with front_end(version, subshell=subshell) as kernel:
        kernel.must_run(MODEL)
        yield Page(kernel)


@pytest.fixture(scope="module")
def newest() -> Iterator[Page]:
    """The newest kernel, with a subshell as in JupyterLab."""
    with front_end(subshell=True) as kernel:
        kernel.must_run(MODEL)
        yield Page(kernel)


def test_a_cell_that_awaits_a_form_gets_the_typed_answer(page: Page) -> None:
    """On every kernel: errors name their fields, the answer works once, and no secret is sent."""
    request = page.start(ASK)
    card = page.card()
    form = page.question(card)
    wrong = page.press(card, form, "submit", drafts={"fields": {"tries": {"text": "none"}}})
    assert {e["field"] for e in page.receipt(card, wrong)["errors"]} == {
        "/user",
        "/tries",
        "/password",
    }
    first = page.press(card, form, "submit", drafts=DRAFTS)
    second = page.press(card, form, "submit", drafts=DRAFTS)
    assert page.receipt(card, first)["ok"]
    assert not page.receipt(card, second)["ok"]
    outcome = page.kernel.finish(request)
    assert outcome.status == "ok", page.kernel.errors()
    assert "got Login(user='ada', tries=3, password=SecretStr('**********'))" in outcome.stdout
    assert page.kernel.must_run("print(login.password.get_secret_value())") == "hushhush\n"
    sent = [message["content"] for message in page.kernel.seen if message["msg_type"] != "stream"]
    assert "hushhush" not in repr(sent)


@pytest.mark.parametrize(("way", "error"), [("cancel", "Rejected"), ("stop", "")])
def test_a_form_is_cancelled_by_its_button_or_by_the_kernel_interrupt(
    newest: Page, way: str, error: str
) -> None:
    """Cancel raises an error in the cell; Jupyter's stop button ends the cell, and the form accepts no answer."""
    request = newest.start(ASK, cell_id=way)
    card = newest.card()
    form = newest.question(card)
    if way == "cancel":
        newest.press(card, form, "reject")
    else:
        newest.kernel.interrupt()
    outcome = newest.kernel.finish(request)
    assert outcome.status == "error"
    assert error in outcome.error
    newest.status(card, "cancelled")
    late = newest.receipt(card, newest.press(card, form, "submit", drafts=DRAFTS))
    assert not late["ok"]


def test_without_a_person_a_form_raises_or_uses_the_answer_passed_in(newest: Page) -> None:
    """With nbclient, nbval and papermill, no form hangs."""
    waiting = newest.kernel.run(ASK, allow_stdin=False)
    assert waiting.error == "HumanInputRequired"
    given = newest.kernel.run(
        "print(await nb.form(Login, unattended={'user': 'eve', 'password': 'hushhush'}))",
        allow_stdin=False,
    )
    assert given.status == "ok", newest.kernel.errors()
    assert "user='eve'" in given.stdout
    assert sorted(given.displays[0]) == ["text/html", "text/plain"]
    assert "hushhush" not in str(given.displays)


def test_an_approval_shows_what_it_would_do_and_follows_edits(newest: Page) -> None:
    """The form shows the tool's preview as sanitized HTML and updates it after each edit."""
    newest.kernel.must_run("""


    class Table:
        def __init__(self, rows): self.rows = rows
        def _repr_html_(self): return f"<b>{self.rows} rows</b><script>bad()</script>"
        def __repr__(self): return "Table"

    cleaner = agent([call("delete", rows=214)], "done")
    @cleaner.tool(approval=True, editable=True, preview=lambda input: Table(input.rows))
    def delete(rows: int) -> str:
        return f"deleted {rows}"
    """)
    newest.start("cleaned = cleaner.run('go')", cell_id="preview")
    card = newest.card()
    interrupt = newest.question(card)

    def until(rows: int) -> None:
        shown = lambda: [f["preview"] for f in newest.forms(card) if f["preview"]]  # noqa: E731
        wanted = [{"kind": "html", "data": f"<b>{rows} rows</b>", "alt": ""}]
        newest.kernel.read_until(lambda: wanted in shown())
        assert wanted in shown(), newest.forms(card)

    until(214)
    drafts = {"fields": {"rows": {"text": "7"}}}
    newest.kernel.answer(card, {"type": "drafts", "interrupt": interrupt, "drafts": drafts})
    until(7)
    assert newest.receipt(card, newest.press(card, interrupt, drafts=drafts))["ok"]
    newest.status(card, "completed")
    assert "deleted 7" in newest.kernel.must_run("print(cleaned.calls['delete'][0].output)")

"""The inbox in JupyterLab: questions of several notebooks in one table, and a pause that outlives its kernel."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.card import Card
from tests.browser.form_page import check_picture
from tests.browser.test_group import Table

ASKS = """
import nbagent as nb
call = nb.ScriptedModel.call
agent = nb.Agent(
    nb.ScriptedModel([[call("pay", to=to, amount=amount) for to, amount in {bills}], "All settled."]),
    name="banker",
    store=nb.SQLiteStore("inbox.db"),
)

@agent.tool(approval=True, editable=True)
def pay(to: str, amount: float) -> str:
    "Pay a bill."
    return f"paid {{to}}"

run = agent.run("Pay the bills of {month}", id=None)
run
""".replace(", id=None", "")
AGAIN = """
import nbagent as nb
store = nb.SQLiteStore("inbox.db")
agent = nb.Agent(nb.ScriptedModel(["All settled."]), name="banker")

@agent.tool(approval=True, editable=True)
def pay(to: str, amount: float) -> str:
    "Pay a bill."
    return f"paid {to}"

run = await nb.open_run(store.run_ids()[-1], agent=agent, store=store)
await run
"""
INBOX = """
import nbagent as nb
inbox = nb.inbox(nb.SQLiteStore("inbox.db"))
inbox
"""
WITHIN = ".nbagent, .nba-table-card"


def asking(server, open_page, month, bills):
    """A notebook with a waiting run, and the run's card."""
    cells = (ASKS.format(month=month, bills=bills), AGAIN)
    notebook = open_page(server.write(f"{month}.ipynb", *cells))
    notebook.run_cell(0)
    return notebook, Card(notebook.output(0))


def test_c280_two_notebooks_are_answered_in_one_table_and_a_lost_kernel_in_another(
    server, open_page
):
    """Both runs continue in their own kernels; a third run, whose kernel restarts, is answered here and reopened."""
    may, its = asking(server, open_page, "May", [("Ada", 10), ("Bob", 20)])
    Table(its).wait("2 calls of pay are waiting")
    june, other = asking(server, open_page, "June", [("Cid", 30)])
    other.wait_for_question("pay")
    inbox = open_page(
        server.write("inbox.ipynb", INBOX, "print(inbox.count, len(inbox))", "inbox.to_frame()")
    )
    inbox.run_cell(0)
    card = Card(inbox.output(0))
    table = Table(card)
    table.wait("3 calls of pay are waiting")
    expect(card.root).to_contain_text("in process")
    check_picture(inbox, inbox.output(0), "inbox-light", WITHIN)
    inbox.run_cell(1)
    expect(inbox.output(1)).to_contain_text("3 3")
    inbox.dark()
    check_picture(inbox, inbox.output(0), "inbox-dark", WITHIN)
    inbox.light()
    inbox.style(".jp-OutputArea-child { max-width: 400px }")
    check_picture(inbox, inbox.output(0), "inbox-narrow", WITHIN)
    inbox.style(".jp-OutputArea-child.jp-OutputArea-child { max-width: none }")

    card.press_still(table.button(1, "Reject"))
    table.under(1).get_by_label("Reason (the agent").fill("not Bob")
    july, third = asking(server, open_page, "July", [("Dee", 40)])
    third.wait_for_question("pay")
    july.restart_kernel()
    expect(third.form).to_contain_text(
        "The kernel has stopped or was restarted, but the run is stored."
    )
    expect(third.form).to_contain_text("await nb.open_run(")
    expect(third.button("Approve")).to_have_attribute("aria-disabled", "true")
    july.shot("inbox-kernel-gone", of=third.root)

    inbox.page.bring_to_front()
    table.wait("4 calls of pay are waiting")
    expect(card.root).to_contain_text("1 new")
    expect(table.under(1).get_by_label("Reason (the agent")).to_have_value("not Bob")
    inbox.shot("inbox-new", of=inbox.output(0))
    card.press_still(table.under(1).locator(".nba-reason").get_by_role("button", name="Reject"))
    table.wait("3 calls of pay are waiting")
    expect(table.rows.nth(3)).to_contain_text("once someone has the run open")
    inbox.shot("inbox-one-left", of=inbox.output(0))
    card.press("Approve all 3", clicks=2)
    expect(card.root).to_have_attribute("data-status", "completed")
    inbox.shot("inbox-done", of=inbox.output(0))
    for notebook, its_card in ((may, its), (june, other)):
        notebook.page.bring_to_front()
        its_card.wait_until("completed")
    expect(its.root).to_contain_text("not Bob")
    july.page.bring_to_front()
    july.run_cell(1)
    Card(july.output(1)).wait_until("completed")
    for notebook in (may, june, inbox):
        assert notebook.errors == [], "\n".join(notebook.errors)


SAVES = """
import pathlib
import nbagent as nb
nb.use_store("again.db")
agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("save", text="hello")] * 2 + ["Saved."] * 2), name="clerk")

@agent.tool(approval=True)
def save(text: str) -> str:
    "Save a text."
    with pathlib.Path("saved.txt").open("a") as file:
        file.write(f"{text};")
    return "saved"
"""
EACH = ("one = agent.run('Save it'); one", "two = agent.run('Save it again'); two")


def test_c406_run_all_after_a_restart_excludes_questions_of_earlier_kernels(server, open_page):
    """Older questions are marked and shown below; one press approves only those of this kernel."""
    look_at = "inbox = nb.inbox(); inbox"
    notebook = open_page(server.write("again.ipynb", SAVES, *EACH, look_at))
    notebook.run_all()
    card = Card(notebook.output(3))
    table = Table(card)
    table.wait("2 calls of save are waiting")
    notebook.restart_kernel()
    notebook.run_all()
    expect(card.root).to_contain_text("4 questions")
    expect(card.root).to_contain_text("These questions are from an earlier kernel")
    table.wait("2 calls of save are waiting")
    apart = card.root.locator("form.nba-form", has_text="From an earlier run of this cell.")
    expect(apart).to_have_count(2)
    card.root.scroll_into_view_if_needed()
    notebook.shot("inbox-earlier", notebook.output(3))
    card.press("Approve all 2")
    for index in (1, 2):
        Card(notebook.output(index)).wait_until("completed")
    expect(card.root).to_contain_text("2 questions")
    expect(apart).to_have_count(2)
    assert (server.root / "saved.txt").read_text() == "hello;hello;"
    notebook.dark()
    notebook.style(".jp-OutputArea-child { max-width: 400px }")
    notebook.shot("inbox-earlier-dark", notebook.output(3))
    notebook.run_cell(3)
    expect(apart).to_have_count(2)
    expect(card.button("Approve all 2")).to_have_count(0)
    assert notebook.errors == [], "\n".join(notebook.errors)

"""Thousands of rows in one form, in JupyterLab: read, found, edited, pasted, corrected and approved."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.browser.card import Card
from tests.browser.form_page import check_all_looks

ROWS = """
import datetime as dt
from typing import Literal
from pydantic import BaseModel, Field
import nbagent as nb

class Bill(BaseModel):
    customer: str
    amount: float = Field(ge=0)
    copies: int
    paid: bool
    status: Literal["open", "sent", "done"]
    due: dt.date
    note: str | None = None
    code: str = ""

STATES = ["open", "sent", "done"]
ROWS = [dict(customer=f"Customer {n}", amount=n * 1.5, copies=n % 7, paid=n % 3 == 0, status=STATES[n % 3],
             due="2026-07-01", note=None if n % 2 else "check", code=f"C{n:04}") for n in range(2000)]
call = nb.ScriptedModel.call
agent = nb.Agent(nb.ScriptedModel([call("pay_all", rows=ROWS), "All paid."]), name="banker")

@agent.tool(approval=True, editable=True)
def pay_all(rows: list[Bill]) -> str:
    "Pay all bills."
    global PAID
    PAID = rows
    return f"{len(rows)} paid"

run = agent.run("Pay all bills")
run
"""
CHECK = """[len(PAID), [(n, PAID[n].amount, PAID[n].paid, PAID[n].status, str(PAID[n].due), PAID[n].note) for n in (2, 3, 4)],
 [(each.customer, each.copies) for each in PAID[-2:]]]"""
FORM = """
from pydantic import BaseModel
import nbagent as nb

class Sample(BaseModel):
    place: str
    number: int
    value: float
    valid: bool

given = [dict(place=f"place {n}", number=n, value=n / 7, valid=n % 2 == 0) for n in range(10_000)]
answer = await nb.form(list[Sample], title="The samples", value=given)
"""
ANSWER = "print(len(answer), answer[0], answer[9_998])"
PASTED = "print(await nb.form(list[Sample], title='More samples'))"
WATCH = """() => {
  window.tasks = [];
  new PerformanceObserver((list) => list.getEntries().forEach((one) => tasks.push(Math.round(one.duration))))
    .observe({ entryTypes: ["longtask"] });
  const look = () => {
    if (document.querySelector("form.nba-form")) window.formAt ??= performance.now();
    if (document.querySelector("[role=grid] .t-cell")) window.cellAt = performance.now();
    else requestAnimationFrame(look);
  };
  look();
}"""
PASTE = """() => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", window.pasted);
  window.tasks?.splice(0);
  document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
}"""


class Grid:
    """The grid of a form, as a person uses it."""

    def __init__(self, form: Locator) -> None:
        self.form = form
        self.page: Page = form.page
        self.el = form.get_by_role("grid")
        self.status = form.locator(".t-line").get_by_role("status")
        self.about = form.locator(".s-about")

    def cell(self, row: int, column: int) -> Locator:
        """A cell by the number of its row, counted from 0."""
        return self.el.locator(f'[data-row="{row}"] [data-at="{column}"]')

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def paste(self, text: str) -> None:
        """Paste a text into the cell that has the focus."""
        self.page.evaluate("text => { window.pasted = text; }", text)
        self.page.evaluate(PASTE)


def test_c820_thousands_of_rows_are_edited_pasted_corrected_and_approved(server, open_page):
    """Two thousand rows are answered by keyboard, pointer and paste; the page draws few of them."""
    notebook = open_page(server.write("grid.ipynb", ROWS, CHECK))
    notebook.run_cell(0)
    card = Card(notebook.output(0))
    grid = Grid(card.wait_for_question("pay_all"))
    expect(grid.cell(0, 0)).to_have_text("Customer 0")
    expect(grid.el).to_have_attribute("aria-rowcount", "2001")
    assert grid.el.get_by_role("row").count() <= 100
    cells = notebook.page.locator(".jp-Notebook .jp-Cell").count()

    is_edited_by_keyboard(grid)
    is_found_sorted_and_undone(grid)
    is_edited_by_pointer_and_paste(grid)
    is_corrected(card, grid)
    assert (
        notebook.page.locator(".jp-Notebook .jp-Cell").count() == cells
    )  # no shortcut of Jupyter fired
    check_all_looks(notebook, notebook.output(0), "grid")
    notebook.page.bring_to_front()

    card.press("Approve 2,002 rows with changes")
    card.wait_until("completed")
    notebook.run_cell(1)
    expect(notebook.output(1)).to_contain_text(
        "[2002, [(2, 12.5, True, 'done', '2026-08-15', 'new\\ttext'), (3, 4.5, True, 'open', '2026-07-01', None), "
        "(4, 8.0, True, 'sent', '2026-07-01', None)], [('Ada \"x\"', 3), ('Bob', 4)]]"
    )
    expect(card.root).to_contain_text("approved with changes")
    assert notebook.errors == [], "\n".join(notebook.errors)


def test_c820_ten_thousand_rows_are_answered_and_changes_survive_a_reload(server, open_page):
    """A long list is there at once, in part; what was typed is there after a reload; an empty list takes a paste."""
    notebook = open_page(server.write("samples.ipynb", FORM, ANSWER, PASTED))
    page = notebook.page
    page.evaluate(WATCH)
    notebook.run_cell(0)
    grid = Grid(Card(notebook.output(0)).wait_for_question("The samples"))
    expect(grid.cell(0, 0)).to_have_text("place 0")
    print("from the form to its first cells:", page.evaluate("cellAt - formAt"), "ms")
    print("long tasks:", page.evaluate("tasks.splice(0)"))
    grid.cell(0, 1).focus()
    grid.page.keyboard.type("-7")
    grid.press("Enter", "Control+End", "Delete")
    expect(grid.cell(9_999, 1)).to_have_attribute("aria-invalid", "true")
    assert grid.el.get_by_role("row").count() <= 100
    with notebook.sending('"deleted":[9999]'):
        grid.form.get_by_role("button", name="Delete row").click()
    print("long tasks of edits:", page.evaluate("tasks.splice(0)"))
    notebook.save()
    notebook.reload()
    card = Card(notebook.output(0))
    grid = Grid(card.wait_for_question("The samples"))
    expect(grid.cell(0, 1)).to_have_text("-7")
    expect(grid.status).to_have_text("9,999 rows \u00b7 1 changed \u00b7 1 deleted")
    expect(grid.el).to_have_attribute("aria-rowcount", "10000")
    expect(grid.cell(0, 1)).to_have_attribute("aria-colindex", "3")
    page.evaluate(WATCH)
    grid.cell(0, 0).click()
    grid.paste("\n".join(f"town {n}\t{n + 1}\t{n / 3}\tyes" for n in range(10_000)))
    expect(grid.status).to_contain_text("cells pasted", timeout=30_000)
    print("long tasks of 10,000 pasted rows:", page.evaluate("tasks.splice(0)"))
    expect(grid.cell(9, 0)).to_have_text("town 9")
    grid.press("Control+z")
    expect(grid.cell(9, 0)).to_have_text("place 9")
    expect(grid.form.get_by_role("grid", name="The samples")).to_be_visible()
    card.press("Send")
    text = "9999 place='place 0' number=-7 value=0.0 valid=True place='place 9998' number=9998"
    expect(notebook.output(0)).to_contain_text("the first 20 of 9,999 rows")
    notebook.run_cell(1)
    expect(notebook.output(1)).to_contain_text(text)

    notebook.run_cell(2)
    grid = Grid(Card(notebook.output(2)).wait_for_question("More samples"))
    grid.form.get_by_text("No rows.").focus()
    grid.paste("Place\tNumber\tValue\tValid\nOslo\t1\t2.5\tyes\nRom\t2\t3\tno")
    expect(grid.cell(1, 0)).to_have_text("Rom")
    grid.press("Control+Enter")
    expect(notebook.output(2)).to_contain_text(
        "Sample(place='Rom', number=2, value=3.0, valid=False)"
    )
    assert notebook.errors == [], "\n".join(notebook.errors)


def is_edited_by_keyboard(grid: Grid) -> None:
    """Type into cells of each kind with keys alone: number, truth value, date, text, and a cell left as it was."""
    grid.cell(0, 0).focus()
    grid.press("ArrowDown", "ArrowDown", "ArrowRight")
    expect(grid.cell(2, 1)).to_be_focused()
    grid.page.keyboard.type("12.5")
    grid.press("Tab", "ArrowRight", "y", "End", "ArrowLeft", "F2", "End")
    expect(grid.cell(2, 1)).to_have_text("12.5")
    expect(grid.cell(2, 3)).to_have_text("Yes")
    grid.page.keyboard.type(" more")
    grid.press("Escape", "Home", "ArrowRight", "Enter")
    expect(grid.cell(2, 6)).to_have_text("check")
    grid.page.keyboard.type("7")
    grid.press("Escape")
    expect(grid.cell(2, 1)).to_have_text("12.5")
    expect(grid.about).to_have_text("was: 3.0")
    grid.press(
        "a", "Escape", "x", "Escape", "d", "d", "Escape"
    )  # in Jupyter, A adds a cell, X and D D delete one
    grid.press("PageDown")
    expect(grid.cell(11, 1)).to_be_focused()
    grid.press("Control+End")
    expect(grid.cell(1999, 1)).to_be_focused()
    assert grid.el.get_by_role("row").count() <= 100
    grid.press("Control+Home", "Home")
    expect(grid.cell(0, 0)).to_be_focused()


def is_found_sorted_and_undone(grid: Grid) -> None:
    """Find rows, sort them, show only changed ones, delete and restore rows, undo."""
    find = grid.form.get_by_label("Find rows")
    find.fill("customer 19")
    expect(grid.status).to_have_text("111 of 2,000 rows · 2 changed")
    find.fill("")
    expect(grid.status).to_have_text("2,000 rows · 2 changed")
    head = grid.form.get_by_role("columnheader", name="Amount")
    head.get_by_role("button").click()
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(grid.el.locator(".t-space .t-row").first).to_have_attribute("data-row", "1999")
    head.get_by_role("button").click()
    grid.cell(3, 0).click()
    grid.press("Shift+ArrowDown")
    grid.form.get_by_role("button", name="Delete 2 rows").click()
    expect(grid.status).to_have_text("1,998 rows · 2 changed · 2 deleted")
    grid.form.get_by_role("button", name="Changed only").click()
    expect(grid.el).to_have_attribute("aria-rowcount", "4")
    grid.cell(3, 0).click()
    grid.form.get_by_role("button", name="Restore row").click()
    expect(grid.status).to_contain_text("1 deleted")
    grid.form.get_by_role("button", name="Changed only").click()
    grid.cell(0, 0).click()
    grid.press("Control+z", "Control+z")
    expect(grid.status).to_have_text("2,000 rows · 2 changed")


def is_edited_by_pointer_and_paste(grid: Grid) -> None:
    """Pick an option, a date and a text with the pointer; paste a block; add rows by a paste beyond the end."""
    grid.cell(2, 4).dblclick()
    grid.page.get_by_label("Status, row 3").select_option("done")
    grid.press("Enter")
    grid.cell(2, 5).dblclick()
    grid.page.get_by_label("Due, row 3").fill("2026-08-15")
    grid.cell(4, 6).click()
    expect(grid.cell(2, 5)).to_have_text("2026-08-15")
    grid.press("Delete")
    expect(grid.cell(4, 6)).to_have_text("")
    grid.cell(4, 1).click()
    grid.paste("8.0\r\n")
    grid.cell(4, 3).click()
    grid.paste("yes")
    grid.cell(2, 6).click()
    grid.paste('"new\ttext"')
    expect(grid.cell(2, 6)).to_have_text("new\ttext", use_inner_text=False)
    grid.press("Control+End", "Home")
    expect(grid.cell(1999, 0)).to_be_focused()
    line = "\t".join
    first = line(["Customer 1999", "2998.5", "4", "No", "sent", "2026-07-01", "", "C1999"])
    ada = line(['"Ada ""x"""', "12,5", "3", "no", "Open", "2026-09-01", "", ""])
    bob = line(["Bob", "5", "4", "no", "gone", "2026-09-01", "", ""])
    grid.paste("\n".join([first, ada, bob, ""]))
    expect(grid.status).to_contain_text("2 added")
    grid.form.get_by_role("button", name="Delete row").click()
    expect(grid.status).to_contain_text("1 deleted")
    grid.cell(1998, 0).click()
    grid.press("Control+z")
    expect(grid.status).not_to_contain_text("deleted")


def is_corrected(card: Card, grid: Grid) -> None:
    """Errors of the page stop the answer at their cells; then the kernel's errors are at theirs."""
    card.press("Approve 2,002 rows with changes")
    expect(grid.form.locator(".nba-errors")).to_contain_text("2 cells to correct")
    expect(grid.cell(2000, 1)).to_be_focused()
    expect(grid.about).to_contain_text("no commas")
    grid.page.keyboard.type("-12.5")
    grid.press("Enter")
    grid.form.get_by_role("button", name="Next error (1)").click()
    expect(grid.cell(2001, 4)).to_be_focused()
    expect(grid.about).to_contain_text("not one of the options")
    grid.press("o")
    grid.press("Enter")
    card.press("Approve 2,002 rows with changes")
    expect(grid.cell(2000, 1)).to_be_focused()
    expect(grid.cell(2000, 1)).to_have_attribute("aria-invalid", "true")
    expect(grid.about).to_contain_text("Must be at least 0.")
    grid.page.keyboard.type("12.5")
    grid.press("Enter")
    expect(grid.form.get_by_role("button", name="Next error")).to_be_hidden()

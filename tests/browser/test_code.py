"""A model's code in JupyterLab: shown, changed, run with the cells' variables, copied and stopped."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.card import Card

SETUP = """
import pandas as pd
import nbagent as nb

sales = pd.DataFrame({"month": ["jan", "feb", "mar"], "amount": [3, 5, 8]})
S = nb.ScriptedModel
CODE = '''import matplotlib.pyplot as plt

# what was sold, and how it grew
sales["growth"] = sales.amount.pct_change().fillna(0)
fig, ax = plt.subplots(figsize=(4, 2))
ax.bar(sales.month, sales["growth"])
print("grew every month:", (sales.growth[1:] > 0).all())
sales'''
turns = [S.call("run_python", code=code) for code in (CODE, "sales['growht']", "while True: pass")]
agent = nb.Agent(S([*turns, "It grew."]), name="analyst", tools=nb.notebook_tools(sales, code=True))
"""
COPIED = "() => navigator.clipboard.readText()"
RUN = "run = agent.run('How did sales grow?')\nrun"


def test_code_is_shown_changed_run_copied_and_stopped(server, open_lab):  # noqa: PLR0915 - one journey
    """All in one card, by pointer and by keyboard."""
    notebook = open_lab(server.write("code.ipynb", SETUP, RUN))
    page = notebook.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook.run_cell(0)
    notebook.run_cell(1)
    card = Card(notebook.output(1))
    card.wait_for_question()
    expect(card.root.locator(".nba-preview li").first).to_be_visible()
    notebook.shot("code-asked", card.root)
    notebook.dark()
    notebook.shot("code-asked-dark", card.root)
    notebook.light()
    page.set_viewport_size({"width": 640, "height": 900})
    notebook.shot("code-asked-narrow", card.root)
    page.set_viewport_size({"width": 1100, "height": 900})
    card.press("Approve")
    expect(card.root.locator(".nba-call")).to_be_visible()
    card.wait_for_question()
    expect(card.root.locator(".nba-preview li").first).to_be_visible()
    notebook.shot("code-ran", card.root)
    card.root.get_by_label("Code").focus()
    notebook.shot("code-focus", card.root)
    page.keyboard.press("Control+A")
    page.keyboard.type("sales['growth']\nsales['grew']")
    expect(card.root.locator(".nba-diff")).to_be_visible()
    notebook.shot("code-changed", card.root)
    page.keyboard.press("Control+Enter")
    failed = card.root.locator(".nba-call[data-state=failed]")
    expect(failed).to_contain_text("KeyError: 'grew'")
    expect(failed.locator("summary").first).not_to_contain_text("CodeError")
    failed.locator("summary").first.click()
    copy = card.root.locator(".nba-copy")
    notebook.shot("code-failed", failed)  # it scrolls, and what comes under the pointer is copied
    failed.locator(".nba-input").hover()
    expect(copy).to_have_accessible_name("Copy as a cell")
    copy.click()
    wait_until_copied(page, "sales['growth']\nsales['grew']")
    card.root.locator(".nba-call").first.locator(".nba-input pre").hover()
    expect(copy).to_have_accessible_name("Copy as a cell")
    copy.click()
    wait_until_copied(page, "import matplotlib.pyplot as plt\n\n# what was")
    card.press("More ways to approve")
    menu = card.root.get_by_role("menuitem")
    expect(menu).to_have_count(3)
    assert sorted(each.split("\n")[0] for each in menu.all_inner_texts()) == [
        "Always allow run_python with this input, in this run",
        "Always allow run_python, in this run",
        "Answer instead…",
    ]
    notebook.shot("code-menu", card.root)
    page.keyboard.press("Escape")
    card.press("Approve")
    expect(card.root).to_have_attribute("data-status", "running")
    notebook.interrupt_kernel()
    card.wait_until("completed")
    expect(card.root).to_contain_text("A person stopped it, in line 1.")
    notebook.shot("code-stopped", card.root)
    assert notebook.errors == [], "\n".join(notebook.errors)


def wait_until_copied(page, beginning):
    """Wait until the clipboard has a text with this beginning, as a page writes it a moment after the press."""
    while not page.evaluate(COPIED).startswith(beginning):
        page.wait_for_timeout(50)


LONG = """
import nbagent as nb
code = "\\n".join(f"step_{n} = {n}  # number {n} of forty" for n in range(40))
model = nb.ScriptedModel([nb.ScriptedModel.call("run_python", code=code), "Done."])
run = nb.Agent(model, name="analyst", tools=nb.notebook_tools(code=True)).run("Count")
run
"""
WHOLE = "el => el.clientHeight >= el.scrollHeight"


def test_long_code_is_shown_in_full_before_it_can_be_approved(server, open_lab):
    """The code has colors, and Approve waits until all of it was shown."""
    notebook = open_lab(server.write("long-code.ipynb", LONG))
    notebook.run_cell(0)
    card = Card(notebook.output(0))
    form = card.wait_for_question()
    expect(card.button("Approve")).to_be_disabled()
    notebook.shot("code-long", card.root)
    card.button("Show all 40 lines").click()
    text, tint = form.get_by_label("Code"), form.locator(".nba-tint")
    assert text.evaluate(WHOLE)
    assert tint.evaluate(WHOLE)
    assert tint.locator("pre").evaluate(WHOLE)
    assert tint.inner_text().rstrip() == text.input_value()
    notebook.shot("code-long-whole", card.root)
    card.press("Approve")
    card.wait_until("completed")
    assert notebook.errors == [], "\n".join(notebook.errors)


ENDLESS = """
import nbagent as nb
code = '''import time
for n in range(10_000):
    print("epoch", n)
    time.sleep(0.05)
'''
model = nb.ScriptedModel([nb.ScriptedModel.call("run_python", code=code), "never said"])
run = nb.Agent(model, name="analyst", tools=nb.notebook_tools(code=True)).run("Train")
run
"""


def test_c690_text_of_running_code_is_shown_and_stop_in_the_card_ends_it(server, open_lab):
    """The kernel hears the press although the code keeps its main thread, and runs the next cell."""
    notebook = open_lab(server.write("endless-code.ipynb", ENDLESS, "print(run.status)"))
    notebook.run_cell(0)
    card = Card(notebook.output(0))
    card.wait_for_question()
    card.press("Approve")
    expect(card.root).to_contain_text("epoch 5")
    notebook.shot("code-prints", card.root)
    card.press("Stop")
    card.wait_until("cancelled")
    notebook.shot("code-ended", card.root)
    notebook.run_cell(1)
    expect(notebook.output(1)).to_contain_text("cancelled")
    assert notebook.errors == [], "\n".join(notebook.errors)

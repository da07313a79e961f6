"""Charts and widgets of a tool in JupyterLab: below the live card, then as outputs of the cell."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.browser.card import Card

SETUP = """
import threading
import ipywidgets
import matplotlib.pyplot as plt
import pandas as pd
import nbagent as nb
from IPython.display import display

S = nb.ScriptedModel
go = threading.Event()
slider = ipywidgets.IntSlider(value=3, description="months")

SPEC = {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", "title": "Sales",
        "width": 300, "height": 120,
        "data": {"values": [{"month": m, "sales": n} for m, n in zip("abcdef", [3, 5, 2, 8, 6, 9])]},
        "mark": "bar",
        "encoding": {"x": {"field": "month"}, "y": {"field": "sales", "type": "quantitative"}}}

agent = nb.Agent(S([[S.call("plot"), S.call("pick"), S.call("curve")], "Sales rose in **d**."]), name="analyst")

@agent.tool
def plot() -> str:
    "Draw."
    display({"application/vnd.vegalite.v6.json": SPEC, "text/plain": "alt.Chart(...)"}, raw=True)
    return "six months"

@agent.tool
def pick():
    "A widget."
    return slider

@agent.tool
def curve() -> str:
    "A picture, then wait."
    plt.plot([3, 1, 2])
    plt.title("on white")
    plt.show()
    go.wait(60)
    return "drawn"
"""
RUN = "run = agent.run('Show sales')\nrun"
VEGA = "canvas.marks"


def test_c236_a_chart_is_below_the_live_card_and_stays_in_the_cell(server, open_lab):
    """Jupyter draws the chart during the run and after the card became static; the saved file contains it."""
    name = server.write("charts.ipynb", SETUP, RUN, "go.set()", "print('moved to', slider.value)")
    notebook = open_lab(name)
    notebook.run_cell(0)
    notebook.run_cell(1)
    card, output = Card(notebook.output(1)), notebook.output(1)
    expect(output.locator(VEGA)).to_be_visible()
    expect(output.locator(".widget-slider")).to_be_visible()
    row = card.root.locator("details.nba-call").first
    expect(row).to_contain_text("Vega chart “Sales”: bar; x: month, y: sales; 6 rows")
    expect(card.root.locator("img.nba-rich")).to_be_visible()
    notebook.shot("charts-live", output)
    notebook.dark()
    notebook.shot("charts-live-dark", output)
    notebook.light()
    notebook.run_cell(2)
    card.wait_until("completed")
    notebook.turn_to(3)
    expect(output.locator(f"{VEGA}:not(.jupyter-widgets *)")).to_be_visible()
    expect(card.button("Follow up…")).to_be_visible()
    handle = output.locator(".widget-slider .noUi-handle")
    handle.focus()
    notebook.page.keyboard.press("ArrowRight")
    notebook.run_cell(3)
    expect(notebook.output(3)).to_contain_text("moved to 4")
    notebook.shot("charts-static", output)
    notebook.save("application/vnd.vegalite.v5+json")
    saved = json.loads((server.root / name).read_text())
    mimes = [sorted(each["data"]) for each in saved["cells"][1]["outputs"]]
    assert mimes[0] == ["text/html", "text/plain"]
    assert "application/vnd.vegalite.v5+json" in mimes[1]
    assert notebook.errors == [], "\n".join(notebook.errors)


PLOTLY = """
import plotly.graph_objects as go_
import altair as alt

charts = nb.Agent(S([[S.call("bars"), S.call("dots")], "Two charts."]), name="analyst")

@charts.tool
def bars():
    "Plotly."
    return go_.Figure(go_.Bar(x=list("abc"), y=[1, 3, 2], name="2024"), {"title": {"text": "Sales"}, "height": 260})

@charts.tool
def dots() -> str:
    "Altair."
    display(alt.Chart(pd.DataFrame({"a": [1, 2, 3], "b": [3, 1, 2]})).mark_point().encode(x="a", y="b"))
    return "shown"
"""


def test_plotly_and_altair_draw_as_in_any_cell(server, open_lab):
    """Charts displayed in a tool reach Jupyter's renderers as data, and the model as words."""
    ask = "more = charts.run('Both')\nmore"
    told = "await more\nprint([e.output for e in more.journal if e.type == 'tool_finished'])"
    notebook = open_lab(server.write("libraries.ipynb", SETUP, PLOTLY, ask, told))
    notebook.run_all()
    output = notebook.output(2)
    Card(output).wait_until("completed")
    expect(output.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(output.locator(VEGA)).to_be_visible()
    expect(output).to_contain_text("Plotly figure “Sales”: bar “2024” (3 points)")
    expect(output).to_contain_text("Vega chart: point; x: a, y: b; 3 rows")
    notebook.shot("charts-plotly", output)
    expect(notebook.output(3)).to_contain_text("Plotly figure “Sales”")
    assert notebook.errors == [], "\n".join(notebook.errors)

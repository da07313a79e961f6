"""What a mouse meets: each control of a card must be on top at its centre and near its edges."""

from __future__ import annotations

from playwright.sync_api import Locator, Page

SIZES = [(width // zoom, 900 // zoom) for zoom in (1, 2) for width in (480, 800, 1400)]
"""Windows of 480, 800 and 1,400 pixels, at 100 and 200 % zoom, in CSS pixels."""
MISSES = """async (root) => {
  const frame = () => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
  const controls = [...root.querySelectorAll("input, textarea, select, button, summary, a[href], label")].filter((el) =>
    el.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !el.closest("[inert]") &&
    !el.closest(".nba-sr, .nba-copies") && el.getBoundingClientRect().width > 1 && el.getBoundingClientRect().height > 1);
  const visiblePart = (el) => { // of the panels that scroll it
    const part = { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
    for (let up = el.parentElement; up && up !== document.body; up = up.parentElement) {
      if (getComputedStyle(up).overflow === "visible") continue;
      const box = up.getBoundingClientRect();
      for (const side of ["left", "top"]) part[side] = Math.max(part[side], box[side]);
      for (const side of ["right", "bottom"]) part[side] = Math.min(part[side], box[side]);
    }
    return part;
  };
  const isCentral = (el) => { // as if scrolled to
    const { left, top, right, bottom } = visiblePart(el);
    const box = el.getBoundingClientRect();
    const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    return x > left && x < right && Math.abs(y - (top + bottom) / 2) < (bottom - top) / 6;
  };
  const misses = [];
  const meet = (el) => {
    const seen = visiblePart(el);
    const { left, top, right, bottom } = el.getBoundingClientRect();
    const [x, y] = [(left + right) / 2, (top + bottom) / 2];
    const near = 3;
    const points = [[x, y], [x, top + near], [x, bottom - near], [left + near, y], [right - near, y]];
    for (const [px, py] of points) {
      if (px < seen.left || py < seen.top || px >= seen.right || py >= seen.bottom) continue;
      const met = el.getRootNode().elementFromPoint(px, py); // marimo draws in a shadow root
      const isOwn = met && (el.contains(met) || met.closest("label")?.control === el || met.control === el
        || (el.matches("label") && met.contains(el) && getComputedStyle(el).display === "inline"));
      if (!isOwn) misses.push(`${el.tagName} ${el.textContent || el.name || el.id} at ${Math.round(px)},${Math.round(py)}`
        + ` meets ${met?.tagName} ${met?.className} ${(met?.textContent ?? "").slice(0, 40)}`);
    }
  };
  const left = new Set(controls);
  for (const el of left) {
    for (let was = null, at = 0; at < 5; at++) { // JupyterLab moves its cells after a scroll
      el.scrollIntoView({ block: "center", behavior: "instant" });
      const { top } = el.getBoundingClientRect();
      if (top === was) break;
      was = top;
      await frame();
    }
    for (const one of [el, ...[...left].filter(isCentral)]) {
      if (left.delete(one)) meet(one);
    }
  }
  return [controls.length, misses];
}"""


def assert_hit(page: Page, root: Locator, *, fewest: int) -> None:
    """Assert, for each size of the window, that a mouse meets each of at least ``fewest`` controls in ``root``."""
    before = page.viewport_size
    missed = {}
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(300)  # the host lays out its panels
        count, misses = root.evaluate(MISSES)
        assert count >= fewest, f"{count} controls at {width} px"
        if misses:
            missed[width, height] = misses
    if before is not None:
        page.set_viewport_size(before)
    assert missed == {}, missed

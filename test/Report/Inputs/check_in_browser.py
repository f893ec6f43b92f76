# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_in_browser.py PAGE.html REPORT.json [PICTURE.png]: looks at the page of a report
in a browser, as people do: in a wide window and in a narrow one, on light ground and on
dark. Everything in the report has to be seen there, and nothing may run or be loaded."""

import sys

from browser import open_browser
from check_page import read_report, visible

WIDE, NARROW = (1280, 900), (390, 800)

# All that is asked of the page at once: every call of a page of ten thousand takes time.
FACTS = """
const box = e => { const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; };
const texts = (e, what) => [...e.querySelectorAll(what)].map(x => x.textContent);
return {
  buckets: [...document.querySelectorAll("details")].map(d => ({
    name: d.querySelector("summary span").textContent,
    hook: d.querySelector("td + td").textContent,
    gradients: [...d.querySelectorAll("table")[1].querySelectorAll("tr")].slice(1).map(
      row => texts(row, "td")),
    bar: box(d.querySelector(".bar")),
  })),
  lanes: [...document.querySelectorAll(".lane")].map(l => ({
    name: l.querySelector("text").textContent,
    section: l.closest("section").querySelector("h2").textContent,
    place: box(l.querySelector(".t")),
    boxes: [...l.querySelectorAll(".b")].map(b => ({
      title: b.querySelector("title").textContent, place: box(b),
      fill: getComputedStyle(b).fill, opacity: getComputedStyle(b).fillOpacity,
      stroke: getComputedStyle(b).stroke})),
  })),
  tables: texts(document, "td"),
  scripts: document.querySelectorAll("script,iframe,object,embed,img,link,base,a").length,
  handlers: [...document.querySelectorAll("*")].filter(
    e => [...e.attributes].some(a => a.name.startsWith("on"))).length,
};
"""

SIZE = """
const root = document.documentElement;
return [root.scrollWidth, root.clientWidth, root.scrollHeight, root.clientHeight];
"""

# The contrast of text and ground, by the formula of WCAG 2.
CONTRAST = """
const luminance = e => {
  const c = e.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255).map(
    x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
};
const ground = e => {
  for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor;
    if (!c.startsWith("rgba(")) return luminance(c);
  }
};
const found = {};
for (const what of ["body", "h1", "h2", "p.dim", ".tiles b", ".tiles span", "summary span", "td", "th"]) {
  const e = document.querySelector(what);
  if (!e) continue;
  const [a, b] = [luminance(getComputedStyle(e).color), ground(e)].sort((x, y) => y - x);
  found[what] = (a + 0.05) / (b + 0.05);
}
return [luminance(getComputedStyle(document.body).backgroundColor), found];
"""

# Opens a bucket, scrolls to its last gradient, and says what is seen in its place. What
# is not in sight yet must not be taken for much more than it is: scroll bars would jump.
OPEN = """
const details = document.querySelectorAll("details")[%d];
details.open = true;
const table = details.querySelectorAll("table")[1];
const gradients = [...table.querySelectorAll("tr")];
const height = table.getBoundingClientRect().height;
const last = gradients.at(-1);
last.scrollIntoView({block: "center"});
last.scrollIntoView({block: "center"});  // what was laid out now is of other heights
const b = last.getBoundingClientRect();
const seen = document.elementFromPoint(b.left + 4, b.top + b.height / 2);
return [height / gradients.length, last.contains(seen), b.width, b.height];
"""


def check_names(facts, report):
    assert len(facts["buckets"]) == len(report["buckets"])
    for shown, bucket in zip(facts["buckets"], report["buckets"]):
        assert shown["name"] == visible(bucket["name"])
        assert shown["hook"] == visible(bucket["hook"])
        expected = [(visible(g["name"]), visible(g["source"])) for g in bucket["gradients"]]
        assert [(g[0], g[3]) for g in shown["gradients"]] == expected
        assert shown["bar"][2] > 50 and shown["bar"][3] > 5, shown["bar"]
    cells = set(facts["tables"])
    for state in report["states"]:
        assert visible(state["name"]) in cells, state["name"]


def check_lanes(facts, report):
    """Boxes of time lines, of the schedule and of memory are seen, and lie in their lanes."""
    lanes = {}
    for lane in facts["lanes"]:
        lanes.setdefault(lane["section"], []).append(lane)
        left, top, width, height = lane["place"]
        assert width > 200 and height > 10 and lane["boxes"], lane
        for box in lane["boxes"]:
            x, y, w, h = box["place"]
            assert w >= 2 and h > 5, box
            # A box has at least two pixels, which may reach over the end of its lane.
            assert left - 1 <= x and x + w <= left + width + 12, (box, lane["place"])
            assert top <= y and y + h <= top + height, (box, lane["place"])
            is_filled = box["fill"].startswith("rgb(") and float(box["opacity"]) >= 0.4
            assert is_filled or box["stroke"] != "none", box
    measured = report.get("measured")
    assert ("As measured" in lanes) == bool(measured)
    if measured:
        of_steps = [lane for lane in lanes["As measured"] if lane["name"].endswith(", step")]
        assert len(of_steps) == min(8, measured["world_size"])
        titles = [box["title"] for lane in lanes["As measured"] for box in lane["boxes"]]
        for collective in measured["collectives"]:
            assert any(title.startswith(collective["name"] + ": ") for title in titles), collective
        assert max(box["place"][2] for lane in of_steps for box in lane["boxes"]) > 300
    return sum(len(lane["boxes"]) for lane in facts["lanes"])


def check_page(browser, page, report, picture):
    browser.show(*WIDE)
    browser.load(page)
    assert not browser.complaints(), browser.complaints()
    facts = browser.evaluate(FACTS)
    assert facts["scripts"] == 0 and facts["handlers"] == 0
    check_names(facts, report)
    boxes = check_lanes(facts, report)
    size = browser.evaluate(SIZE)
    assert not report["buckets"] or size[2] > size[3], size
    if picture:
        browser.picture(picture)

    luminances = []
    for scheme in ("light", "dark"):
        for window in (WIDE, NARROW):
            browser.show(*window, scheme)
            luminance, contrasts = browser.evaluate(CONTRAST)
            luminances.append(luminance)
            assert min(contrasts.values()) >= 4.5, (scheme, contrasts)
            size = browser.evaluate(SIZE)
            assert size[0] <= size[1], (window, size)
    assert min(luminances[:2]) > 0.8 and max(luminances[2:]) < 0.1, luminances

    browser.show(*WIDE)
    for number in {0, len(report["buckets"]) - 1} if report["buckets"] else ():
        height, is_seen, *size = browser.evaluate(OPEN % number)
        assert is_seen and min(size) > 10, (number, size)
        assert height < 60, (number, height)
    return boxes


def main():
    page, report = sys.argv[1:3]
    report = read_report(report)
    picture = sys.argv[3] if len(sys.argv) > 3 else None
    with open_browser() as browser:
        # With the page's policy, and without: then nothing else keeps scripts from running.
        for is_free in (False, True):
            browser.call("Page.setBypassCSP", enabled=is_free)
            boxes = check_page(browser, page, report, picture)
            assert not browser.complaints(), browser.complaints()
    gradients = sum(len(bucket["gradients"]) for bucket in report["buckets"])
    print(f"{len(report['buckets'])} buckets, {gradients} gradients, {boxes} boxes are seen")


if __name__ == "__main__":
    main()

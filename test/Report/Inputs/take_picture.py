# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""take_picture.py PAGE.html PICTURE.png: the page of a report as a browser shows it, with
its first bucket open, down to the end of what was measured (that of docs/reports.md)."""

import sys

from browser import open_browser

WIDTH = 1180
OPEN = """
document.querySelector("details").open = true;
for (const animation of document.getAnimations()) animation.finish();
"""
BOTTOM = """
const measured = [...document.querySelectorAll("section")].find(
  s => s.querySelector("h2").textContent === "As measured");
return (measured?.querySelector(".card") ?? document.body).getBoundingClientRect().bottom;
"""


def main():
    page, picture = sys.argv[1:]
    with open_browser() as browser:
        browser.show(WIDTH, 900)
        browser.load(page)
        browser.evaluate(OPEN)
        browser.picture(picture)  # lays out what has been opened
        browser.show(WIDTH, round(browser.evaluate(BOTTOM)) + 14)
        browser.picture(picture)


if __name__ == "__main__":
    main()

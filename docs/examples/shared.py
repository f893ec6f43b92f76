# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What several examples have: a text to learn, plots of losses, tables in pages."""

import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

DOCS = pathlib.Path(__file__).resolve().parents[1]
TEXT_BYTES = 150_000


def read_text():
    """The bytes of the docs, in the order of the files' names."""
    pages = [path.read_bytes() for path in sorted(DOCS.glob("*.md"))]
    return b"\n".join(pages)[:TEXT_BYTES]


def make_figure(rows, columns, height=4):
    """A figure whose SVG is the same in each run, and its axes."""
    matplotlib.rcParams.update({"svg.hashsalt": "ddphook", "svg.fonttype": "none"})
    size = (5 * columns, height * rows)
    return pyplot.subplots(rows, columns, figsize=size, squeeze=False)


def save_figure(figure, path):
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    figure.tight_layout()
    # Nothing in the file that differs from run to run.
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def draw_losses(axes, losses, title, seconds=None):
    """Losses over steps, or over time if `seconds` has the time of a step by name: a line
    for each name, the first one black."""
    for number, (name, values) in enumerate(losses.items()):
        look = {"color": f"C{number - 1}"} if number else {"color": "black", "lw": 2.5}
        times = [(seconds or {}).get(name, 1) * (i + 1) for i in range(len(values))]
        axes.plot(times, values, label=name, **look)
    axes.set(xlabel="seconds" if seconds else "step", ylabel="loss", title=title)
    axes.legend(fontsize="small")


def write_into(page, name, script, lines):
    """Puts lines into a page, between two comments that say what they are and
    which script, by its path from the project's root, writes them."""
    begin = f"<!-- {name}, written by {script} -->\n"
    end = f"<!-- end of {name} -->\n"
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"error: expected one place for '{name}' in {page}")
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    page.write_text(head + begin + "\n".join(lines) + "\n" + end + tail)

# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_page.py PAGE.html REPORT.json: checks the page of a report.

An XML parser accepts no text that was not escaped, and an HTML parser reads as a
browser does. Both have to see the same elements and the same text, none of which may
run or load anything, and every name of the report as it is.
"""

import html.parser
import json
import re
import sys
import xml.etree.ElementTree

VOID = {"meta"}
TAGS = set(
    "html head meta title style body main h1 h2 p div span b i section details summary "
    "table tr th td svg g rect text".split()
)
ATTRIBUTES = set(
    "xmlns lang charset http-equiv content name class style x y width height rx "
    "text-anchor".split()
)


class Reader(html.parser.HTMLParser):
    """The elements of a page in their order, and their text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.seen, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in VOID, tag  # a browser would leave the element open
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open:
            self.seen.append(("", {}, data))


def walk_xml(element, seen):
    tag = element.tag.rpartition("}")[2]
    seen.append((tag, element.attrib, ""))
    if element.text:
        seen.append(("", {}, element.text))
    for child in element:
        walk_xml(child, seen)
        if child.tail:
            seen.append(("", {}, child.tail))


def visible(name):
    """A name as a page shows it: characters that steer a terminal as pictures."""
    return re.sub(r"[\x00-\x1f]", lambda c: chr(0x2400 + ord(c[0])), name).replace("\x7f", "␡")


def read_report(path):
    """Returns the buckets of a report with the sources of their gradients, its states, and
    its measurements."""
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    origins = {bucket["name"]: bucket for bucket in report["program"]["buckets"]}
    buckets = []
    for bucket in report["plan"]["buckets"]:
        origin = origins[bucket["name"]]
        gradients = [
            {"name": name, "source": origin["gradients"].get(name, origin["source"])}
            for name in bucket["gradients"]
        ]
        buckets.append({"name": bucket["name"], "hook": bucket["hook"], "gradients": gradients})
    return {
        **{"buckets": buckets, "states": report["plan"]["states"]},
        "measured": report.get("measured"),
    }


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    report = read_report(sys.argv[2])
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open, reader.open
    from_xml = []
    walk_xml(xml.etree.ElementTree.fromstring(text), from_xml)
    elements = [(tag, a) for tag, a, _ in reader.seen if tag]
    for _, attributes in elements:
        attributes.pop("xmlns", None)
    assert elements == [(tag, a) for tag, a, _ in from_xml if tag]
    words = "".join(data for tag, _, data in reader.seen if not tag)
    assert words.strip() == "".join(data for tag, _, data in from_xml if not tag).strip()

    for tag, attributes in elements:
        assert tag in TAGS, tag
        assert set(attributes) <= ATTRIBUTES, attributes
    policy = [a for _, a in elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy[0]["content"].startswith("default-src 'none'")
    assert "url(" not in text and "@import" not in text

    cells = [data for tag, _, data in reader.seen if not tag]
    shown = set(cells)
    for bucket in report["buckets"]:
        assert visible(bucket["name"]) in shown, bucket["name"]
        assert bucket["hook"] in shown, bucket["hook"]
        for gradient in bucket["gradients"]:
            assert visible(gradient["name"]) in shown, gradient["name"]
            assert not gradient["source"] or visible(gradient["source"]) in shown
    for state in report["states"]:
        assert visible(state["name"]) in shown, state["name"]
    numGradients = sum(len(bucket["gradients"]) for bucket in report["buckets"])
    print(f"{len(report['buckets'])} buckets, {numGradients} gradients, as they should be")
    print("small" if len(text) < 5_000_000 else f"{len(text)} bytes")


if __name__ == "__main__":
    main()

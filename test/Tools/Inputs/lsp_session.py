# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# An editor's session with ddphook-lsp-server: lsp_session.py SERVER FILE. Opens
# FILE, prints its diagnostics, replaces what is wrong, and asks about the
# operations. Every answer that is printed is checked by lsp-server.test.

import itertools
import json
import signal
import subprocess
import sys

signal.alarm(300)  # A server that does not answer is a failure, too.
server = subprocess.Popen(
    [sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
)
path = sys.argv[2]
uri = "file://" + path
with open(path, encoding="utf-8") as file:
    text = file.read()


def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    server.stdin.flush()


def receive():
    length = 0
    while (line := server.stdout.readline().strip()) or not length:
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        elif not line and server.poll() is not None:
            sys.exit("the server ended: " + server.stderr.read().decode())
    return json.loads(server.stdout.read(length))


numbers = itertools.count(1)


def request(method, parameters):
    number = next(numbers)
    send({"id": number, "method": method, "params": parameters})
    while (answer := receive()).get("id") != number:
        pass
    return answer["result"]


def notify(method, parameters):
    send({"method": method, "params": parameters})


def diagnostics(version):
    """Those of a version of the file, which the server sends by itself."""
    while True:
        message = receive()
        if message.get("method") != "textDocument/publishDiagnostics":
            continue
        if message["params"].get("version", version) == version:
            return message["params"]["diagnostics"]


def place(word, number=1):
    """The position of the number-th occurrence of a word."""
    at = -1
    for _ in range(number):
        at = text.index(word, at + 1)
    before = text[:at]
    return {
        "textDocument": {"uri": uri},
        "position": {
            "line": before.count("\n"),
            "character": at - before.rfind("\n") - 1,
        },
    }


def show(title, version):
    found = diagnostics(version)
    print(f"{title}: {len(found)} diagnostics")
    for one in found:
        print(f"  line {one['range']['start']['line'] + 1}: {one['message']}")


capabilities = request("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
print("hover:", capabilities["capabilities"]["hoverProvider"])
notify("initialized", {})

notify(
    "textDocument/didOpen",
    {"textDocument": {"uri": uri, "languageId": "mlir", "version": 1, "text": text}},
)
show("opened", 1)

text = text.replace("on @nowhere", "on @dp")
notify(
    "textDocument/didChange",
    {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": text}]},
)
show("mended", 2)

print("hover on ddp.all_reduce:")
print(request("textDocument/hover", place("ddp.all_reduce"))["contents"]["value"])
for name, number in (("%g", 2), ("@dp", 2)):
    found = request("textDocument/definition", place(name, number))
    lines = [one["range"]["start"]["line"] + 1 for one in found]
    print(f"{name} is defined in line {lines}")
text = text.replace("  return", "  ddp.")
notify(
    "textDocument/didChange",
    {"textDocument": {"uri": uri, "version": 3}, "contentChanges": [{"text": text}]},
)
# Where the cursor is behind "ddp.", in front of what was returned.
offered = request("textDocument/completion", place(" %r :"))["items"]
print("completion of ddp.:", *sorted(item["label"] for item in offered))
request("shutdown", None)
notify("exit", None)
print("exit status", server.wait(timeout=60))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints the code blocks of a page that are in a language, an empty line between
# them: blocks.py LANGUAGE PAGE.

import re
import sys

language, path = sys.argv[1:]
with open(path, encoding="utf-8") as page:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page.read(), re.M | re.S)
if not blocks:
    sys.exit(f"error: {path} has no block in {language}")
print("\n".join(blocks), end="")

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A format of lit for build directories that lack some of the tools.

It is a module because lit sends the format to other processes.
"""

import re

import lit.formats
import lit.Test


class BuiltToolsTest(lit.formats.ShTest):
    """A shell test that is unsupported if it runs a tool that has not been built.

    ``missing`` maps such tools to regular expressions that find them in RUN lines.
    """

    def __init__(self, execute_external, missing):
        super().__init__(execute_external)
        self.missing = missing

    def execute(self, test, lit_config):
        with open(test.getSourcePath(), encoding="utf-8", errors="replace") as file:
            commands = "".join(line for line in file if "RUN:" in line)
        for tool, pattern in self.missing.items():
            if re.search(pattern, commands):
                return lit.Test.Result(lit.Test.UNSUPPORTED, f"{tool} has not been built")
        return super().execute(test, lit_config)

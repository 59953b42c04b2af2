"""``python -m floors NAME JSON``: measure one floor and print the result as JSON."""

from __future__ import annotations

import importlib
import json
import sys

if __name__ == "__main__":
    name, arguments = sys.argv[1:]
    module = importlib.import_module(f"floors.{name}")
    print(json.dumps(module.measure(**json.loads(arguments))))

"""Encodes without the functions of lizard; of bytes, as Python 2 had it."""

import base64
import json


def pack(*values):
    return base64.b64encode(json.dumps(values, separators=(",", ":")).encode("ascii"))


def unpack(encoded):
    return json.loads(base64.b64decode(encoded))

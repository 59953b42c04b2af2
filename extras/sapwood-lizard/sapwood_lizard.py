"""Adds ``lizard`` to what Python can import, behind everything that is installed."""

try:
    from sapwood.compat.lizard.importing import provide_lizard
except ImportError:
    pass  # Sapwood was uninstalled: Python must start all the same
else:
    provide_lizard()

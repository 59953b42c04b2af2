"""Conformance suites for authors of plug-ins: transports, languages and devices."""

"""Replaces a package that Jupyter installs for jsonschema: its import fails, as in a kernel without Jupyter's server.

Importing the real package builds a grammar for 1.4 s, in every kernel and every server of a test. The package checks
the formats ``iri`` and ``iri-reference``, which nbagent's own format checker does not check.
"""

raise ImportError("tests do without it: tests/shadows")

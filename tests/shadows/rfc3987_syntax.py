"""In the place of the package that Jupyter brings for jsonschema: not there, as in a kernel without Jupyter's server.

Importing the real one builds a grammar for 1.4 s, in every kernel and every server of a test. It is for the formats
``iri`` and ``iri-reference``, which nbagent leaves to nobody: its own checker of formats knows neither.
"""

raise ImportError("tests do without it: tests/shadows")

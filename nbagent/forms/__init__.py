"""Forms: from a pydantic type, a function or a JSON Schema to fields, and from drafts to an answer."""

from .form import Form, Submission
from .hints import FormHint

__all__ = ["Form", "FormHint", "Submission"]

"""From a model's name to the model."""

from __future__ import annotations

from nbagent.core.base.model import Model

DEMO = "demo"
"""The name of the built-in model that needs no key."""


def resolve(model: str | Model) -> Model:
    """The model that a name stands for; a model stands for itself.

    ``"demo"`` is the built-in scripted model, any other name is one of OpenAI's. Nothing is loaded
    and no key is looked for before the model is first used.
    """
    if not isinstance(model, str):
        return model
    if model == DEMO:
        from .demo.model import demo_model  # noqa: PLC0415  few programs need it

        return demo_model()
    from .openai.model import OpenAIModel  # noqa: PLC0415  loads only what is used

    return OpenAIModel(model)

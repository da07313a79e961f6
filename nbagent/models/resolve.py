"""Find the model for a name."""

from __future__ import annotations

from nbagent.core.base.model import Model

from .openai.providers import LITELLM

DEMO = "demo"
"""The name of the built-in model that needs no key."""


def resolve(model: str | Model) -> Model:
    """The model for a name; a model object is returned unchanged.

    ``"demo"`` is the built-in demo model, ``"litellm:…"`` is a model through LiteLLM, ``"provider:…"``
    is a model of a provider, and any other name is a model of OpenAI. The client is loaded and the key
    is checked when the model is first used.

    Raises:
        ModelConfigError: the name is unknown; the message suggests a name.
    """
    if not isinstance(model, str):
        return model
    if model == DEMO:
        from .demo.model import demo_model  # noqa: PLC0415  few programs need it

        return demo_model()
    prefix, _, rest = model.partition(":")
    if prefix == LITELLM and rest:
        from .litellm import LiteLLMModel  # noqa: PLC0415  as above

        return LiteLLMModel(rest)
    from .openai.model import OpenAIModel  # noqa: PLC0415  loads only what is used

    return OpenAIModel(model)

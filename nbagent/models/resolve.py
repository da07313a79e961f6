"""From a model's name to the model."""

from __future__ import annotations

from nbagent.core.base.model import Model

from .openai.providers import LITELLM

DEMO = "demo"
"""The name of the built-in model that needs no key."""


def resolve(model: str | Model) -> Model:
    """The model that a name stands for; a model stands for itself.

    ``"demo"`` is the built-in scripted model, ``"litellm:…"`` one that LiteLLM finds, ``"provider:…"``
    one of a provider, any other name one of OpenAI's. Nothing is loaded and no key is looked for
    before the model is first used.

    Raises:
        ModelConfigError: the name is nobody's; with what to write.
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

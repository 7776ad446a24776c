"""The limits under which accuracy is measured, and those of the one further evaluation that serves them all."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from parallelsearch.config.distinct import Distinct
from parallelsearch.config.section import Section


class UnlimitedConfig(Section):
    """The limits of the further evaluation, larger than any that is looked at; with the prompt they fit the model."""

    max_search_turns: int = Field(6, ge=1, description="As agent.max_search_turns.")
    max_response_tokens: int = Field(1024, ge=16, description="As agent.max_response_tokens.")


class BudgetsConfig(Section):
    """Accuracy against budget: what each arm would have answered under smaller limits than those of `unlimited`."""

    llm_calls: Distinct[Annotated[int, Field(ge=2)]] = Field(
        [], description="Most LLM calls of an episode: search turns and the one that may give the answer."
    )
    response_tokens: Distinct[Annotated[int, Field(ge=16)]] = Field(
        [], description="Most tokens of an episode after the prompt."
    )
    unlimited: UnlimitedConfig = UnlimitedConfig.model_validate({})

    @model_validator(mode="after")
    def _can_be_read_off(self) -> BudgetsConfig:
        most = {
            "llm_calls": self.unlimited.max_search_turns + 1,
            "response_tokens": self.unlimited.max_response_tokens,
        }
        for name, limit in most.items():
            values = getattr(self, name)
            if values != sorted(values):
                raise ValueError(f"evaluation.budgets.{name} is {values}; sort it, the smallest first.")
            if values and values[-1] > limit:
                raise ValueError(
                    f"evaluation.budgets.{name} has {values[-1]}, but evaluation.budgets.unlimited allows {limit};"
                    " raise that or leave this out."
                )
        if not self.llm_calls and not self.response_tokens:
            raise ValueError("evaluation.budgets names no budget; fill llm_calls or response_tokens, or leave it out.")
        return self

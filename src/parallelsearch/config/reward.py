"""What an episode is worth."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from parallelsearch.config.section import Section

SEMANTICS = Literal["paper", "released", "bounded", "search_r1_format", "f1", "research", "otc", "stepsearch"]
# Terms that any semantics can be given besides its own: each is the function `term` of a file of its name in
# rewards/extra/.
EXTRA_TERMS = Literal[
    "response_length",
]  # fmt: skip


class SearchR1FormatConfig(Section):
    """Weights of Search-R1's format reward (arXiv 2505.15117, v0.3 of its code)."""

    structure: float = Field(
        0.2, ge=0, description="Lost by a right answer in a bad format, paid to a wrong one in a good one."
    )
    final: float = Field(0.1, ge=0, description="Paid to a wrong answer in a bad format; nothing without an answer.")


class OtcConfig(Section):
    """The tool reward of OTC (arXiv 2504.14870). Our source states neither alpha nor c."""

    alpha: float = Field(1.0, gt=0, description="Factor of the whole reward.")
    c: float = Field(4.0, gt=0, description="Smoothing constant: the larger, the less a search costs.")
    group: bool = Field(
        False, description="true (OTC-GRPO): fewest searches among a prompt's right rollouts are best; false: none is."
    )


class StepSearchConfig(Section):
    """Weights and switches of StepSearch's reward (arXiv 2505.15107)."""

    gamma_key: float = Field(0.618, ge=0, description="Weight of the search keys; 0: without them.")
    information_gain: bool = Field(True, description="Each search is rewarded for new gold text.")
    redundancy_penalty: bool = Field(True, description="Each search pays for passages that were found before.")


class RewardConfig(Section):
    """What an episode is worth. lambda_* and alpha are weights of paper, released and bounded."""

    semantics: SEMANTICS = Field(
        "paper",
        description="paper: equations 3 to 7; released: the published code; bounded: ours; others: other methods'.",
    )
    lambda_d: float = Field(0.15, ge=0, description="Weight of the decomposition reward.")
    lambda_s: float = Field(0.35, ge=0, description="Weight of the search-count reward.")
    lambda_f: float = Field(0.1, ge=0, description="Weight of the format reward.")
    alpha: float = Field(3.0, ge=0, description="Factor of lambda_d on questions that can be decomposed.")
    search_r1_format: SearchR1FormatConfig = Field(SearchR1FormatConfig(), description="Of that semantics.")
    otc: OtcConfig = Field(OtcConfig(), description="Of that semantics.")
    stepsearch: StepSearchConfig = Field(StepSearchConfig(), description="Of that semantics.")
    extra: dict[EXTRA_TERMS, Annotated[float, Field(allow_inf_nan=False)]] = Field(
        default_factory=dict, description="Further terms, by name, and the weight of each; added to the total."
    )

    def __hash__(self) -> int:
        return hash(self.model_dump_json())  # the agent's loop looks up what it opened by its settings

    @model_serializer(mode="wrap")
    def _as_it_was_before_there_were_extra_terms(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves an empty `extra` out: the settings of arms without one stay as they were, and no job runs again."""
        values: dict[str, Any] = handler(self)
        return values if self.extra else {name: value for name, value in values.items() if name != "extra"}

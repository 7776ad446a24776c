"""How a question is answered: strategy, prompt, tags and limits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from parallelsearch.config.section import Section

PROMPTS = Literal["short", "search_r1", "parallel", "examples", "r1", "research", "research_system"]
TAGS = Literal["search_r1", "research"]
PROMPT_TAGS = {"research": "research", "research_system": "research"} | dict.fromkeys(
    ("search_r1", "parallel", "examples", "r1"), "search_r1"
)  # the tags that a prompt explains; `short` explains none
# Each but `search`, the agent's own loop, is a function in a file of its name in strategies/.
STRATEGIES = Literal[
    "search",
    "direct",
    "chain_of_thought",
    "rag",
    "ircot",
    "iter_retgen",
    "search_o1",
    "dag_plan",
]
WITHOUT_SEARCH = ("direct", "chain_of_thought")  # strategies that never search


class AgentConfig(Section):
    """The limits of an episode and what the model is shown. Lengths are in tokens of the policy's tokenizer."""

    strategy: STRATEGIES = Field("search", description="search: the agent's loop; the others are baselines.")
    prompt: PROMPTS = Field("short", description="Prompt template of the agent's loop.")
    tags: TAGS = Field("search_r1", description="Tags of the agent's loop; research: ReSearch's, its answer in a box.")
    top_k: int = Field(1, ge=1, description="Passages retrieved for each sub-query.")
    max_search_turns: int = Field(
        3, ge=0, description="Search turns; one more generation may give the answer. 0: a search is an invalid action."
    )
    max_sub_queries: int = Field(4, ge=1, description="Sub-queries searched in one turn; further ones are dropped.")
    max_generation_tokens: int = Field(80, ge=4, description="Tokens of one generation.")
    max_sub_query_result_tokens: int = Field(96, ge=8, description="Tokens shown for each sub-query's passages.")
    max_prompt_tokens: int = Field(96, ge=8, description="Tokens of the prompt.")
    max_response_tokens: int = Field(512, ge=16, description="Tokens of an episode after the prompt.")
    on_invalid: Literal["stop", "retry"] = Field("stop", description="What an invalid generation leads to.")
    max_single_hop_search_turns: int = Field(
        5, ge=1, description="Search turns on questions of structure single (search_o1)."
    )
    max_reasoning_turns: int = Field(15, ge=1, description="Generations of the reasoning model (search_o1).")
    max_document_chars: int = Field(3000, ge=100, description="Characters read of each passage (search_o1).")
    max_plan_questions: int = Field(8, ge=1, description="Sub-questions of a plan (dag_plan).")

    @model_validator(mode="after")
    def _parts_fit(self) -> AgentConfig:
        explained = PROMPT_TAGS.get(self.prompt, self.tags)
        if self.strategy == "search" and explained != self.tags:
            raise ValueError(
                f"agent.prompt '{self.prompt}' explains the tags '{explained}', but agent.tags is '{self.tags}';"
                f" set agent.tags to '{explained}' or choose another prompt."
            )
        if not self.max_search_turns and self.strategy not in ("search", *WITHOUT_SEARCH):
            raise ValueError(
                f"agent.max_search_turns is 0, but agent.strategy '{self.strategy}' searches; set it to 1 or more."
            )
        return self

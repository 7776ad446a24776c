"""What the retrieval tests share: the folders of one small study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parallelsearch.config_files import CONFIG_DIR

ENCODER = "multilingual-e5-small"
CONFIG = Path(__file__).resolve().parents[2] / CONFIG_DIR
REAL_PASSAGES = 40
SHORT_ROWS = 300
DUPLICATED = 30  # id of the passage that stands a second time at the end of the corpus


@dataclass(frozen=True)
class Study:
    """Folders of one small study, laid out as under results/."""

    root: Path

    @property
    def corpus(self) -> Path:
        return self.root / "corpus"

    @property
    def encoder(self) -> Path:
        return self.root / "encoder"

    @property
    def embeddings(self) -> Path:
        return self.root / "embeddings"

    @property
    def index(self) -> Path:
        return self.root / "index"

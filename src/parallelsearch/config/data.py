"""Question files, data sets, corpora and the generated encyclopedia."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field, model_validator

from parallelsearch.config.names import Name, PlainPath, WebAddress
from parallelsearch.config.section import Section

OWN = "own"  # the source and the reader of files whose layout the configuration itself says
CORPUS_SOURCES = Literal["geoworld", "dpr", "wiki18", "flashrag", "qa_contexts", "mediawiki", "own"]
READERS = Literal[
    "geoworld", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle", "nq", "triviaqa", "popqa", "multihop_rag", "own"
]
STRUCTURES = Literal["parallel", "sequential", "single", "mixed", "other"]


class RemoteFile(Section):
    """One input file: where it lies, and for a file that is fetched, from where and with which checksum."""

    path: PlainPath = Field(description="Path of the file, relative to the root of the checkout.")
    url: WebAddress | None = Field(None, description="Where the file is fetched from when it is absent.")
    sha256: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="Checksum of the file, checked after a download and before it is read; none: not known.",
    )
    bytes: int | None = Field(None, ge=0, description="Size of the file, for planning disk space.")
    licence: str = Field("unknown", description="Licence of the content.")

    @model_validator(mode="after")
    def _is_written_below_the_checkout(self) -> RemoteFile:
        path = PurePosixPath(self.path)
        if self.url and (path.is_absolute() or ".." in path.parts):
            raise ValueError(
                f"the file '{self.path}' would be downloaded outside of this folder; give a path below it, such as"
                f" data/{path.name}, where a link may lead elsewhere."
            )
        return self


class QuestionFile(RemoteFile):
    """The file of one split, and what has to be in it: a figure of another subset is not comparable."""

    questions: int | None = Field(None, ge=1, description="Questions of the whole split; checked when it is read.")
    structures: dict[str, int] = Field(
        default_factory=dict, description="Questions of each structure named here; checked when the split is read."
    )


class GeoWorldConfig(Section):
    """The generated encyclopedia and its questions."""

    seed: int = Field(0, ge=0, description="Seed of every choice the generator makes.")
    passages: int = Field(3600, ge=200, description="Number of passages.")
    train_questions: int = Field(4000, ge=8, description="Number of training questions.")
    dev_questions: int = Field(200, ge=8, description="Number of development questions.")
    test_questions: int = Field(600, ge=8, description="Number of test questions.")


class PassageLayout(Section):
    """A file of texts of one's own (source own): one JSON object a text, as lines or in one array."""

    title: str = Field("title", description="Field with the title.")
    text: str = Field("text", description="Field with the text.")
    words: int | None = Field(
        100, ge=1, description="Words of a passage: longer texts are cut into several; null: each text is one passage."
    )


class QuestionLayout(Section):
    """A file of questions of one's own (reader own): JSON lines, a JSON array, CSV or TSV with a header, or parquet."""

    question: str = Field("question", description="Field with the question.")
    answers: str = Field("answers", description="Field with the right answer, or with a list of right answers.")
    id: str = Field("id", description="Field with the id; where the rows have none they are numbered.")
    type: str = Field("type", description="Field with the type of the question; not needed where structures has '*'.")
    titles: str = Field("supporting_titles", description="Field with the titles of the pages that answer, if any.")
    hops: str = Field("hops", description="Field with the number of look-ups, if any.")
    structures: dict[str, STRUCTURES] = Field(
        default_factory=dict,
        description="Structure of the questions of each type, '*' for all others; none: the type is the structure.",
    )


class CorpusConfig(Section):
    """A collection of passages."""

    source: CORPUS_SOURCES = Field(description="Layout of the raw file.")
    file: RemoteFile | None = Field(None, description="The raw file; none for a generated corpus.")
    licence: str = Field("unknown", description="Licence of the text, copied into the manifest.")
    passages: int | None = Field(
        None, ge=1, description="Passages it will have, about; what jobs ask a cluster for follows from it."
    )
    shards: int | None = Field(None, ge=1, description="Encoding jobs of this corpus, where not embed.shards.")
    layout: PassageLayout | None = Field(None, description="Of the raw file (source own); none: the default layout.")

    @model_validator(mode="after")
    def _has_no_other_layout(self) -> CorpusConfig:
        if self.layout is not None and self.source != OWN:
            raise ValueError(
                f"a corpus has a layout, but its source is '{self.source}', whose layout is known; take the layout out,"
                f" or set source to '{OWN}'."
            )
        return self


class DatasetConfig(Section):
    """A question-answering data set: its splits and the corpus its questions are searched in."""

    reader: READERS = Field(description="Which reader understands the files.")
    corpus: Name = Field(description="Name of the corpus searched for these questions.")
    splits: dict[Name, QuestionFile] = Field(default_factory=dict, description="Raw file of each split.")
    layout: QuestionLayout | None = Field(None, description="Of the files (reader own); none: the default layout.")

    @model_validator(mode="after")
    def _has_no_other_layout(self) -> DatasetConfig:
        if self.layout is not None and self.reader != OWN:
            raise ValueError(
                f"a data set has a layout, but its reader is '{self.reader}', which knows its own; take the layout out,"
                f" or set reader to '{OWN}'."
            )
        return self

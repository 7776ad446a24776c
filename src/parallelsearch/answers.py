"""Comparison of a predicted answer with golden answers: SQuAD normalisation, exact match and token F1.

These are the only such functions in the package: rewards and evaluation both import them.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})


def normalise(text: str) -> str:
    """Lower case, ASCII punctuation removed, the words a, an and the removed, white space squeezed (SQuAD v1.1).

    Accents, curly quotes and Unicode forms are left as they are, so 'Beyoncé' and 'Beyonce' differ.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(prediction: str | None, golden_answers: Iterable[str | None] | None) -> float:
    """1.0 when the normalised prediction equals a normalised golden answer, else 0.0.

    A missing prediction, missing golden answers and texts that normalise to nothing never match.
    """
    predicted = normalise(prediction) if prediction is not None else ""
    return float(bool(predicted) and predicted in _normalised(golden_answers))


def substring_match(prediction: str | None, golden_answers: Iterable[str | None] | None) -> float:
    """1.0 when the normalised prediction contains a normalised golden answer, else 0.0 (Search-R1's sub-EM).

    It is reported beside exact match and never rewarded: a policy would learn to answer with lists.
    """
    predicted = normalise(prediction) if prediction is not None else ""
    return float(any(golden and golden in predicted for golden in _normalised(golden_answers)))


def f1_score(prediction: str | None, golden_answers: Iterable[str | None] | None) -> float:
    """Largest F1 of word overlap between the prediction and a golden answer, in [0, 1].

    As in the official HotpotQA evaluation, F1 is 0 when one side is yes, no or noanswer and the other is not the same.
    A missing or empty side scores 0.
    """
    predicted = normalise(prediction) if prediction is not None else ""
    return max((_f1(predicted, golden) for golden in _normalised(golden_answers)), default=0.0)


def _normalised(golden_answers: Iterable[str | None] | None) -> list[str]:
    if isinstance(golden_answers, str):
        golden_answers = [golden_answers]
    return [normalise(golden) for golden in golden_answers or () if golden is not None]


def _f1(predicted: str, golden: str) -> float:
    if predicted != golden and (predicted in _CLOSED or golden in _CLOSED):
        return 0.0
    predicted_words, golden_words = predicted.split(), golden.split()
    shared = sum((Counter(predicted_words) & Counter(golden_words)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted_words), shared / len(golden_words)
    return 2 * precision * recall / (precision + recall)

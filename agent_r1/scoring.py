"""How an answer is read out of text and scored: exact match and F1 with the HotpotQA/SQuAD normalisation.

Which text is the model's own, and what a score is worth as a reward, is left to the callers.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ALL_OR_NOTHING = frozenset({"yes", "no", "noanswer"})


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, single spaces (hotpot_evaluate_v1.py)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str | None, answers: Sequence[str]) -> float:
    """1.0 if the prediction equals one of the answers once both are normalised, else 0.0. None scores 0.0."""
    _check(answers)
    if prediction is None:
        return 0.0
    return float(normalize_answer(prediction) in {normalize_answer(answer) for answer in answers})


def f1_score(prediction: str | None, answers: Sequence[str]) -> float:
    """The best token F1 over the answers, on multisets of normalised tokens. None scores 0.0, no answers score 0.0.

    HotpotQA's rule: yes, no and noanswer match entirely or not at all. Two texts that normalise to nothing agree.
    """
    _check(answers)
    if prediction is None:
        return 0.0
    return max((_f1(normalize_answer(prediction), normalize_answer(answer)) for answer in answers), default=0.0)


def extract_answer(text: str) -> str | None:
    """The last closed <answer>...</answer> of model-written text, stripped; None where there is none.

    Of nested tags the innermost pair counts, so a stray <answer> before the real one does no harm.
    """
    found = _ANSWER.findall(text)
    return found[-1].strip() if found else None


def _f1(prediction: str, answer: str) -> float:
    if prediction == answer:
        return 1.0
    if prediction in _ALL_OR_NOTHING or answer in _ALL_OR_NOTHING:
        return 0.0
    predicted, expected = prediction.split(), answer.split()
    common = sum((Counter(predicted) & Counter(expected)).values())
    return 2 * common / (len(predicted) + len(expected))


def _check(answers: Sequence[str]) -> None:
    """A lone string is a sequence of characters to Python, which would score nonsense without a word."""
    if isinstance(answers, str):
        raise ValueError(f"answers must be a sequence of strings, got the string {answers!r}")
    for answer in answers:
        if not isinstance(answer, str):
            raise ValueError(f"answers must be strings, got {answer!r}")

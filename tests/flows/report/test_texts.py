"""What others wrote, in a page."""

from __future__ import annotations

import json

import pytest

from flows.report.texts import cut, html, script, visible


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a b\tc\nd", "a b\tc\nd"),
        ("a\x00\x1b[2J\x7f", "a␀␛[2J␡"),
        ("\x85\u2028\ufeff", "‹U+0085›‹U+2028›‹U+FEFF›"),
        ("a\u202egnp", "a‹U+202E›gnp"),
        ("\ud800", "‹U+D800›"),
        ("שלום 語 🙂", "שלום 語 🙂"),
        ("\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469"),
    ],
)
def test_what_is_not_seen_has_a_sign_and_letters_stay(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    assert cut("x" * 1_000_003, 3) == "xxx … (1,000,000 more characters)"
    assert cut("xxx", 3) == "xxx"


def test_no_text_ends_its_attribute_or_its_script() -> None:
    evil = "</script><!--\"'&\u2028\ud800"
    assert html(evil) == "&lt;/script&gt;&lt;!--&quot;&#x27;&amp;‹U+2028›‹U+D800›"
    made = script({"text": evil})
    assert not set("<\u2028\ud800") & set(made)
    assert json.loads(made) == {"text": "</script><!--\"'&\u2028\ufffd"}

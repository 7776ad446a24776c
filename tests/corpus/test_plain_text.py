"""Wikitext -> text: every expected text is what MediaWiki shows of the markup, less what is left out on purpose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallelsearch.corpus.wiki_dump.plain_text import plain_text

HIDDEN = frozenset({"file", "image", "category", "datei", "kategorie"})


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        # formatting
        ("'''''?''''' (also ''Tanda Tanya'') is a '''film'''.", "? (also Tanda Tanya) is a film."),
        ("''Newsweek'''s cover and the '90s", "Newsweek's cover and the '90s"),
        ("''One''\n'''Two", "One Two"),
        ("H<sub>2</sub>O, <b>bold</b>, <span style='x'>plain</span>, a<br />b<br>c", "H2O, bold, plain, a b c"),
        ("<nowiki>''</nowiki>a &lt;b&gt; &amp;nbsp; 5&nbsp;km &#8211; &#x2013; AT&T", "''a <b> &nbsp; 5 km – – AT&T"),
        # what is no markup
        ("Type <nowiki>[[Olm]]</nowiki>, <NOWIKI >{{a}}</NOWIKI >.", "Type [[Olm]], {{a}}."),
        (
            "Use <nowiki><!--</nowiki> for comments<!-- <nowiki> -->, <nowiki>&lt;b&gt;</nowiki>.",
            "Use <!-- for comments, <b>.",
        ),
        ("<nowiki>* x</nowiki>\n* item\na<pre>[[b]] '''c'''\n* d</pre>e", "* x a [[b]] '''c''' * d e"),
        ("[[Olm|<nowiki>[O]</nowiki>]]<ref><nowiki>{{x}}</nowiki></ref> ''Time''<nowiki/>'s", "[O] Time's"),
        ("<syntaxhighlight><pre></syntaxhighlight>a <pre>b</pre><math><nowiki>[[</nowiki></math>", "a b"),
        ("a <nowiki>b [[Olm]] c", "a b Olm c"),
        # readings above words
        ("<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby>の", "漢字の"),
        # numbers
        ("{{formatnum:18}}&nbsp;°C, {{FORMATNUM: 1,000|R}}, {{uc:un}} {{other:x}}", "18 °C, 1,000, UN"),
        (
            "100<sup>2</sup>=10000, 10<sup>&minus;3</sup> m<sup>2</sup>, (a)<sup>2</sup>",
            "100^2=10000, 10^−3 m^2, (a)^2",
        ),
        ("the 1<sup>st</sup>, <sup>14</sup>C, x<sup>n</sup>, H<sub>2</sub>O", "the 1st, 14C, xn, H2O"),
        ("first\n\nsecond   line\n----\nthird", "first second line third"),
        # links
        (
            "[[Oslo]], the [[capital city|capital]] of [[Norway]]s [[Star Trek: First Contact]]",
            "Oslo, the capital of Norways Star Trek: First Contact",
        ),
        ("see [[:Category:Cities]] and [[wikt:word|word]] and [[Film:x]]", "see Category:Cities and word and Film:x"),
        ("[http://a.org the site], [https://b.org] and http://c.org end", "the site, and end"),
        ("a [[File:x.jpg|thumb|A [[caption]] with {{t}}]]b [[Bild:y.PNG|mini]]c [[Media:z.ogg]]d", "a b c d"),
        ("Text.\n[[Category:Cities]]\n[[Kategorie:Städte| ]][[تصنيف:برلين]]\n[[de:Oslo]] [[zh-min-nan:Oslo]]", "Text."),
        # templates, tables, references, comments
        ("{{Infobox|name=x\n|a={{b|{{c}}}}}}Oslo{{ref|1}} is{{{arg}}} big.", "Oslo is big."),
        (
            "Oslo ({{IPA|x}}) and Bergen ({{IPA|y}}; born 1070) and Rome (Roma, {{z}}) are",
            "Oslo and Bergen (born 1070) and Rome (Roma) are",
        ),
        ("a\n{| class='x'\n|-\n! h\n| c || d\n{| \n| inner\n|}\n|}\nb", "a b"),
        ("a<ref name='x'>{{cite|t}} [http://a b]</ref>b<ref name=x />c<references>\n<ref>d</ref></references>", "abc"),
        ("a<!-- [[not]] {{this}} -->b<!-- never closed", "ab"),
        (
            "E = <math>x^{{2}}</math>.<gallery>\nFile:a.jpg|b\n</gallery><syntaxhighlight>if [[x]]</syntaxhighlight>",
            "E = .",
        ),
        # headings, lists, switches
        (
            "== History ==\nOld.\n=== More ===\n* one\n** two\n# three\n: four\n; five : six\nNew.\n__NOTOC__",
            "Old. New.",
        ),
        ("__目次強制__ a __init__ b", "a __init__ b"),
        # never closed
        ("{{Infobox\n| name = x\n| b = y\nOslo is big.", "Oslo is big."),
        ("{| class=x\n|-\n| a || b\nOslo is big.", "Oslo is big."),
        ("Oslo [[Norway|is big.", "Oslo is big."),
        ("Oslo<ref name=x>is big. </b>", "Oslois big."),
        ("", ""),
        ("{{only|a template}}\n[[Category:A]]", ""),
    ],
)
def test_what_a_reader_sees(markup: str, text: str) -> None:
    assert plain_text(markup, HIDDEN) == text


PIECES = [
    "[[",
    "]]",
    "{{",
    "}}",
    "{|",
    "|}",
    "|-",
    "|",
    "'''",
    "''",
    "<ref>",
    "</ref>",
    "<ref name=a />",
    "<!--",
    "-->",
]
PIECES += ["<b>", "</b>", "<nowiki>", "==", "\n", "\n* ", " ", "File:", "a", "word", "ß", "日本"]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_no_markup_is_left_however_broken_it_was(markup: str) -> None:
    text = plain_text(markup, HIDDEN)
    assert not any(mark in text for mark in ("[[", "]]", "{{", "}}", "{|", "|}", "<ref", "<!--", "'''"))
    assert text == " ".join(text.split())


@given(st.text(alphabet=st.sampled_from("abc é.日"), max_size=60))
def test_text_without_markup_stays(text: str) -> None:
    assert plain_text(text, HIDDEN) == " ".join(text.split())

"""A wrong configuration is refused before any job is planned, in one sentence (all cases: plan/test_planning.py)."""

from __future__ import annotations

from checkout import Checkout


def test_an_unknown_key_is_named_with_its_value_and_the_allowed_ones(checkout: Checkout) -> None:
    said = checkout.refusal("all", "--config", "training={stepz: 5}")
    assert "unknown key 'training.stepz' (value '5'); allowed here: sets, " in said
    assert "Traceback" not in said


def test_a_wrong_overlay_of_an_arm_is_named_and_planned_once_it_is_mended(checkout: Checkout) -> None:
    overlay = "config/arms/parallelsearch.yaml"
    checkout.edit(overlay, "lambda_d: 0.15", "lamda_d: 0.15")
    said = checkout.refusal("all")
    for words in ("arm parallelsearch", overlay, "'reward.lamda_d'", "0.15", "lambda_d"):
        assert words in said
    checkout.edit(overlay, "lamda_d: 0.15", "lambda_d: 0.15")
    assert checkout.plan("all").counts["train"] == 2


def test_a_raw_file_that_is_absent_and_has_no_url_is_named_and_planned_once_it_is_there(checkout: Checkout) -> None:
    setting = (
        "datasets={mine: {reader: hotpotqa, corpus: geoworld, splits: {dev: {path: data/mine.json}}}}",
        "evaluation={sets: [mine.dev]}",
    )
    said = checkout.refusal("all", "--config", *setting)
    assert "datasets.mine.splits.dev.path is 'data/mine.json', which does not exist and has no url" in said
    (checkout.root / "data").mkdir()
    (checkout.root / "data" / "mine.json").write_text("[]")
    assert "evaluate parallelsearch 0" in checkout.plan("all", "--config", *setting).jobs


def test_a_key_given_twice_in_an_overlay_is_named_with_both_lines(checkout: Checkout) -> None:
    (checkout.root / "mine.yaml").write_text("training:\n  steps: 40\nseeds: [0]\ntraining:\n  batch_size: 8\n")
    said = checkout.refusal("all", "--configfile", "mine.yaml")
    assert "mine.yaml: the key 'training' is given twice, on lines 1 and 4; keep one of the two." in said
    (checkout.root / "mine.yaml").write_text("training: {steps: 40, batch_size: 8}\n")
    assert checkout.plan("all", "--configfile", "mine.yaml").counts["train"] == 2

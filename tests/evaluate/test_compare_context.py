"""What context brings the default, measured by compare."""

from dataclasses import replace

import numpy as np
import pytest

from cordcal import InputError, compare


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=1200)
    source = rng.choice(["pdf", "photo"], size=1200)
    noise = np.where(source == "photo", 2.0, 0.6)[:, None]
    logits = 2.0 * np.eye(3)[labels] + noise * rng.normal(size=(1200, 3))
    return logits, labels, {"source": source, "noise": rng.normal(size=1200)}


def test_context_that_matters_is_offered_with_an_interval(rows) -> None:
    logits, labels, context = rows
    comparison = compare(logits, labels, ["ts", "blend"], context=context)
    offer = comparison["blend"].context
    assert offer.columns == ("source",)
    assert offer.is_clear
    assert offer.aurc[1] < offer.aurc[0]
    assert comparison["ts"].context is None
    line = comparison.recommendation.with_context
    assert line.startswith("With context: source; log loss")
    assert line in str(comparison.recommendation)
    assert comparison.recommendation.to_dict()["with_context"] == line


@pytest.mark.parametrize("options", [{}, {"preserve": 2}])
def test_context_without_the_default_is_said_to_be_unused(rows, options) -> None:
    logits, labels, context = rows
    keys = ["ts", "blend"] if options else ["ts", "vs"]
    with pytest.warns(UserWarning, match="context was not used"):
        comparison = compare(logits, labels, keys, context=context, **options)
    assert [caveat.key for caveat in comparison.caveats] == ["context"]


def test_another_recommendation_says_what_context_was_measured_for(rows) -> None:
    logits, labels, context = rows
    advice = compare(logits, labels, ["ts", "blend"], context=context).recommendation
    other = replace(advice, key="ts", output="lift", is_default=False)
    line = other.with_context
    assert line.startswith("With context: measured for blend + lift only: source; log loss")


def test_noise_is_not_recommended(rows) -> None:
    logits, labels, context = rows
    comparison = compare(logits, labels, ["blend"], context={"noise": context["noise"]})
    assert "no clear gain" in comparison.recommendation.with_context
    assert compare(logits, labels, ["blend"]).recommendation.with_context == ""


def test_separate_evaluation_rows(rows) -> None:
    logits, labels, context = rows
    first, second = (
        {name: v[at] for name, v in context.items()} for at in (slice(600), slice(600, None))
    )
    evaluation = logits[600:], labels[600:]
    pair = compare(
        logits[:600], labels[:600], ["blend"], evaluation=evaluation, context=(first, second)
    )
    assert pair["blend"].context.is_clear
    with pytest.raises(InputError, match="pass a tuple of both"):
        compare(logits[:600], labels[:600], ["blend"], evaluation=evaluation, context=first)
    with pytest.raises(InputError, match="pass one context"):
        compare(logits, labels, ["blend"], context=(first, second))

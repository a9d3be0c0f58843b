"""``cordcal check``: check metrics against limits, for releases and CI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import cordcal
from cordcal._errors import InputError
from cordcal.cli._console import echo, echo_info, show, show_json
from cordcal.cli._files import check_output, check_suffix, file_digest
from cordcal.cli._inputs import (
    check_same_shape,
    read_column,
    read_groups,
    read_model_rows,
    read_scores,
)
from cordcal.cli._options import (
    CONTEXT_OPTIONS,
    DEFAULT_INPUTS,
    LABELLED_OPTIONS,
    ForceOption,
    InputOptions,
    JsonOption,
    add_command,
    parse_share,
    with_input_options,
)
from cordcal.cli._vectors import parse_vector

if TYPE_CHECKING:
    from cordcal.certification import Recheck
    from cordcal.evaluate.baseline import Baseline
    from cordcal.evaluate.gates import Checked, Gate, Verdict
    from cordcal.evaluate.results.report import FileDigest
    from cordcal.files import Scores
    from cordcal.report.html import Certificate, GateLine

_EXIT_CODES = {"passed": 0, "failed": 1, "not evaluated": 2}
_SIGNS = {"passed": "✓", "failed": "✗", "not evaluated": "?"}
# What to do about a gate that lacks an input.
_REMEDIES = {
    "needs the original scores or predictions": "; pass --original",
    "needs labels": "; pass --labels",
    "needs groups": "; pass --groups",
    "needs a baseline": "; pass --baseline",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        check,
        "check scores.npz --original scores.npz --max tpcr=0 --max nll=9",
        exit_codes={
            0: "every gate passes; nothing to do.",
            1: "a gate fails; stop the release.",
            2: "a gate cannot be evaluated, or the input is wrong; look at the message.",
        },
    )


@with_input_options(*LABELLED_OPTIONS, "groups", "cluster_column", *CONTEXT_OPTIONS, "input")
def check(
    reports: Annotated[str, typer.Argument(help="File of probabilities, or scores, to check.")],
    original: Annotated[
        str | None,
        typer.Option(
            "--original",
            metavar="FILE",
            help="The classifier's scores, for the share of predictions changed (tpcr).",
        ),
    ] = None,
    most: Annotated[
        list[str] | None,
        typer.Option("--max", metavar="NAME=VALUE", help="A metric and its largest allowed value."),
    ] = None,
    least: Annotated[
        list[str] | None,
        typer.Option(
            "--min", metavar="NAME=VALUE", help="A metric and its smallest allowed value."
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="Baseline that an earlier check wrote."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write a baseline for later checks to this file."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="Model file behind the probabilities, to record its digest and to predict by its "
            "rule, if it has one.",
        ),
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(
            "--error",
            metavar="SHARE",
            help="Print the lowest confidence above which at most this share is wrong: 1% or 0.01.",
        ),
    ] = None,
    certify: Annotated[
        str | None,
        typer.Option(
            "--certify",
            metavar="violated|renewed",
            help="With --model: fail if the model's certificate is violated, or (renewed) unless "
            "these rows certify it again.",
        ),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="Write the results to this file: an HTML page, or JUnit XML (.xml); both if "
            "repeated.",
        ),
    ] = None,
    inputs: InputOptions = DEFAULT_INPUTS,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Check metrics of probabilities against limits; the exit code is the result.

    A gate limits a metric (tpcr, nll, brier, ece, accuracy, …). A suffix selects the rows the
    limit applies to: the worst predicted class (nll.class), the worst group (nll.group) or the
    change since a baseline (nll.increase).

    With --context-columns or --second-opinion, the file holds scores: --model is applied to them,
    and they are the original.
    """
    documents = report or []
    if output is not None:
        check_suffix(output, "a baseline", ".baseline", ".safetensors")
        check_output(output, force=force)
    for path in documents:
        check_suffix(path, "a report", ".html", ".htm", ".xml")
        check_output(path, force=force or _is_own(path))
    limits = _gates(most or [], least or [], required=output is None and certify is None)
    target = None if error is None else parse_share(error, "--error")
    from cordcal.evaluate import gates as library
    from cordcal.files.models import is_model

    # Of a file of another kind only the digest is recorded.
    fitted = cordcal.load(model) if model is not None and is_model(model) else None
    original_scores: Scores | None
    if inputs.uses_context:
        scores, original_scores = _apply(reports, original, fitted, model, inputs)
    else:
        names = getattr(fitted, "class_names", None)
        options: dict[str, Any] = {}
        if names is not None:
            options = {"classes": tuple(map(str, names)), "classes_in": model}
        scores, original_scores = _read(reports, original, inputs, options)
    if original_scores is not None:
        check_same_shape(
            original_scores.path, original_scores.values.shape, scores.path, scores.values.shape
        )
        original_scores = _by_number(original_scores, scores)
    labels = scores.labels
    if labels is None and original_scores is not None and original_scores.labels is not None:
        labels = original_scores.labels
        echo_info(f"{scores.path} does not contain labels; using those of {original_scores.path}")
    of_rows = {
        "groups": read_groups(reports, inputs),
        "clusters": read_column(inputs.cluster_column, reports, inputs=inputs),
    }
    result = library.check(
        _probabilities(scores),
        labels,
        gates=limits,
        original=None if original_scores is None else original_scores.values,
        rule=getattr(fitted, "rule_", None) or "argmax",
        ids=read_column(inputs.id_column, reports, inputs=inputs),
        baseline=None if baseline is None else _baseline(baseline, scores),
        class_names=scores.class_names,
        target_error=target,
        **of_rows,
    )
    for option, value in (("--error", error), ("--output", output)):
        if value is not None and result.baseline is None:
            raise InputError(option, "needs labels", "pass --labels")
    if certify is not None:
        recheck = _recheck(certify, fitted, scores, labels, of_rows)
        result = replace(result, certificate=recheck)
    if output is not None and result.baseline is not None:
        result.baseline.save(output, overwrite=force)
    vectors = (parse_vector(inputs.labels).file, parse_vector(inputs.groups).file)
    paths = (reports, original, *vectors, baseline, model, inputs.second_opinion)
    files = {
        part: file_digest(part) for path in paths if path is not None for part in _parts(str(path))
    }
    settings, sentence = _settings(), _target_sentence(result, target)
    digests = {f"sha256 {path}": file.sha256 for path, file in files.items()}
    facts = {**settings, **_facts(result, scores, sentence), **digests}
    for path in documents:
        overwrite = force or _is_own(path)
        if path.suffix.lower() == ".xml":
            from cordcal.files.disk import write_text

            write_text(path, result.to_junit(facts), overwrite=overwrite)
        else:
            from cordcal.report.html import write_certificate

            page = _page(result, scores, sentence, settings, list(files.values()))
            write_certificate(page, path, source=Path(scores.path).name, overwrite=overwrite)
    if json:
        show_json({**result.to_dict(), "class_names": scores.class_names, "facts": facts})
    else:
        _print(result, scores, sentence, by_argmax=model is None and scores.key == "repaired")
        if limits:
            echo_info(f"cordcal check: {result.outcome}")
        elif output is not None:
            echo_info("cordcal check: baseline written")
    is_asked = bool(limits) or certify is not None
    raise typer.Exit(_EXIT_CODES[result.outcome] if is_asked else 0)


def _page(
    result: Checked,
    scores: Scores,
    sentence: str,
    settings: dict[str, str],
    files: list[FileDigest],
) -> Certificate:
    """Return what the page shows."""
    from cordcal.report.html import Certificate

    return Certificate(
        outcome=result.outcome,
        rows=result.n,
        classes=scores.values.shape[1],
        changed=result.n_changed,
        gates=[
            *(_gate_line(verdict) for verdict in result.verdicts),
            *([] if result.certificate is None else [_recheck_line(result.certificate)]),
        ],
        certified=result.certified,
        target=sentence,
        settings=settings,
        files=files,
    )


def _print(result: Checked, scores: Scores, sentence: str, *, by_argmax: bool) -> None:
    """Print the gates, the groups, the error rate, the certificate and the caveats."""
    for verdict in result.verdicts:
        remedy = _REMEDIES.get(verdict.detail, "")
        if by_argmax and verdict.outcome == "failed" and verdict.gate.measure == "tpcr":
            remedy = (
                "; `apply` keeps every prediction, so are the rows of both files in the same "
                "order? If the model has a rule of class weights, pass it as --model"
            )
        echo(f"{_SIGNS[verdict.outcome]} {verdict.reading}{remedy}")
    if result.groups:
        from cordcal.report.terminal import group_table

        classes = scores.values.shape[1]
        show(group_table(result.groups, "direct", "the probabilities", classes))
    if sentence:
        echo(sentence)
    if result.certificate is not None:
        sign = _SIGNS["passed" if result.certificate.passed else "failed"]
        echo(f"{sign} {result.certificate}")
    for caveat in result.caveats:
        echo_info(f"caveat: {caveat} (--cluster-column)")


def _recheck(
    question: str, fitted: Any, scores: Scores, labels: Any, of_rows: dict[str, Any]
) -> Recheck:
    """Answer the question of --certify by rows of the file, with their groups and clusters."""
    certificate = getattr(fitted, "certificate_", None)
    if question not in ("violated", "renewed"):
        raise InputError("--certify", f"is {question!r}", "write violated or renewed")
    if certificate is None:
        raise InputError(
            "--certify", "needs a model with a certificate", "pass --model, after cordcal certify"
        )
    if labels is None:
        raise InputError("--certify", "needs labels", "pass --labels")
    if scores.kind == "logits":
        raise InputError(
            "--certify",
            f"needs the model's probabilities, but {scores.path} has logits",
            "pass what cordcal apply wrote",
        )
    recheck: Recheck = certificate.recheck(scores.values, labels, question, **of_rows)
    return recheck


def _parts(path: str) -> list[str]:
    """Return the files that a path or a pattern stands for."""
    if path == "-":
        return []
    if Path(path).is_file():
        return [path]
    from cordcal.files.disk import parts_of

    return parts_of(path) or []


def _is_own(path: Path) -> bool:
    """Whether an output exists that an earlier check wrote; a nightly check replaces it."""
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        head = file.read(2000)
    return any(mark in head for mark in ('name="cordcal check"', "<title>Check of "))


def _read(
    report: str,
    original: str | None,
    inputs: InputOptions,
    options: Mapping[str, Any],
) -> tuple[Scores, Scores | None]:
    """Read the probabilities and the original; ``--columns`` may match only one of them.

    The options of `open_scores` are the model's classes, in whose order columns are brought.
    """
    from cordcal.files.columns import as_patterns

    if original is None:
        return read_scores(report, inputs, role="repaired", **options), None
    patterns = as_patterns(inputs.columns)
    unnamed = replace(inputs, columns=None)
    others = replace(inputs, columns=None, class_names=None, labels=None, input=None)
    # The file with the pattern is read first: its classes are those of the other.
    if patterns is not None and not _has_columns(report, patterns, inputs):
        named = replace(others, columns=inputs.columns)
        first = read_scores(original, named, role="original", **options)
        options = {**options, "classes": first.class_names, "classes_in": original}
        return read_scores(report, unnamed, role="repaired", **options), first
    scores = read_scores(report, inputs, role="repaired", **options)
    options = {**options, "classes": scores.class_names, "classes_in": report}
    return scores, read_scores(original, others, role="original", pattern=patterns, **options)


def _apply(
    path: str,
    original: str | None,
    fitted: Any,
    model: str | None,
    inputs: InputOptions,
) -> tuple[Scores, Scores]:
    """Apply a model to the scores of a file; return its probabilities, and the scores."""
    option = next(iter(inputs.used(*CONTEXT_OPTIONS)))
    if original is not None:
        raise InputError("--original", f"does not go with {option}", "leave it out")
    if model is None or not hasattr(fitted, "calibrator_"):
        raise InputError(
            option, "needs the model that is applied to the scores", "pass --model, of cordcal fit"
        )
    rows = read_model_rows(fitted, model, path, inputs)
    repaired = fitted.predict_proba(rows.scores.values, context=rows.context)
    scores = replace(
        rows.scores,
        key="repaired",
        values=repaired,
        kind="probabilities",
        class_names=rows.class_names,
    )
    return scores, rows.scores


def _has_columns(path: str, patterns: Sequence[str], inputs: InputOptions) -> bool:
    from cordcal.files.columns import matching
    from cordcal.files.sources import open_source

    return path == "-" or bool(matching(patterns, open_source(path, inputs.text_options()).names))


def _by_number(original: Scores, scores: Scores) -> Scores:
    """Reorder the original if only one of the two files has names, and they are numbers."""
    from cordcal._validation.names import class_order

    positions = tuple(map(str, range(original.values.shape[1])))
    names, expected = original.class_names or positions, scores.class_names or positions
    if original.class_names == scores.class_names or not set(names) == set(expected) == set(
        positions
    ):
        return original
    order = class_order(names, expected, original.path, scores.path)
    values = original.values if order is None else original.values.take(order, axis=1)
    return replace(original, values=values)


def _probabilities(scores: Scores) -> Any:
    from cordcal._validation.scores import original_probabilities

    if scores.kind == "logits":
        return original_probabilities(scores.values, "logits")
    return scores.values


def _gates(upper: list[str], lower: list[str], *, required: bool) -> list[Gate]:
    """Return the gates of --max, then those of --min."""
    from cordcal.evaluate.gates import Gate

    limits = []
    bounds: tuple[tuple[Literal["max", "min"], list[str]], ...] = (("max", upper), ("min", lower))
    for bound, texts in bounds:
        for text in texts:
            name, _, value = text.partition("=")
            limits.append(Gate.parse(name.strip(), value, bound))
    if not limits and required:
        raise InputError("gates", "are missing", "write --max NAME=VALUE or --min NAME=VALUE")
    return limits


def _baseline(path: Path, scores: Scores) -> Baseline:
    """Return the baseline of an earlier check, which must have the same classes."""
    from cordcal._validation.names import class_order
    from cordcal.evaluate.baseline import Baseline

    baseline = Baseline.load(path)
    if baseline.class_names is not None and scores.class_names is not None:
        class_order(scores.class_names, baseline.class_names, scores.path, str(path))
    return baseline


def _target_sentence(result: Checked, target: float | None) -> str:
    """Return what is certain about the target error rate; empty without a target."""
    if target is None:
        return ""
    if result.target is None:
        return f"no threshold of confidence certifies an error rate of at most {100 * target:.4g} %"
    return f"with 95 % confidence: {result.target}"


def _facts(result: Checked, scores: Scores, sentence: str) -> dict[str, str]:
    """Return what a machine-readable document has in common with the certificate."""
    facts = {"rows": f"{result.n:,}", "classes": f"{scores.values.shape[1]:,}"}
    if result.n_changed is not None:
        facts["predictions changed"] = f"{result.n_changed:,} of {result.n:,}"
    if result.n_moved_by_rounding:
        facts["rounding to 4 decimals"] = f"would move {result.n_moved_by_rounding:,} predictions"
    for rate in result.certified:
        facts[f"wrong at {rate.threshold_text} or more"] = f"at most {rate.bound_text}"
    if sentence:
        facts["target error"] = sentence
    return facts


def _settings() -> dict[str, str]:
    """Return the date and the versions, for the records of a release."""
    import platform

    import numpy as np

    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "version": f"cordcal {cordcal.__version__}",
        "environment": f"Python {platform.python_version()}, NumPy {np.__version__}",
    }


def _recheck_line(recheck: Recheck) -> GateLine:
    """Return the answer about a certificate as a line of the page."""
    from cordcal.report.html import GateLine

    return GateLine(
        "certificate",
        "passed" if recheck.passed else "failed",
        f"{recheck.errors:,} of {recheck.accepted:,}",
        f"≤ {100.0 * recheck.error:.4g} %",
        str(recheck),
    )


def _gate_line(verdict: Verdict) -> GateLine:
    """Return a gate with its numbers in the metric's unit."""
    from cordcal.evaluate.gates import TPCR
    from cordcal.metrics import METRICS
    from cordcal.report.html import GateLine

    gate = verdict.gate
    metric = None if gate.measure == TPCR else METRICS[gate.measure]
    name = "share of predictions changed" if metric is None else metric.name
    percent = metric is None or metric.unit == "%"

    def write(value: float) -> str:
        return f"{100.0 * value:.4g} %" if percent else f"{value:.5g}"

    return GateLine(
        gate.name,
        verdict.outcome,
        "–" if verdict.value is None else write(verdict.value),
        ("≤ " if gate.bound == "max" else "≥ ") + write(gate.limit),
        f"{name}; {verdict.detail}" if verdict.detail else name,
    )

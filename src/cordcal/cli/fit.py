"""``cordcal fit``: fit a calibrator with its repair, or a repair alone, as a model file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cordcal._errors import InputError
from cordcal.cli._console import (
    echo_debug,
    echo_error,
    echo_info,
    echo_skipped,
    progress,
    row_progress,
    show,
    show_json,
)
from cordcal.cli._files import check_output
from cordcal.cli._inputs import (
    open_pair,
    read_calibration_rows,
    read_column,
    read_context,
    read_parts,
    require_labels,
)
from cordcal.cli._options import (
    CONTEXT_OPTIONS,
    DEFAULT_INPUTS,
    LABELLED_OPTIONS,
    CertifyGroupsOption,
    ForceOption,
    InputOptions,
    JsonOption,
    OnErrorOption,
    OriginalOption,
    PreserveOption,
    RuleOption,
    add_command,
    check_on_error,
    parse_preserve,
    parse_rule,
    parse_share,
    with_input_options,
)

if TYPE_CHECKING:
    from cordcal._numeric.types import Classes, Labels, NumPyArray
    from cordcal.certification import Certificate
    from cordcal.evaluate.held_out import HeldOutMeasures
    from cordcal.files import ScoreFile, Scores
    from cordcal.files.loop import OnError
    from cordcal.preserving import PreservingCalibrator
    from cordcal.repair import CORD, ConfidenceGap

# Suffixes that would be misleading for a model file, such as those of score files.
_OTHER_SUFFIXES = (
    *(".joblib", ".onnx", ".pickle", ".pkl"),
    *(".htm", ".html", ".json", ".pdf", ".txt", ".xml"),
    *(".npz", ".npy", ".csv", ".jsonl", ".parquet", ".feather", ".arrow", ".h5", ".hdf5"),
    *(".pt", ".pth"),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        fit,
        "fit scores.npz --output model.safetensors",
        "fit scores.npz --calibrator svs --repair lift",
        "fit scores.npz --certify 5% --hold-out 30%",
        "fit rows.parquet --context-columns subject --second-opinion larger.parquet",
        "fit --original p.npz --direct q.npz --output cord.safetensors",
    )


@with_input_options(
    *(*LABELLED_OPTIONS, "weights", "cluster_column", *CONTEXT_OPTIONS, "input"),
    groups=CertifyGroupsOption,
)
def fit(
    scores: Annotated[
        list[str] | None,
        typer.Argument(help="Files of calibration scores with labels; - reads stdin."),
    ] = None,
    calibrator: Annotated[
        str | None,
        typer.Option(
            "--calibrator",
            metavar="KEY",
            help="Key of the calibrator; by default a blend, repaired by lift.",
        ),
    ] = None,
    repair: Annotated[
        str | None,
        typer.Option(
            "--repair", metavar="cord|lift", help="cord (the default with --calibrator) or lift."
        ),
    ] = None,
    prefer: Annotated[
        str | None,
        typer.Option(
            "--prefer",
            metavar="confidence|likelihood",
            help="What lift keeps where labels speak against a prediction: confidence (the "
            "default) or likelihood.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Model file to write.")
    ] = Path("model.safetensors"),
    original: OriginalOption = None,
    direct: Annotated[
        str | None,
        typer.Option(
            "--direct", metavar="FILE", help="Your own calibrator's probabilities of these rows."
        ),
    ] = None,
    preserve: PreserveOption = "1",
    rule: RuleOption = "argmax",
    certify: Annotated[
        str | None,
        typer.Option(
            "--certify",
            metavar="SHARE",
            help="Hold rows out, and store above which confidence predictions may go through with "
            "at most this share wrong: 2% or 0.02.",
        ),
    ] = None,
    hold_out: Annotated[
        str | None,
        typer.Option(
            "--hold-out", metavar="SHARE", help="Share of the rows to certify on; by default 30%."
        ),
    ] = None,
    inputs: InputOptions = DEFAULT_INPUTS,
    on_error: OnErrorOption = "stop",
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Fit a calibrator and its repair on calibration rows, and write both to a model file.

    With --original and --direct, fit only the repair, which needs neither labels nor a
    calibrator.
    """
    import cordcal
    from cordcal.files.columns import as_patterns
    from cordcal.repair.prediction_rule import check_rule

    model: Any  # a calibrator with its repair, or a repair alone
    depth, weights = parse_preserve(preserve), parse_rule(rule)
    treatment = check_on_error(on_error)
    error = None if certify is None else parse_share(certify, "--certify")
    for name, value in (("--hold-out", hold_out), ("--groups", inputs.groups)):
        if value is not None and error is None:
            raise InputError(name, "is an option of --certify", "pass --certify, too")
    held_share = parse_share(hold_out or "30%", "--hold-out")
    if original is not None or direct is not None:
        if scores or any((calibrator, repair, prefer)):
            raise InputError(
                "scores",
                "and --original with --direct are two ways to fit",
                "pass one of them, but not both",
            )
        needed = {} if certify is None else {"--certify": certify}
        needed |= inputs.used("labels", "cluster_column", *CONTEXT_OPTIONS)
        for name in needed:
            reason = "needs a file of scores and labels"
            raise InputError(name, reason, "leave it out, or pass scores")
        if weights == "learnt":
            raise InputError(
                "--rule", "is learnt, which needs a file of scores", "pass scores, or the weights"
            )
        pair = _pair(original, direct, inputs)
        _check_output(output, force=force)
        cord = cordcal.CORD(depth, rule=weights)
        model, measures = _repair(cord, *pair, treatment), None
    else:
        if not scores:
            raise InputError(
                "scores", "is missing", "pass a file of scores, or --original and --direct"
            )
        if calibrator is not None:
            _check_key(calibrator)
        if repair not in (None, "cord", "lift"):
            raise InputError("--repair", f"is {repair!r}", "write cord or lift")
        options: Any = {"repair": repair, "prefer": prefer, "preserve": depth, "rule": weights}
        cordcal.PreservingCalibrator(calibrator, **options).make_repair()  # refuses others
        calibration, numbers = read_calibration_rows(scores, inputs, treatment)
        rows = Rows(
            calibration.values,
            require_labels(calibration),
            read_column(inputs.id_column, scores, numbers, inputs=inputs),
            read_column(inputs.cluster_column, scores, numbers, inputs=inputs),
            read_parts(scores, inputs, numbers),
            read_context(calibration, inputs),
        )
        if not isinstance(weights, str):
            check_rule(weights, calibration.values.shape[1], calibration.path)
        later_rows = None
        if error is not None:
            if calibration.weights is not None:
                raise InputError(
                    "--certify", "cannot count weighted rows", "pass rows that each count once"
                )
            rows, later_rows = _hold_out(rows, held_share)
            _refuse_too_few(later_rows, error, calibration.path)
        # After the inputs: their errors come first.
        _check_output(output, force=force)
        if not json:
            echo_info(f"fitting {calibrator or 'blend'} on {calibration.path}")
        model, measures = _calibrator(calibration, rows, calibrator, options)
        if later_rows is not None:
            by, others = later_rows.parts, later_rows.others()
            model.certify(later_rows.scores, later_rows.labels, error, by=by, **others)
    if inputs.columns is not None and "*" in inputs.columns:
        model.score_columns_ = as_patterns(inputs.columns)
    if measures is not None:
        model.measured_ = measures.for_file()
    cordcal.save(model, output, overwrite=force)
    if json:
        show_json({"model": str(output), **_as_dict(model, measures)})
        return
    from cordcal.report.terminal import LabelledLines

    echo_debug(repr(model.construction_))
    show(LabelledLines(_describe(model, measures, output)))


def _as_dict(model: Any, measures: HeldOutMeasures | None) -> dict[str, Any]:
    """Return what is known of a model as plain Python values; None where it has no such part."""
    effects = model.context_effects() if hasattr(model, "context_effects") else ()
    parts = {
        "construction": model.construction_,
        "held_out": measures,
        "confidence": getattr(model, "confidence_", None),
        "certificate": getattr(model, "certificate_", None),
    }
    content = {name: None if part is None else part.to_dict() for name, part in parts.items()}
    return {**content, "context": [effect.to_dict() for effect in effects]}


def _describe(model: Any, measures: HeldOutMeasures | None, output: Path) -> list[tuple[str, str]]:
    """Return labels and texts: what was fitted, what it is worth, and where it is."""
    construction, certificate = model.construction_, getattr(model, "certificate_", None)
    rows, alone = construction.n, construction.n_changed
    return [
        ("Fitted on", f"{rows:,} rows × {construction.n_classes:,} classes"),
        (
            "Predictions changed",
            f"0 of {rows:,}; the calibrator alone would change {alone:,} "
            f"({100 * alone / rows:.2f} %)",
        ),
        *([] if measures is None else describe_held_out(measures)),
        *_describe_confidence(getattr(model, "confidence_", None)),
        *([] if model.rule_ is None else [("Rule", _describe_rule(model))]),
        *([] if certificate is None else describe_certificate(certificate)),
        *_describe_context(model, output),
        ("Model", str(output)),
    ]


def describe_certificate(certificate: Certificate) -> list[tuple[str, str]]:
    """Return labels and texts: the promise, then each part, then the caveats."""
    first, *others = str(certificate).splitlines()
    return [("May go through", first), *(("", line) for line in others)]


def _describe_context(model: Any, output: Path) -> list[tuple[str, str]]:
    """Return which columns next to the scores have an effect."""
    context = getattr(model.repair_, "context_", None) if hasattr(model, "repair_") else None
    if context is None:
        return []
    chosen = [column.name for column in context.columns]
    without = context.without_effect
    texts = [
        f"{', '.join(chosen)} {'has' if len(chosen) == 1 else 'have'} an effect; cordcal info "
        f"{output} prints it"
        if chosen
        else "no column has an effect",
        *([f"no effect: {', '.join(without)}"] if chosen and without else []),
    ]
    return [("Context" if not at else "", text) for at, text in enumerate(texts)]


class Rows(NamedTuple):
    """Rows to fit or to certify on, and what goes with each; all but the first two may be None.

    ``parts`` are groups, or ``"class"``.
    """

    scores: NumPyArray
    labels: Labels
    ids: Any
    clusters: Any
    parts: Any
    context: dict[str, NumPyArray] | None

    def take(self, rows: Classes) -> Rows:
        """Return some of the rows."""
        ids, clusters, parts = (
            vector if vector is None or isinstance(vector, str) else vector[rows]
            for vector in self[2:5]
        )
        context = self.context and {name: column[rows] for name, column in self.context.items()}
        return Rows(self.scores[rows], self.labels[rows], ids, clusters, parts, context)

    def others(self) -> dict[str, Any]:
        """Return ids, clusters and context, as arguments of `fit` and `certify`."""
        return {"ids": self.ids, "clusters": self.clusters, "context": self.context}


def _hold_out(rows: Rows, share: float) -> tuple[Rows, Rows]:
    """Return the rows to fit on and those to certify on, in order and in whole clusters."""
    import numpy as np

    from cordcal._validation.labels import cluster_numbers

    count = len(rows.labels)
    unit = np.arange(count) if rows.clusters is None else cluster_numbers(rows.clusters, count)
    # In order of appearance: clusters are numbered as numbers or as text, depending on the file.
    units = unit[np.sort(np.unique(unit, return_index=True)[1])]
    held = np.random.default_rng(0).permutation(units)[: round(share * len(units))]
    if len(held) in (0, len(units)):
        purpose = "fit" if len(held) else "certify"
        raise InputError(
            "--hold-out", f"leaves no rows to {purpose} on", "write a share such as 30%"
        )
    is_held = np.isin(unit, held)
    return rows.take(np.flatnonzero(~is_held)), rows.take(np.flatnonzero(is_held))


def _refuse_too_few(rows: Rows, error: float, path: str) -> None:
    """Refuse, before the fit, held-out rows of which none could be certified."""
    import numpy as np

    from cordcal._validation.labels import cluster_numbers
    from cordcal.certification import fewest_rows, largest_cluster

    count = len(rows.labels)
    clusters = None if rows.clusters is None else cluster_numbers(rows.clusters, count)
    needed = fewest_rows(error, 0.05) * largest_cluster(clusters, np.arange(count))
    if count < needed:
        raise InputError(
            path,
            f"has {count:,} rows to hold out, but a statement about an error rate of at most "
            f"{100.0 * error:.4g} % needs {needed:,}",
            "pass more rows, a larger --hold-out or a larger --certify",
        )


def describe_held_out(measures: HeldOutMeasures) -> list[tuple[str, str]]:
    """Return labels and texts: each metric before and after, then the rows."""
    from cordcal.metrics import METRICS
    from cordcal.report.tables import number

    lines = []
    for key in ("nll", "ece"):
        metric, change = METRICS[key], measures.change[key]
        before, after = number(key, measures.original[key]), number(key, measures.repaired[key])
        low, high = (metric.write(end, signed=True) for end in (change.low, change.high))
        difference = number(key, change.estimate, signed=True)
        text = f"{before} → {after} (change {difference}, 95 % [{low}, {high}])"
        lines.append((metric.short, text))
    how = f"in {measures.fits} folds" if measures.fits > 1 else "by a second fit"
    return [*lines, ("Measured on", f"{measures.n:,} rows held out {how}")]


def _describe_confidence(gap: ConfidenceGap | None) -> list[tuple[str, str]]:
    """Return labels and texts: confidence against accuracy, and what keeping predictions costs."""
    if gap is None:
        return []
    first = str(gap).splitlines()[0].partition(": ")[2].rstrip(".")
    lines = [
        ("Confidence − accuracy", f"{first}, on the rows of the fit"),
        ("Against the evidence", f"{100 * gap.at_bound:.1f} % of the predictions are kept so"),
    ]
    if gap.sentence:
        lines.append(("Note", gap.sentence))
    return lines


def _describe_rule(model: PreservingCalibrator | CORD) -> str:
    """Return what is worth knowing of a rule of class weights."""
    learnt = getattr(model, "learnt_rule_", None)
    explained = ""
    if learnt is not None:
        explained = f"; it explains {learnt.n_explained:,} of {learnt.n:,} predictions by itself"
    return (
        f"largest weight × probability{explained}; use the predictions that `apply` writes "
        "(prediction), not the argmax"
    )


def _calibrator(
    calibration: Scores, rows: Rows, key: str | None, options: dict[str, Any]
) -> tuple[PreservingCalibrator, HeldOutMeasures | None]:
    """Return the fitted model, and its metrics on held-out rows."""
    import cordcal
    from cordcal._validation.caveats import CaveatWarning
    from cordcal.calibrators.crossfit import FOLDS
    from cordcal.evaluate.held_out import measure_held_out

    def new() -> PreservingCalibrator:
        return cordcal.PreservingCalibrator(
            key, input=calibration.kind, class_names=calibration.class_names, **options
        )

    with progress("fitting", 1 + FOLDS) as advance:
        advance(key or "blend")
        weights = calibration.weights
        with _warnings_about(calibration.path):
            model = new().fit(rows.scores, rows.labels, sample_weight=weights, **rows.others())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CaveatWarning)  # of the same rows
                measures = measure_held_out(
                    new,
                    rows.scores,
                    rows.labels,
                    input=calibration.kind,
                    sample_weight=weights,
                    clusters=rows.clusters,
                    context=rows.context,
                    progress=advance,
                )
        except ValueError as error:
            echo_error(f"not evaluated on held-out rows: without them, {error}")
            return model, None
    return model, measures


@contextmanager
def _warnings_about(path: str) -> Iterator[None]:
    """Name the file in warnings of scores, labels and context that look like a mistake."""
    from cordcal._validation.caveats import CaveatWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CaveatWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, CaveatWarning):
            echo_error(f"cordcal: warning: {path}: {warning.message}")
        else:
            warnings.showwarning(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def _check_key(calibrator: str) -> None:
    """Refuse a name that is not the key of a calibrator."""
    from cordcal.calibrators import calibrator_class

    if ":" in calibrator:
        raise InputError(
            "calibrators",
            f"is {calibrator!r}, but a model file cannot contain code",
            "fit it in Python with cordcal.PreservingCalibrator, or fit the repair alone with "
            "--original and --direct",
        )
    calibrator_class(calibrator)


def _check_output(output: Path, *, force: bool) -> None:
    """Refuse a path that cannot be written, or with the suffix of another format."""
    suffix = output.suffix.lower()
    if suffix in _OTHER_SUFFIXES:
        raise InputError(
            str(output),
            f"has the suffix {suffix!r}, but a model is written as a safetensors file",
            "use the suffix .safetensors"
            + ("; cordcal export makes an ONNX graph of it" if suffix == ".onnx" else ""),
        )
    check_output(output, force=force)


def _pair(
    original: str | None,
    direct: str | None,
    inputs: InputOptions,
) -> tuple[ScoreFile, ScoreFile]:
    if original is None or direct is None:
        missing = "--original" if original is None else "--direct"
        raise InputError(missing, "is missing", "the repair needs both files, of the same rows")
    return open_pair(original, direct, inputs)


def _repair(cord: CORD, original: ScoreFile, direct: ScoreFile, on_error: OnError) -> CORD:
    from cordcal.evaluate.audit_files import construct_from_files

    with row_progress("fitting") as progress:
        skipped = construct_from_files(cord, original, direct, on_error=on_error, progress=progress)
    echo_skipped(skipped)
    return cord

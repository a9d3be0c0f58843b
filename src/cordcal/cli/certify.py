"""``cordcal certify``: which predictions of a model may go through, stored in its file."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from cordcal._errors import InputError
from cordcal.cli._console import echo_error, show, show_json
from cordcal.cli._inputs import (
    read_column,
    read_model_rows,
    read_parts,
    require_labels,
)
from cordcal.cli._options import (
    CONTEXT_OPTIONS,
    DEFAULT_INPUTS,
    LABELLED_OPTIONS,
    CertifyGroupsOption,
    InputOptions,
    JsonOption,
    add_command,
    parse_share,
    with_input_options,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app,
        certify,
        "certify held-out.npz --model model.safetensors --error 2%",
        exit_codes={
            0: "the certificate is stored.",
            1: "nothing could be certified, so the earlier certificate is kept.",
            2: "the input is wrong; look at the message.",
        },
    )


@with_input_options(
    *LABELLED_OPTIONS,
    *("cluster_column", *CONTEXT_OPTIONS, "input"),
    groups=CertifyGroupsOption,
)
def certify(
    scores: Annotated[
        str, typer.Argument(help="Labelled scores of rows that the model was not fitted on.")
    ],
    model: Annotated[
        str, typer.Option("--model", metavar="FILE", help="The model file; the result is stored.")
    ],
    error: Annotated[
        str | None,
        typer.Option(
            "--error",
            metavar="SHARE",
            help="The largest share that may be wrong: 2% or 0.02; by default that of the "
            "certificate to renew, else 2%.",
        ),
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(
            "--confidence",
            metavar="SHARE",
            help="Probability that all statements are right; by default that of the certificate to "
            "renew, else 95%.",
        ),
    ] = None,
    inputs: InputOptions = DEFAULT_INPUTS,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Replace the earlier certificate even if nothing could be certified."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find which predictions may go through with few errors, and store it in the model file."""
    import cordcal
    from cordcal.cli.fit import describe_certificate
    from cordcal.report.terminal import LabelledLines

    fitted = cordcal.load(model)
    if not hasattr(fitted, "certify"):
        raise InputError(model, "holds no calibrator to certify", "pass a model of cordcal fit")
    rows, _, context = read_model_rows(fitted, model, scores, inputs)
    labels = require_labels(rows)
    earlier = fitted.certificate_
    if inputs.groups is None and earlier is not None:
        if earlier.by == "group":
            raise InputError(
                "--groups",
                "is missing: the certificate has groups",
                "name them, or write --groups none for one threshold",
            )
        inputs = replace(inputs, groups="prediction" if earlier.by == "class" else None)
    rate, sure = (0.02, 0.95) if earlier is None else (earlier.error, earlier.confidence)
    certificate = fitted.certify(
        rows.values,
        labels,
        rate if error is None else parse_share(error, "--error"),
        confidence=sure if confidence is None else parse_share(confidence, "--confidence"),
        by=read_parts(scores, inputs),
        context=context,
        clusters=read_column(inputs.cluster_column, scores, inputs=inputs),
        ids=read_column(inputs.id_column, scores, inputs=inputs),
    )
    is_kept = earlier is not None and not certificate.share and not force
    if not is_kept:
        cordcal.save(fitted, model)
    if json:
        show_json({"model": model, "certificate": certificate.to_dict()})
    else:
        show(LabelledLines([*describe_certificate(certificate), ("Model", model)]))
    if is_kept:
        echo_error(f"{model} keeps its earlier certificate; replace it with --force")
        raise typer.Exit(1)

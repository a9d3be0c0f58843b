"""The options that commands share, how their values are read, and how commands are added."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from cordcal._errors import InputError
from cordcal.cli._console import VERBOSITY, echo
from cordcal.cli._files import check_files
from cordcal.cli._problems import problem_from_interrupt, report_problem
from cordcal.cli._vectors import parse_vector

if TYPE_CHECKING:
    from cordcal._numeric.types import Kind
    from cordcal.files.columns import ColumnSpec, TextOptions
    from cordcal.files.loop import OnError


class InputKind(StrEnum):
    """The kind of scores."""

    logits = "logits"
    probabilities = "probabilities"


class OutputDtype(StrEnum):
    """The dtype of written probabilities."""

    float64 = "float64"
    float32 = "float32"
    float16 = "float16"


InputOption = Annotated[
    InputKind | None,
    typer.Option("--input", help="The kind of scores; by default detected from the file."),
]
PreserveOption = Annotated[
    str,
    typer.Option(
        "--preserve",
        metavar="1|K|ranking",
        help="How many top ranks the repair keeps: 1, k or ranking.",
    ),
]
RuleOption = Annotated[
    str,
    typer.Option(
        "--rule",
        metavar="argmax|learnt|WEIGHTS",
        help="How probabilities predict: argmax, learnt (one weight per class, for models trained "
        "with class weights), or the weights, as in 1,19.",
    ),
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write an HTML report to this file.")
]
GroupsOption = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="NAME|FILE",
        help="Column or key of the groups, or their file; FILE:NAME for a column of it.",
    ),
]
CertifyGroupsOption = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="NAME|FILE",
        help="A threshold for each group: their column, key or file (FILE:NAME for a column of "
        "it), or prediction for the predicted class; none for one threshold.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace existing outputs.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="Exit with code 1 if the result lists anything to check first."),
]
OnErrorOption = Annotated[
    str,
    typer.Option(
        "--on-error",
        metavar="stop|skip",
        help="What to do with invalid rows: `stop` reports the first and exits, `skip` omits "
        "and counts them.",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Process the parts on the Dask cluster of this scheduler.",
    ),
]
OriginalOption = Annotated[
    str | None,
    typer.Option(
        "--original", metavar="FILE", help="File of the classifier's scores; - reads stdin."
    ),
]


def parse_rule(text: str) -> Literal["argmax", "learnt"] | list[float]:
    """Return a rule's name, or its weights.

    Examples
    --------
    >>> parse_rule("learnt"), parse_rule("1,19")
    ('learnt', [1.0, 19.0])
    """
    if text in ("argmax", "learnt"):
        return cast('Literal["argmax", "learnt"]', text)
    try:
        return [float(weight) for weight in text.split(",")]
    except ValueError:
        raise InputError(
            "--rule", f"is {text!r}", "write argmax, learnt, or one weight per class, as in 1,19"
        ) from None


def parse_preserve(text: str) -> int | Literal["ranking"]:
    """Return a number of classes, or ``"ranking"``.

    Examples
    --------
    >>> parse_preserve("5"), parse_preserve("ranking")
    (5, 'ranking')
    """
    if text == "ranking":
        return "ranking"
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    raise InputError("--preserve", f"is {text!r}", "write 1, another number of classes, or ranking")


def check_on_error(choice: str) -> OnError:
    """Return the value of ``--on-error``, or refuse it."""
    if choice not in ("stop", "skip"):
        raise InputError("--on-error", f"is {choice!r}", "write stop or skip")
    return "skip" if choice == "skip" else "stop"


@dataclass(frozen=True)
class InputOptions:
    """Values of the options that locate a command's inputs; None if not used."""

    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="NAMES",
            help="Key or column of the scores, or one column per class: a,b,… or 'score_*'.",
        ),
    ] = None
    class_names: Annotated[
        str | None,
        typer.Option("--class-names", metavar="FILE", help="File with one class name per line."),
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="NAME|FILE",
            help="Column or key of the labels, or their file; FILE:NAME for a column of it.",
        ),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="NAME|FILE",
            help="Column or key of the weights, or their file; FILE:NAME for a column of it.",
        ),
    ] = None
    groups: GroupsOption = None
    cluster_column: Annotated[
        str | None,
        typer.Option(
            "--cluster-column",
            metavar="NAME",
            help="Column or key of what makes rows dependent, such as a user: folds keep these "
            "together, bounds and tests count them.",
        ),
    ] = None
    context_columns: Annotated[
        str | None,
        typer.Option(
            "--context-columns",
            metavar="NAMES",
            help="Columns or keys next to the scores that may show how far to trust a prediction, "
            "as in subject,source; with a model by default those that it needs, none for no "
            "column.",
        ),
    ] = None
    second_opinion: Annotated[
        str | None,
        typer.Option(
            "--second-opinion",
            metavar="FILE",
            help="Another model's scores of the same classes, joined by id; that model must not "
            "have been fitted on rows to fit on.",
        ),
    ] = None
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id-column",
            metavar="NAME",
            help="Column or key that identifies rows; by default id in a second opinion, the "
            "scores in a baseline.",
        ),
    ] = None
    input: InputOption = None
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line of CSV files names the columns, where it may be a row.",
        ),
    ] = None
    decimal: Annotated[
        str | None,
        typer.Option(
            "--decimal", metavar=".|,", help="Decimal separator of text files: . or a comma."
        ),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding", metavar="NAME", help="Encoding of text files, by default UTF-8."
        ),
    ] = None

    def used(self, *names: str) -> dict[str, str]:
        """Return those of some options that were used and their values; flags have none."""
        used = {
            f"--{name.replace('_', '-')}": value
            for name in names
            if isinstance(value := getattr(self, name), str)
        }
        if "header" in names and self.header is not None:
            used["--header" if self.header else "--no-header"] = ""
        return used

    @property
    def kind(self) -> Kind | None:
        """The kind of the scores; None if it is to be detected."""
        if self.input is None:
            return None
        return "logits" if self.input is InputKind.logits else "probabilities"

    @property
    def uses_context(self) -> bool:
        """Whether there are columns of context or a second opinion."""
        return self.context_columns is not None or self.second_opinion is not None

    @property
    def context(self) -> tuple[str, ...] | None:
        """The columns of the context; None if the option is not used."""
        if self.context_columns is None:
            return None
        names = tuple(filter(None, map(str.strip, self.context_columns.split(","))))
        return () if names == ("none",) else names

    @property
    def joined_by(self) -> str:
        """The column by which a second opinion is joined."""
        return self.id_column or "id"

    @property
    def beside(self) -> tuple[str, ...]:
        """The columns to read with each row to fit on."""
        joined = () if self.second_opinion is None else (self.joined_by,)
        return tuple(dict.fromkeys([*(self.context or ()), *joined]))

    @property
    def other_columns(self) -> dict[str, str]:
        """The options that name columns of the rows, which are not scores, and the columns."""
        groups = parse_vector(self.groups)
        columns = {
            "cluster_column": self.cluster_column,
            "groups": None if groups.file or self.groups in ROW_GROUPS else groups.column,
            "id_column": self.id_column if self.second_opinion is None else self.joined_by,
        }
        return {option: name for option, name in columns.items() if name is not None}

    def arguments(self) -> dict[str, object]:
        """Return the options that were used as arguments of `cordcal.files.read_scores`."""
        labels, weights = parse_vector(self.labels), parse_vector(self.weights)
        arguments = {
            "columns": self.columns,
            "labels": labels.file,
            "labels_column": labels.column,
            "weights": weights.file,
            "weights_column": weights.column,
            "header": self.header,
            "decimal": self.decimal,
            "encoding": self.encoding,
        }
        return {name: value for name, value in arguments.items() if value is not None}

    def text_options(self) -> TextOptions:
        """Return how text files are read."""
        from cordcal.files.columns import TextOptions

        return TextOptions(self.header, self.decimal or ".", self.encoding)

    def column_spec(self) -> ColumnSpec:
        """Return where scores, labels and weights are."""
        from cordcal.files.columns import ColumnSpec, as_patterns

        labels, weights = parse_vector(self.labels), parse_vector(self.weights)
        names = None if self.class_names is None else read_class_names(self.class_names)
        return ColumnSpec(
            columns=as_patterns(self.columns),
            labels=labels.file,
            labels_column=labels.column,
            weights=weights.file,
            weights_column=weights.column,
            class_names=names,
            text=self.text_options(),
            others=tuple(self.other_columns.items()),
        )


TEXT_OPTIONS = ("header", "decimal", "encoding")
"""Options for text files."""
LABELLED_OPTIONS = (
    "columns",
    "class_names",
    "labels",
    *TEXT_OPTIONS,
)
"""Options for files that calibrators are fitted on."""
CONTEXT_OPTIONS = ("context_columns", "second_opinion", "id_column")
"""Options for columns next to the scores."""
ROW_GROUPS = ("none", "prediction")
"""Values of ``--groups`` that are not columns: one threshold, and one per predicted class."""
DEFAULT_INPUTS = InputOptions()


def with_input_options(
    *names: str, **others: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a command's parameter ``inputs`` by these options of `InputOptions`.

    Those that mean something else in this command are passed with their own descriptions.
    """
    hints = get_type_hints(InputOptions, include_extras=True) | others
    names = (*names, *others)

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**options: Any) -> None:
            command(inputs=InputOptions(**{name: options.pop(name) for name in names}), **options)

        command_hints = get_type_hints(command, include_extras=True)
        parameters = []
        for parameter in inspect.signature(command).parameters.values():
            if parameter.name != "inputs":
                parameters.append(parameter.replace(annotation=command_hints[parameter.name]))
                continue
            parameters += [
                inspect.Parameter(name, parameter.kind, default=None, annotation=hints[name])
                for name in names
            ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return wrap


def read_class_names(path: str) -> tuple[str, ...]:
    """Return the class names in a text file with one per line, or in a JSON list."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    names: Any = [line.strip() for line in text.splitlines() if line.strip()]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except (ValueError, RecursionError):
            names = None
    if not names or "\0" in text or not all(isinstance(name, str) for name in names):
        raise InputError(path, "does not contain class names", "write one per line, as text")
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InputError(path, f"has the class {duplicate!r} twice", "give each class its own name")
    return tuple(names)


_QUIET = typer.Option("--quiet", "-q", help="Show only results, warnings and errors; no progress.")
_VERBOSE = typer.Option(
    "--verbose",
    "-v",
    help="Show more: every row and column of tables, how fits went, and tracebacks of errors.",
)
_SHARED = {"quiet": Annotated[bool, _QUIET], "verbose": Annotated[bool, _VERBOSE]}


def print_help(ctx: typer.Context) -> None:
    """Print the help as all other text: in the terminal's encoding, and to a stdout that works."""
    for line in ctx.get_help().splitlines():
        echo(line)


def _when_requested(ctx: typer.Context, _: Any, requested: bool) -> None:
    if requested and not ctx.resilient_parsing:
        print_help(ctx)
        ctx.exit()


class Command(TyperCommand):
    """A command whose help is printed by `print_help`."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option of the help."""
        option: Any = super().get_help_option(ctx)
        option.callback = _when_requested
        return option

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the exit codes, wrapped, and the examples, unbroken, to be copied."""
        paragraphs = (self.epilog or "").split("\n\n")
        with formatter.indentation():
            for paragraph in paragraphs:
                formatter.write_paragraph()
                if paragraph.startswith("Example: "):
                    formatter.write(f"  {paragraph}\n")
                else:
                    formatter.write_text(paragraph)


class Group(TyperGroup):
    """Commands whose common help is printed by `print_help`."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option of the help."""
        option: Any = super().get_help_option(ctx)
        option.callback = _when_requested
        return option


def add_command(
    app: typer.Typer,
    command: Callable[..., None],
    *examples: str,
    exit_codes: Mapping[int, str] | None = None,
) -> None:
    """Add a command with ``--quiet`` and ``--verbose``, and its examples below its help.

    Parameters
    ----------
    app : Typer
        The application to extend.
    command : callable
        The function to run; its parameters become options.
    *examples : str
        Example command lines, without ``cordcal``.
    exit_codes : mapping of int to str
        The meaning of its exit codes, if it differs from that of other commands: a table.
    """
    paragraphs = [
        *(f"Exit code {code}: {meaning}" for code, meaning in (exit_codes or {}).items()),
        *(f"Example: cordcal {example}" for example in examples),
    ]
    # Lines of a docstring are joined: typer would keep their ends in narrower terminals.
    described = (
        " ".join(paragraph.split())
        for paragraph in inspect.cleandoc(command.__doc__ or "").split("\n\n")
    )
    summary, *more = described
    app.command(
        cls=Command,
        help="\n\n".join([summary, *more]),
        short_help=summary,  # whole: typer would cut it
        epilog="\n\n".join(paragraphs),
    )(_with_shared_options(command))


def _with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def run(quiet: bool, verbose: bool, **options: Any) -> None:
        VERBOSITY.quiet, VERBOSITY.verbose = quiet, verbose
        try:
            check_files(options, option_names)
            command(**options)
        except KeyboardInterrupt as error:
            # Caught here, because typer would replace it with an exit code and lose its message.
            raise typer.Exit(report_problem(problem_from_interrupt(error))) from error

    signature = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    option_names = {name: _option_name(name, hint) for name, hint in hints.items()}
    parameters = [
        parameter.replace(annotation=hints[name])
        for name, parameter in signature.parameters.items()
    ]
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation
        )
        for name, annotation in _SHARED.items()
    ]
    # Newer versions of typer read the signature, older ones the annotations too.
    run.__signature__ = signature.replace(parameters=[*parameters, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {**hints, **_SHARED}
    return run


def _option_name(name: str, hint: Any) -> str:
    """Return the option that sets a parameter of a command, or the parameter's name."""
    for annotation in getattr(hint, "__metadata__", ()):
        # typer stores the first declaration of an annotated option as its default.
        declarations = (
            getattr(annotation, "default", None),
            *(getattr(annotation, "param_decls", None) or ()),
        )
        for declaration in declarations:
            if isinstance(declaration, str) and declaration.startswith("--"):
                return declaration
    return name


def parse_share(text: str, option: str) -> float:
    """Return an option such as 2% or 0.02, between 0 and 1."""
    from cordcal.evaluate import gates

    share = gates.parse_share(text, option)
    if not 0.0 < share < 1.0:
        raise InputError(option, f"is {text}", "write a share between 0 and 1, such as 2%")
    return share

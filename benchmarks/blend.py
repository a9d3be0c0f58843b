"""Blend and lift on real outputs: log loss, Brier and ECE against other maps, and time.

    python benchmarks/blend.py --data FOLDER [--sizes 300 1000 half] [--seeds 0 1] [--cells F.jsonl]
    python benchmarks/blend.py --data FOLDER --boost --sizes 1000 half --seeds 0
    python benchmarks/blend.py --time [--shapes 5000x10 5000x100]

Rows of every set are split in half at random; calibration rows are drawn from one half (at
most 5,000), evaluation rows are the other (at most 5,000).  Figures are ratios to temperature
scaling in the same cell.  ``--boost`` adds boosted trees, for at most 30 classes.  ``--cells``
keeps each cell as it ends; a later run goes on from there.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import cordcal
from cordcal._validation.scores import CheckedScores
from cordcal.calibrators import make
from cordcal.calibrators.blend import Blend
from cordcal.calibrators.crossfit import FOLDS, FitCache, Folds
from cordcal.metrics import brier, ece, nll
from cordcal.repair import CORD, Lift
from fit_peers import probmetrics, sklearn_temperature, softmax
from repair import PlainNumPy
from stored import append_cell, output_files, read_cells, read_outputs

MOST_ROWS = 5000
# Corrupted inputs and language models' answers, whose predictions are often wrong.
OFTEN_WRONG = ("c10c", "llm")


def cells(folder: Path, sizes: list[str], seeds: list[int]) -> Iterator[tuple[str, str, int]]:
    """Yield set, size and seed, smallest files first."""
    for seed in seeds:
        for path in output_files(folder):
            for size in sizes:
                yield str(path), size, seed


def measured(path: str, size: str, seed: int, boost: bool) -> dict[str, object] | None:
    """Return what is known of a cell's reports; None if the set has too few rows."""
    scores, labels, kind = read_outputs(path)
    order = np.random.default_rng(seed).permutation(len(labels))
    half = len(order) // 2
    count = min(half, MOST_ROWS) if size == "half" else int(size)
    if count > half or (boost and scores.shape[1] > BOOSTED_CLASSES):
        return None
    fit, test = order[:count], order[half:][:MOST_ROWS]
    original = CheckedScores.from_scores(scores[fit], kind)
    evaluated = CheckedScores.from_scores(scores[test], kind)
    fit_cache = FitCache(original, labels[fit], None, Folds.of(scores[fit], labels[fit], FOLDS, 0))
    blend = Blend(input=kind)
    blend.fit_from(fit_cache)
    reports = {}
    for key in blend._keys(original.classes, count):
        candidate, _ = fit_cache.candidate(key)
        if candidate is not None:
            reports[key] = candidate.model.predict_checked(evaluated)
    reports["blend"] = blend.predict_checked(evaluated)
    candidates = {"blend": (blend, blend.held_out_)}
    if "sms" in reports:
        candidate, _ = fit_cache.candidate("sms")
        candidates["sms"] = (candidate.model, candidate.held_out)
    for key in BOOSTED if boost else ():
        candidate, _ = fit_cache.candidate(key)
        candidates[key] = (candidate.model, candidate.held_out)
        reports[key] = candidate.model.predict_checked(evaluated)
    for key, (model, held_out) in candidates.items():
        rows = (original.probabilities, model.predict_checked(original))
        repairs = {
            "CORD": CORD().fit(*rows, prediction=original.prediction),
            "lift": Lift().fit_checked(
                *rows, labels[fit], original.prediction, None, held_out=held_out.masses
            ),
        }
        for name, repair in repairs.items():
            reports[f"{key} + {name}"] = repair.transform(
                evaluated.probabilities, reports[key], prediction=evaluated.prediction
            )
    return {
        "classes": original.classes,
        "errors": int((original.prediction != labels[fit]).sum()),
        "shares": dict(zip(blend.members_, blend.weights_.tolist(), strict=True)),
        "reports": {name: measures(report, labels[test]) for name, report in reports.items()},
    }


def measures(report: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return the three measures of a report."""
    return {
        name: float(f(report, labels)) for name, f in (("nll", nll), ("brier", brier), ("ece", ece))
    }


BOOSTED, BOOSTED_CLASSES = ("boost", "boosted-blend"), 30
REPORTS = (
    "ts", "ets", "sms", "sms + CORD", "sms + lift", "blend", "blend + CORD", "blend + lift", "best",
    "boost", "boost + CORD", "boost + lift", "boosted-blend", "boosted-blend + lift",
)  # fmt: skip


def summary(cells: list[dict[str, object]]) -> None:
    """Print every size and group, and how often the blend loses."""
    for cell in cells:
        reports = cell["reports"]
        single = [key for key in reports if key != "blend" and "+" not in key]
        reports["best"] = min(
            (reports[key] for key in single), key=lambda measured: measured["nll"]
        )
    for size in dict.fromkeys(str(cell["size"]) for cell in cells):
        of_size = [cell for cell in cells if cell["size"] == size]
        for group in dict.fromkeys(map(group_of, of_size)):
            table(f"{size} rows, {group}", [c for c in of_size if group_of(c) == group])
        shares(f"{size} rows, all sets", of_size)
    shares("all sizes and sets", cells)
    for own, other in (
        ("boost", "blend"), ("boost + lift", "blend + lift"), ("boosted-blend", "blend"),
        ("boosted-blend + lift", "blend + lift"),
    ):  # fmt: skip
        boosted(own, other, [cell["reports"] for cell in cells if own in cell["reports"]])


def group_of(cell: dict[str, object]) -> str:
    """Return the kind of set that a cell is of."""
    if str(cell["set"]).startswith(OFTEN_WRONG):
        return "predictions often wrong"
    return "K < 30" if cell["classes"] < 30 else "K < 100" if cell["classes"] < 100 else "K ≥ 100"


def table(title: str, cells: list[dict[str, object]]) -> None:
    """Print the geometric mean ratios to ts, and the mean ECE."""
    reports_of_cells = [cell["reports"] for cell in cells]
    count = len({cell["set"] for cell in cells})
    print(f"\n{title}: {count} sets, {len(reports_of_cells)} cells")
    print(f"  {'':14}{'NLL / ts':>10}{'Brier / ts':>12}{'ECE %':>8}")
    for name in REPORTS:
        some = [reports for reports in reports_of_cells if name in reports]
        if some:
            nats, squares = (
                np.exp(np.mean([np.log(r[name][m] / r["ts"][m]) for r in some]))
                for m in ("nll", "brier")
            )
            error = 100 * np.mean([r[name]["ece"] for r in some])
            print(f"  {name:14}{nats:10.3f}{squares:12.3f}{error:8.2f}")


def shares(title: str, cells: list[dict[str, object]]) -> None:
    """Print how often the blend is below sms, and its lift below ts.

    A set with a size counts once, by its mean over the seeds.
    """
    by_set: dict[tuple[object, object], list[dict[str, dict[str, float]]]] = {}
    for cell in cells:
        by_set.setdefault((cell["set"], cell["size"]), []).append(cell["reports"])

    def ratio(own: str, other: str) -> np.ndarray:
        return np.array(
            [
                sum(r[own]["nll"] for r in seeds) / sum(r[other]["nll"] for r in seeds)
                for seeds in by_set.values()
                if other in seeds[0]
            ]
        )

    against_ts, against_sms = ratio("blend + lift", "ts"), ratio("blend", "sms")
    print(f"\n{title}, {len(by_set)} of set × size, {len(cells)} cells")
    print(f"  blend below sms in {np.mean(against_sms < 1):.1%}")
    print(
        f"  blend + lift below ts in {np.mean(against_ts < 1):.1%}; more than 2 % above in "
        f"{np.mean(against_ts > 1.02):.1%}; at most {against_ts.max():.3f} times"
    )


def boosted(own: str, other: str, reports: list[dict[str, dict[str, float]]]) -> None:
    """Print how often one report is below another, and the mean ratio, sets resampled."""
    for measure in ("nll", "brier") if reports else ():
        logs = np.log([report[own][measure] / report[other][measure] for report in reports])
        drawn = np.random.default_rng(0).integers(len(logs), size=(10_000, len(logs)))
        low, high = np.exp(np.quantile(logs[drawn].mean(axis=1), (0.025, 0.975)))
        print(
            f"  {own} below {other} in {measure} in {(logs < 0).sum()} of {len(logs)}; "
            f"ratio {np.exp(logs.mean()):.3f} [{low:.3f}, {high:.3f}]"
        )


SHAPES = ((5000, 10), (5000, 100), (25_000, 1000))


def times(shapes: Sequence[tuple[int, int]]) -> None:
    """Print the default's time next to that of its members, a softmax and other libraries."""
    for rows, classes in shapes:
        repeats = 3 if rows * classes <= 500_000 else 1
        logits, labels = drawn(rows, classes)
        print(f"\n{rows:,} × {classes}")
        for count in sorted({1, min(2, len(os.sched_getaffinity(0)))}):
            members, blend, whole = fit_seconds(logits, labels, count, repeats)
            print(
                f"  fit on {count} core(s): blend {blend:.2f} s, {blend / members:.2f} ×, with its "
                f"lift {whole / members:.2f} × one fit of each member ({members:.2f} s)",
                flush=True,
            )
        model = print_memory(logits, labels)
        print_predictions(model, logits, repeats)
        print_peers(model, logits, labels, repeats)
    logits, labels = drawn(5000, 10)
    begun, cpu = time.perf_counter(), time.process_time()
    cordcal.compare(logits, labels)
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
    print(f"\n5,000 × 10: compare the default list {wall:.1f} s, {cpu:.1f} s of CPU time")


def fit_seconds(
    logits: np.ndarray, labels: np.ndarray, cores: int, repeats: int
) -> tuple[float, ...]:
    """Return the seconds of one fit of each member, of the blend, and of blend and lift.

    On one core CPU time is measured, which other work on the machine does not change.
    """
    clock = time.process_time if cores == 1 else time.perf_counter
    keys = Blend()._keys(logits.shape[1], len(labels))
    with on_cores(cores):
        return least_seconds(
            clock,
            repeats,
            lambda: [make(key).fit(logits, labels) for key in keys],
            lambda: Blend().fit(logits, labels),
            lambda: cordcal.PreservingCalibrator().fit(logits, labels),
        )


def print_memory(logits: np.ndarray, labels: np.ndarray) -> cordcal.PreservingCalibrator:
    """Fit the default; print the peak of resident memory beyond what there was before."""
    for count in sorted({1, min(2, len(os.sched_getaffinity(0)))}):
        with on_cores(count):
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            before = resident_bytes("VmRSS")
            model = cordcal.PreservingCalibrator().fit(logits, labels)
            times = (resident_bytes("VmHWM") - before) / (8 * logits.size)
        print(f"  memory on {count} core(s): {times:.2f} × the scores as float64", flush=True)
    return model


def resident_bytes(name: str) -> int:
    """Return a figure of this process's resident memory, as Linux reports it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Run a block on the first cores."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def print_predictions(
    model: cordcal.PreservingCalibrator, logits: np.ndarray, repeats: int
) -> None:
    """Print the time of a prediction of all rows, with its repair, and of one row."""
    calls = (
        lambda: [member.predict_proba(logits) for member in model.calibrator_.members_.values()],
        lambda: model.predict_proba(logits),
        lambda: softmax(logits.astype(np.float64)),
    )
    members, whole, plain = least_seconds(time.process_time, repeats, *calls)
    print(
        f"  predict: {whole / members:.2f} × its members, {whole / plain:.1f} × softmax "
        f"({', '.join(model.calibrator_.members_)})",
        flush=True,
    )
    *_, plain_wall = waiting = least_seconds(time.perf_counter, repeats, *calls)
    print(f"  the same by the clock, on all cores: {waiting[1] / plain_wall:.1f} × softmax")
    for name, run in one_row_calls(model, logits[:1]).items():
        (row,) = least_seconds(time.process_time, 5, lambda run=run: [run() for _ in range(100)])
        print(f"  one row, {name}: {row * 1e4:.0f} µs", flush=True)


def one_row_calls(
    model: cordcal.PreservingCalibrator, row: np.ndarray
) -> dict[str, Callable[[], object]]:
    """Return what predicts one row: NumPy, and torch and onnxruntime if they are installed."""
    calls: dict[str, Callable[[], object]] = {"NumPy": lambda: model.predict_proba(row)}
    try:
        import torch

        from cordcal.torch import PreservingModule
    except ImportError:
        return calls
    torch.set_num_threads(1)
    module, tensor = PreservingModule(model).eval().requires_grad_(False), torch.tensor(row)
    calls["torch"] = lambda: module(tensor)
    try:
        import onnxruntime

        from cordcal.onnx import export
    except ImportError:
        return calls
    with tempfile.TemporaryDirectory() as folder:
        export(model, f"{folder}/model.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"]
        )
    feed = {session.get_inputs()[0].name: row}
    calls["onnxruntime"] = lambda: session.run(None, feed)
    return calls


def print_peers(
    model: cordcal.PreservingCalibrator, logits: np.ndarray, labels: np.ndarray, repeats: int
) -> None:
    """Print the time of other libraries, and of the paper's listing on the same rows."""
    original, direct = softmax(logits.astype(np.float64)), model.direct_proba(logits)
    listing = PlainNumPy()
    peers: dict[str, Callable[[], object]] = {
        "probmetrics sms": lambda: probmetrics("sms")(logits, labels),
        "scikit-learn temperature": lambda: sklearn_temperature(logits, labels),
        "paper's listing, fit and transform": lambda: listing.transform(
            listing.fit(original, direct), original, direct
        ),
    }
    if logits.shape[1] > 200:
        del peers["probmetrics sms"]  # minutes and gigabytes
    for name, run in peers.items():
        try:
            (seconds,) = least_seconds(time.process_time, repeats, run)
        except ImportError as error:
            print(f"  {name}: {error}")
            continue
        print(f"  {name}: {seconds:.3f} s", flush=True)


def least_seconds(
    clock: Callable[[], float], repeats: int, *calls: Callable[[], object]
) -> tuple[float, ...]:
    """Return the least seconds of each call; they alternate."""
    least = [math.inf] * len(calls)
    for _ in range(repeats):
        for number, call in enumerate(calls):
            begun = clock()
            call()
            least[number] = min(least[number], clock() - begun)
    return tuple(least)


def drawn(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw logits whose own class is raised by a random amount."""
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=rows)
    logits = (2.0 * rng.normal(size=(rows, classes))).astype(np.float32)
    logits[np.arange(rows), labels] += 6.0 * rng.random(rows)
    return logits, labels


def main() -> None:
    """Run the cells that are asked for and print their summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["300", "1000", "half"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--cells", type=Path)
    parser.add_argument("--boost", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--shapes", nargs="+")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.time or options.data is None:
        shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes or ()]
        times(shapes or SHAPES)
        return
    results = read_cells(options.cells)
    done = {(cell["set"], cell["size"], cell["seed"]) for cell in results}
    for path, size, seed in cells(options.data, options.sizes, options.seeds):
        if (Path(path).stem, size, seed) in done:
            continue
        one = measured(path, size, seed, options.boost)
        if one is None:
            continue
        results.append({"set": Path(path).stem, "size": size, "seed": seed, **one})
        reports = one["reports"]
        ratio = reports["blend + lift"]["nll"] / reports["ts"]["nll"]
        print(f"{Path(path).stem} {size} {seed}: {ratio:.3f}", flush=True)
        append_cell(options.cells, results[-1])
    summary(results)


if __name__ == "__main__":
    main()

"""What calibrators do to predictions on scikit-learn's digits, for the choice of the demo's data.

Run with ``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/demo_data.py``; it takes a
few minutes.  For every classifier, number of training rows and number of calibration rows it
prints the classifier's accuracy and ECE and, for four flexible calibrators used directly, the
share of predictions changed and the net change of accuracy in points: means of five splits.
docs/how-it-works/demo.md explains which line became the demo.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier

import cordcal

CLASSIFIERS: dict[str, Callable[[], ClassifierMixin]] = {
    "logistic regression, C = 10": lambda: LogisticRegression(C=10.0, max_iter=500),
    "logistic regression, C = 0.1": lambda: LogisticRegression(C=0.1, max_iter=500),
    "neural network": lambda: MLPClassifier((32,), max_iter=300, random_state=0),
    "linear discriminant": LinearDiscriminantAnalysis,
    "random forest": lambda: RandomForestClassifier(random_state=0),
    "5 nearest neighbours": KNeighborsClassifier,
    "multinomial naive Bayes": MultinomialNB,
    "Bernoulli naive Bayes": lambda: BernoulliNB(binarize=0.5),
}
CALIBRATORS = ("vs", "sms", "dir-odir", "irova")
TRAINING, CALIBRATION, SPLITS = (200, 400, 700), (150, 300, 600), 5


def measure(
    classifier: Callable[[], ClassifierMixin], training: int, calibration: int
) -> Iterator[list[float]]:
    """Yield accuracy, ECE, and changes and net points of each calibrator, for every split."""
    pixels, labels = load_digits(return_X_y=True)
    pixels = pixels / 16
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(labels))
        train, fit, test = np.split(order, [training, training + calibration])
        model = classifier().fit(pixels[train], labels[train])
        fit_scores, scores = model.predict_proba(pixels[fit]), model.predict_proba(pixels[test])
        own, truth = scores.argmax(axis=1), labels[test]
        figures = [np.mean(own == truth), cordcal.metrics.ece(scores, truth)]
        for key in CALIBRATORS:
            calibrator = cordcal.calibrators.make(key, input="probabilities")
            direct = calibrator.fit(fit_scores, labels[fit]).predict_proba(scores).argmax(axis=1)
            figures += [np.mean(direct != own), np.mean(direct == truth) - figures[0]]
        yield [100.0 * figure for figure in figures]


def main() -> None:
    warnings.simplefilter("ignore")
    heading = "".join(f"{key:>15}" for key in CALIBRATORS)
    print(f"{'classifier':29}{'train':>6}{'calib.':>7}{'accuracy':>9}{'ECE':>7}{heading}")
    for name, classifier in CLASSIFIERS.items():
        for training in TRAINING:
            for calibration in CALIBRATION:
                accuracy, ece, *changes = np.mean(
                    list(measure(classifier, training, calibration)), axis=0
                )
                pairs = zip(changes[::2], changes[1::2], strict=True)
                cells = "".join(f"{changed:8.2f} {net:+6.2f}" for changed, net in pairs)
                print(
                    f"{name:29}{training:6}{calibration:7}{accuracy:9.2f}{ece:7.2f}{cells}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""Write a classifier's logits, labels and penultimate features in the form a study reads.

Needs torch and, for the real data sets and weights, torchvision:

    python export_logits.py cifar100 cifar100_resnet56 --data ~/data --output resnet56.npz
    python export_logits.py imagenet resnet50 --data ~/imagenet --output resnet50.npz

CIFAR weights come from torch.hub (chenyaofo/pytorch-cifar-models), ImageNet weights from
torchvision with their own preprocessing.  The file goes into a study file as

    [[set]]
    group = "CIFAR-100"
    name = "ResNet-56"
    file = "resnet56.npz"

`export` does the work and takes any model and any loader.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

HUB = "chenyaofo/pytorch-cifar-models"
# Channel means and deviations that the CIFAR weights were trained with.
CIFAR_STATISTICS = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)),
}


def export(
    model: nn.Module,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    path: str | Path,
    *,
    class_names: list[str] | None = None,
    device: str = "cpu",
) -> None:
    """Run a model over batches of (inputs, labels) and write one npz file.

    The logits are kept in float32 as the model gives them: no softmax, no scaling.  The
    features are what enters the model's last linear layer; without one, none are written.
    """
    last = next((module for module in reversed(list(model.modules())) if _is_linear(module)), None)
    features: list[np.ndarray] = []

    def keep(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        features.append(inputs[0].flatten(1).float().cpu().numpy())

    hook = None if last is None else last.register_forward_pre_hook(keep)
    logits, labels = [], []
    model.to(device).eval()
    try:
        with torch.inference_mode():
            for inputs, truth in batches:
                logits.append(model(inputs.to(device)).float().cpu().numpy())
                labels.append(truth.numpy())
    finally:
        if hook is not None:
            hook.remove()
    columns: dict[str, Any] = {"logits": np.concatenate(logits), "labels": np.concatenate(labels)}
    if features:
        columns["features"] = np.concatenate(features)
    if class_names is not None:
        columns["class_names"] = np.array(class_names)
    np.savez_compressed(path, **columns)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear)


def cifar(name: str, model_name: str, data: Path) -> tuple[nn.Module, Any, list[str]]:
    """Return pretrained CIFAR weights, the test set in its own order, and the class names."""
    from torchvision import datasets, transforms

    mean, deviation = CIFAR_STATISTICS[name]
    steps = transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, deviation)])
    kind = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
    images = kind(str(data), train=False, download=True, transform=steps)
    model = torch.hub.load(HUB, model_name, pretrained=True, trust_repo=True)
    return model, images, list(images.classes)


def imagenet(model_name: str, data: Path) -> tuple[nn.Module, Any, list[str]]:
    """Return torchvision's default weights and the validation folder with their preprocessing."""
    from torchvision import datasets, models

    weights = models.get_model_weights(model_name).DEFAULT
    images = datasets.ImageNet(str(data), split="val", transform=weights.transforms())
    return models.get_model(model_name, weights=weights), images, weights.meta["categories"]


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", choices=["cifar10", "cifar100", "imagenet"])
    parser.add_argument("model", help="a torch.hub name (CIFAR) or a torchvision name (ImageNet)")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data set")
    parser.add_argument("--output", type=Path, required=True, help="the npz file to write")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args(arguments)
    if chosen.dataset == "imagenet":
        model, images, names = imagenet(chosen.model, chosen.data)
    else:
        model, images, names = cifar(chosen.dataset, chosen.model, chosen.data)
    # Not shuffled: files of several models then hold the same rows, and splits are shared.
    batches = torch.utils.data.DataLoader(images, batch_size=chosen.batch, num_workers=2)
    export(model, batches, chosen.output, class_names=names, device=chosen.device)
    print(f"{chosen.output}: {len(images):,} rows, {len(names):,} classes")


if __name__ == "__main__":
    main()

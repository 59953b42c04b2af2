"""Logistic regression by gradient descent: a probability out of measured features.

Each pass sums the gradient of the loss over the items of every slice; ``update`` moves the
weights against it (Nesterov's momentum), until no part of the gradient exceeds ``tolerance``.
The features are standardised first, so that one rate suits all of them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sapwood import Program, parameter
from sapwood.errors import DataMissingError, DataShapeError, DataValueError

DIVERGED = 1e100
"""A loss that no descent reaches: it starts at log(2)."""


class Logistic(Program):
    """Minimise the mean logistic loss plus ``penalty / 2`` times the squared weights.

    The intercept is not penalised. scikit-learn minimises the same with
    ``C = 1 / (penalty * number of items)``.
    """

    inputs = ("x", "y")
    reduce: ClassVar = {"gradient": "sum", "loss": "sum", "correct": "sum"}

    penalty: float = parameter(0.01, minimum=0.0, help="L2 penalty per item; 0 for none")
    rate: float = parameter(0.3, minimum=1e-6, maximum=10.0, help="length of a step")
    momentum: float = parameter(0.9, minimum=0.0, maximum=0.999, help="part of a step kept")
    tolerance: float = parameter(1e-9, minimum=0.0, help="largest part of the gradient at the end")
    max_iterations: int = parameter(10_000, minimum=1, help="steps, at most")

    def default_data(self) -> dict[str, Any]:
        """Return the breast-cancer data that scikit-learn ships: 569 items, 30 features."""
        try:
            from sklearn.datasets import load_breast_cancer  # noqa: PLC0415 - only without data
        except ImportError as error:
            raise DataMissingError(
                "the data come with scikit-learn, which is not installed",
                hint="pip install scikit-learn, or pass data={'x': …, 'y': …}",
            ) from error
        bunch = load_breast_cancer()
        return {"x": bunch.data, "y": bunch.target}

    def init(self, data: Any) -> dict[str, Any]:
        """Start from zero, and measure the features for standardising them."""
        x, y = data.array("x"), data.array("y")
        if x.ndim != 2 or y.ndim != 1:
            raise DataShapeError(
                f"x has shape {x.shape} and y has shape {y.shape}",
                where=data.origin,
                hint="give x as (items, features) and y as (items,)",
            )
        labels = np.unique(y)
        if not np.array_equal(labels, [0, 1]):
            raise DataValueError(
                f"y holds {labels[:5]}, not 0 and 1",
                where=data.origin,
                hint="code the classes 0, 1",
            )
        scale = x.std(axis=0)
        weights = np.zeros(x.shape[1] + 1)
        return {
            "items": len(x),
            "mean": x.mean(axis=0),
            "scale": np.where(scale > 0, scale, 1.0),
            "weights": weights,  # the last one is the intercept
            "ahead": weights,  # where momentum carries them: the gradient is taken there
            "iteration": 0,
        }

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as in Program
        """Sum gradient, loss and right answers over a slice."""
        return partial_sums(standardised(slice.x, state), slice.y, state["ahead"])

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Take one step."""
        items, ahead = state["items"], state["ahead"]
        penalised = self.penalty * np.append(ahead[:-1], 0.0)
        gradient = total["gradient"] / items + penalised
        weights = ahead - self.rate * gradient
        slope = float(np.abs(gradient).max())
        loss = float(total["loss"]) / items + 0.5 * float(penalised @ ahead)
        if not loss < DIVERGED:
            raise DataValueError(
                "the loss grows without bound",
                where=f"iteration {state['iteration']}",
                hint="give a smaller rate",
            )
        return {
            **state,
            "weights": weights,
            "ahead": weights + self.momentum * (weights - state["weights"]),
            "iteration": state["iteration"] + 1,
            "loss": loss,
            "slope": slope,
            "accuracy": float(total["correct"]) / items,
        }

    def done(self, state: dict[str, Any]) -> bool:
        """Stop at the tolerance, or at the limit."""
        return bool(state["slope"] <= self.tolerance or state["iteration"] >= self.max_iterations)

    def metrics(self, state: dict[str, Any]) -> dict[str, float]:
        """Show loss, slope and accuracy."""
        return {name: state[name] for name in ("loss", "slope", "accuracy") if name in state}

    def result(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the model; its coefficients belong to standardised features."""
        return {
            "coefficients": state["weights"][:-1],
            "intercept": float(state["weights"][-1]),
            "mean": state["mean"],
            "scale": state["scale"],
            "loss": state["loss"],
            "accuracy": state["accuracy"],
            "iterations": state["iteration"],
            "converged": state["slope"] <= self.tolerance,
        }


def standardised(x: np.ndarray[Any, Any], state: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the features with mean 0 and deviation 1, and a column of ones for the intercept."""
    return np.column_stack([(x - state["mean"]) / state["scale"], np.ones(len(x))])


def partial_sums(
    features: np.ndarray[Any, Any], y: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]
) -> dict[str, Any]:
    """Return the gradient and loss, summed over items, and the number of right answers."""
    score = features @ weights
    probability = np.exp(-np.logaddexp(0.0, -score))  # 1 / (1 + exp(-score)), without overflow
    return {
        "gradient": features.T @ (probability - y),
        "loss": float((np.logaddexp(0.0, score) - y * score).sum()),
        "correct": int(((score > 0) == (y > 0)).sum()),
    }

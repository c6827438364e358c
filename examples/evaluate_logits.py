"""Measure logits from a model this package never saw: here, scikit-learn's logistic regression."""

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

import regmixup as rm

train, val, test = (rm.data.load(f"digits/{split}") for split in ("train", "val", "test"))
ood = rm.data.load("photographs/test")


def flat(images: torch.Tensor) -> np.ndarray:
    return images.flatten(1).numpy() / 255


classifier = LogisticRegression(max_iter=500).fit(flat(train.images), train.labels)


def predictions(data, name: str) -> rm.Predictions:
    logits = torch.from_numpy(classifier.decision_function(flat(data.images)))
    return rm.Predictions(logits, data.labels, dataset=name)


rows = rm.evaluate(
    predictions(test, "digits/test"),
    validation=predictions(val, "digits/val"),
    ood=[predictions(ood, "photographs/test")],
)
for row in rows:
    print(f"{row.dataset:18} {row.posthoc:12} {row.score:16} {row.metric:12} {row.value:.4f}")

"""Hugging Face's Trainer: the example's `compute_loss` gives our own loop's gradient, and the naive ways do not.

Four batches of digits with float labels are accumulated for one update.
"""

import pytest
import torch
from torch.nn import functional as F

import regmixup as rm
from tests.frameworks import BATCH, OBJECTIVE, batches, example, gradient_of, own_loop, seeded

STEPS = 4
# Their labels are soft on purpose, of which a transform warns once.
pytestmark = pytest.mark.filterwarnings("ignore:y must be class indices or one-hot rows")


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        config = ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=10, **sizes)
        return ViTForImageClassification(config).double()


def collate(rows):
    return {key: torch.stack([row[key] for row in rows]) for key in ("pixel_values", "labels")}


def train(tmp_path, make, *, transform=None, **options):
    """Make one update with a trainer; return its gradient and the batches it saw, before `transform`."""
    from transformers import TrainerCallback, TrainingArguments

    seen, gradients = [], []

    class Catch(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
            gradients.append(gradient_of(model))

    def collated(rows):
        batch = collate(rows)
        seen.append((batch["pixel_values"], batch["labels"]))
        return dict(zip(batch, transform(*batch.values()), strict=True)) if transform else batch

    x, y = (torch.cat(column) for column in zip(*batches(STEPS, soft=True), strict=True))
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no"}
    arguments = TrainingArguments(
        str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=STEPS,
        max_grad_norm=0.0,
        use_cpu=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        **quiet,
    )
    rows = [{"pixel_values": a, "labels": b} for a, b in zip(x, y, strict=True)]
    model = vit()
    make(model, arguments, train_dataset=rows, data_collator=collated, callbacks=[Catch()], **options).train()
    assert len(gradients) == 1
    return gradients[0], seen, model


def own_gradient(seen):
    assert len(seen) == STEPS
    return own_loop(vit(), seen, accumulate=STEPS, generator=seeded())[1][0]


def as_transform():
    """Return the objective as a transform of batches with a generator of its own."""
    transform, generator = rm.BatchTransform(OBJECTIVE, num_classes=10), seeded()
    return lambda x, y: transform(x, y, generator)


def ratio(found, expected):
    """Return how many times as long one gradient is, and check that it has the direction of the other."""
    torch.testing.assert_close(F.cosine_similarity(found, expected, dim=0), found.new_tensor(1.0))
    return float(found.norm() / expected.norm())


def test_the_example_accumulates_our_own_gradient_with_float_labels(tmp_path):
    trainer = example("in_huggingface")["ObjectiveTrainer"]
    found, seen, _ = train(tmp_path, trainer, objective=OBJECTIVE, generator=seeded())
    assert seen[0][1].is_floating_point()
    torch.testing.assert_close(found, own_gradient(seen), rtol=0, atol=1e-6)


def test_a_transform_as_the_collator_does_so_too_with_the_right_loss(tmp_path):
    class SoftTargets(example("in_huggingface")["ObjectiveTrainer"]):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return F.cross_entropy(model(pixel_values=inputs["pixel_values"]).logits, inputs["labels"])

    found, seen, _ = train(tmp_path, SoftTargets, transform=as_transform(), objective=None)
    torch.testing.assert_close(found, own_gradient(seen), rtol=0, atol=1e-6)


def test_the_trainers_own_label_smoothing_is_refused_and_the_loss_named(tmp_path):
    from transformers import TrainingArguments

    arguments = TrainingArguments(str(tmp_path), label_smoothing_factor=0.1, use_cpu=True)
    with pytest.raises(ValueError, match=r"^label_smoothing_factor must be 0: .*CrossEntropy\(smoothing="):
        example("in_huggingface")["ObjectiveTrainer"](vit(), arguments, objective=OBJECTIVE)


def test_trap_1_float_labels_silently_become_binary_cross_entropy(tmp_path):
    from transformers import Trainer

    found, seen, model = train(tmp_path, Trainer, transform=as_transform())
    assert model.config.problem_type == "multi_label_classification"  # nobody asked for that
    expected = own_gradient(seen)
    assert (found - expected).norm() > 0.5 * expected.norm()
    x, y = seen[0]
    outputs = vit()(pixel_values=x, labels=y)
    torch.testing.assert_close(outputs.loss, F.binary_cross_entropy_with_logits(outputs.logits, y))


def mean_loss(outputs, labels, num_items_in_batch=None):
    return F.cross_entropy(outputs.logits, labels)


def test_trap_2_a_mean_loss_as_compute_loss_func_has_k_times_the_gradient(tmp_path):
    from transformers import Trainer

    found, seen, _ = train(tmp_path, Trainer, transform=as_transform(), compute_loss_func=mean_loss)
    assert ratio(found, own_gradient(seen)) == pytest.approx(STEPS, rel=1e-4)

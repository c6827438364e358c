"""RegMixup in Hugging Face's Trainer: the right `compute_loss`, also with gradient accumulation and soft labels."""

import torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import regmixup as rm


class ObjectiveTrainer(Trainer):
    """A Trainer of image classifiers for any objective. generator: of the mixing; None is torch's global one."""

    loss_is_scaled_for_ga = False  # a mean over the batch, which the Trainer divides by the accumulated batches

    def __init__(self, *args, objective, generator=None, **options):
        super().__init__(*args, **options)
        if self.args.label_smoothing_factor:  # the Trainer's own smoother, which this loss never calls
            raise ValueError("label_smoothing_factor must be 0: smooth by loss=rm.losses.CrossEntropy(smoothing=...)")
        self.objective, self.generator = objective, generator
        self.model_accepts_loss_kwargs = False  # says the same to transformers before 5.20

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        x, y = inputs["pixel_values"], inputs["labels"]
        if model.training:
            return self.objective(lambda x: model(pixel_values=x).logits, x, y, generator=self.generator).loss
        outputs = model(pixel_values=x)  # without labels: float ones would give binary cross-entropy
        loss = torch.nn.functional.cross_entropy(outputs.logits, y)
        return (loss, outputs) if return_outputs else loss


def rows(data):
    return [{"pixel_values": (x / 255 - 0.3) / 0.4, "labels": y} for x, y in zip(data.images, data.labels, strict=True)]


def accuracy(predicted):
    return {"accuracy": (predicted.predictions.argmax(axis=1) == predicted.label_ids).mean().item()}


def main():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    digits = {"image_size": 8, "patch_size": 4, "num_channels": 1, "num_labels": 10, "initializer_range": 0.1}
    model = ViTForImageClassification(ViTConfig(**sizes, **digits))
    steps = {"num_train_epochs": 10, "per_device_train_batch_size": 16, "gradient_accumulation_steps": 2}
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no"}
    quiet |= {"remove_unused_columns": False, "dataloader_pin_memory": torch.cuda.is_available()}
    trainer = ObjectiveTrainer(
        model,
        TrainingArguments("output", learning_rate=5e-3, **steps, **quiet),
        train_dataset=rows(rm.data.load("digits/train")),
        eval_dataset=rows(rm.data.load("digits/test")),
        compute_metrics=accuracy,
        objective=rm.RegMixup(alpha=20),
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()

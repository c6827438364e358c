"""What is done to predictions after training: fitted on validation predictions, mapping predictions to predictions."""

from regmixup.posthoc.temperature import FittedTemperature, TemperatureScaling

__all__ = ["FittedTemperature", "TemperatureScaling"]

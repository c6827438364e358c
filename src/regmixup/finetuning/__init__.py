"""From a folder of photographs to a model to use: `regmixup finetune PHOTOS`, `rm.finetune(path)`."""

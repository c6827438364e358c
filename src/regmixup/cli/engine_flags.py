"""The flags that say how training is carried out: the fields of `Engine`, explained by their own texts."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import FlagCreatePairsOff, arg

from regmixup.training.engine import Engine

EngineFlags = Annotated[FlagCreatePairsOff[Engine], arg(name="")]

"""Calibration: with temperature scaling Tables 6 to 8 (AdaECE) and 15 to 17 (ECE), without 10 and 11 (AdaECE)."""

from regmixup.report.paper.transcript import PaperTable, read_table

_TEST = (
    """
            | IND:4
            | WRN28-10:2 | RN50:2
            | C10 (Test) | C100 (Test) | C10 (Test) | C100 (Test)
    Methods | {title} (↓):2 | {title} (↓):2
    """,
    """
    wrn28-10 cifar10 {metric} : cifar10/test
    wrn28-10 cifar100 {metric} : cifar100/test
    resnet50 cifar10 {metric} : cifar10/test
    resnet50 cifar100 {metric} : cifar100/test
    """,
)
_IMAGENET = (
    """
     | IND | Covariate Shift:4
     | ImageNet-1K (Test) | ImageNet-R | ImageNet-A | ImageNet-V2 | ImageNet-Sk
     | {title} (↓) | {title} (↓) | {title} (↓) | {title} (↓) | {title} (↓)
    """,
    """
    timm/resnet50 imagenet {metric} : imagenet/val-test imagenet-r/test imagenet-a/test
    timm/resnet50 imagenet {metric} : imagenet-v2/test imagenet-sketch/test
    """,
)
_SHIFT = (
    """
            | Covariate Shift:8
            | WRN28-10:4 | R50:4
            | C10-C | C10.1 | C10.2 | C100-C | C10-C | C10.1 | C10.2 | C100-C
    Methods | {title} (↓):4 | {title} (↓):4
    """,
    """
    wrn28-10 cifar10 {metric} : cifar10-c cifar10.1/test cifar10.2/test
    wrn28-10 cifar100 {metric} : cifar100-c
    resnet50 cifar10 {metric} : cifar10-c cifar10.1/test cifar10.2/test
    resnet50 cifar100 {metric} : cifar100-c
    """,
)
"""Headings and keys that tables of AdaECE and of ECE share."""


def _read_table(
    number: str, caption: str, layout: tuple[str, str], body: str, posthoc: str = "temperature"
) -> PaperTable:
    """Read a table of the metric that its caption begins with."""
    title = caption.partition(" ")[0]
    metric = {"AdaECE": "adaptive_ece", "ECE": "ece"}[title]
    head, keys = (text.format(title=title, metric=metric) for text in layout)
    return read_table(number, caption, head=head, keys=keys, body=body, posthoc=posthoc)


ADAECE_TEST = _read_table(
    "6",
    "AdaECE (%) after temperature scaling on the test sets of CIFAR-10 and CIFAR-100",
    _TEST,
    body="""
    DNN            | 1.34    3.84    1.45    2.94
    Mixup          | 1.16    1.98    2.17    7.47
    RegMixup (our) | 0.50*_  1.76*_  0.94*_  1.53*_
    ---
    SNGP           | 0.87    1.94    -       -
    Augmix         | 1.67    5.54    -       -
    ---
    DE (5×)        | 1.04    3.29    1.28    2.98
    """,
)

ADAECE_IMAGENET = _read_table(
    "7",
    "AdaECE (%) after temperature scaling on ImageNet and under covariate shift",
    _IMAGENET,
    body="""
    DNN            | 1.81    13.56    44.90    4.13    14.48
    Mixup          | 1.29*_  12.08    44.63    4.28    15.26
    RegMixup (our) | 1.37    13.30    41.18*_  3.38*_  15.35
    ---
    AugMix         | 2.05    11.24*_  42.83    3.94    14.26*_
    ---
    DE (5×)        | 1.38    13.55    42.88    4.02    17.32
    """,
)

ADAECE_SHIFT = _read_table(
    "8",
    "AdaECE (%) after temperature scaling under covariate shift, trained on CIFAR-10 and CIFAR-100",
    _SHIFT,
    body="""
    DNN            | 12.62   4.13    8.81    9.94    12.29    4.36    8.89    19.76
    Mixup          | 7.93    4.39    7.44    10.45   10.75*_  5.72    10.59   12.63
    RegMixup (our) | 9.08    2.57*_  6.83*_  7.93*_  11.37    2.89*_  6.74*_  11.47*_
    ---
    SNGP           | 11.34   4.36    8.33    10.43   -        -       -       -
    AugMix         | 4.56*_  3.23    8.33    12.15   -        -       -       -
    ---
    DE (5 ×)       | 10.31   2.60    7.50    12.36   12.68    4.10    6.94    12.36
    """,
)

ECE_TEST = _read_table(
    "15",
    "ECE (%) after temperature scaling on the test sets of CIFAR-10 and CIFAR-100",
    _TEST,
    body="""
    DNN            | 1.26    3.88    1.38    3.05
    Mixup          | 0.94    1.16    0.59*_  7.49
    RegMixup (our) | 0.62*_  1.65*_  0.62    1.51*_
    ---
    SNGP           | 0.84    1.95    -       -
    Augmix         | 1.67    5.54    -       -
    ---
    DE (5×)        | 0.81    3.31    1.27    3.15
    """,
)

ECE_IMAGENET = _read_table(
    "16",
    "ECE (%) after temperature scaling on ImageNet and under covariate shift",
    _IMAGENET,
    body="""
    DNN            | 1.85    13.52    44.91    4.17    14.51
    Mixup          | 1.34*_  12.13    44.65    4.34    15.32
    RegMixup (our) | 1.38    13.32    41.23*_  3.41*_  15.37
    ---
    AugMix         | 2.08    11.31*_  42.85    3.97    14.32*_
    ---
    DE (5×)        | 1.39    13.59    42.92    4.07    17.34
    """,
)

ECE_SHIFT = _read_table(
    "17",
    "ECE (%) after temperature scaling under covariate shift, trained on CIFAR-10 and CIFAR-100",
    _SHIFT,
    body="""
    DNN            | 12.64   4.29    9.03    9.96    12.31    4.53    8.97    19.80
    Mixup          | 7.54    4.28    7.40    10.32   10.23*_  5.59    10.59   13.57
    RegMixup (our) | 9.56    2.87*_  6.92*_  7.98*_  12.61    3.25*_  6.73*_  12.87*
    ---
    SNGP           | 11.33   4.32    8.68    10.45   -        -       -       -
    AugMix         | 4.78*_  3.55    8.42    12.19   -        -       -       -
    ---
    DE (5 ×)       | 10.11   2.98    7.53    12.43   13.12    4.32    7.10    12.53_
    """,
)

ADAECE_UNSCALED_CIFAR10 = read_table(
    "10 left",
    "AdaECE (%) without temperature scaling, trained on CIFAR-10",
    head="""
    Methods | Clean | CIFAR-10-C | CIFAR 10.1 | CIFAR 10.2
            | AdaECE (↓) | AdaECE (↓) | AdaECE (↓) | AdaECE (↓)
    """,
    keys="""
    * cifar10 adaptive_ece : cifar10/test cifar10-c cifar10.1/test cifar10.2/test
    """,
    body="""
    == C10 R50
    DNN             | 3.02    17.30    7.39    12.24
    Mixup           | 2.87    11.35*_  4.05*_  7.72*_
    RegMixup (Ours) | 1.40    11.51    4.15    8.23
    ---
    DE (5×)         | 2.10    13.99    6.23    10.33
    == C10 WRN
    DNN             | 2.27    15.92    6.00    11.00
    Mixup           | 2.23    7.93*_   7.22    6.58*_
    RegMixup (Ours) | 0.67*_  8.36     3.02*_  7.03
    ---
    SNGP            | 1.51    11.33    5.59    10.85
    AugMix          | 1.89    5.77*_   4.10    9.61
    ---
    DE (5×)         | 1.74    13.52    4.33    9.44
    """,
)

ADAECE_UNSCALED_CIFAR100 = read_table(
    "10 right",
    "AdaECE (%) without temperature scaling, trained on CIFAR-100",
    head="""
    Methods | Clean | CIFAR-100-C
            | AdaECE (↓) | AdaECE (↓)
    """,
    keys="""
    * cifar100 adaptive_ece : cifar100/test cifar100-c
    """,
    body="""
    == C100 R50
    DNN             | 9.47  25.17
    Mixup           | 7.47  21.52
    RegMixup (Ours) | 3.92  13.68
    ---
    DE (5×)         | 6.50  19.76
    == C100 WRN
    DNN             | 5.30  17.38
    Mixup           | 3.60  16.54
    RegMixup (Ours) | 2.47  10.49
    ---
    SNGP            | 5.65  10.89
    AugMix          | 5.23  13.67
    ---
    DE (5×)         | 3.92  13.47
    """,
)

ADAECE_UNSCALED_IMAGENET = _read_table(
    "11",
    "AdaECE (%) without temperature scaling on ImageNet and under covariate shift",
    _IMAGENET,
    body="""
    DNN            | 4.90    20.48    52.30    9.58    22.94
    Mixup          | 2.28*_  14.70*_  47.41    6.46    18.26*_
    RegMixup (our) | 3.06    17.42    45.65*_  7.34    20.85
    ---
    AugMix         | 4.28    19.13    51.35    3.94*_  21.25
    ---
    DE (5×)        | 3.61    17.32    51.64    7.94    19.35
    """,
    posthoc="none",
)

"""Calibration without temperature scaling: Tables 10 and 11."""

from regmixup.report.paper.transcript import read_table

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

ADAECE_UNSCALED_IMAGENET = read_table(
    "11",
    "AdaECE (%) without temperature scaling on ImageNet and under covariate shift",
    head="""
     | IND | Covariate Shift:4
     | ImageNet-1K (Test) | ImageNet-R | ImageNet-A | ImageNet-V2 | ImageNet-Sk
     | AdaECE (↓) | AdaECE (↓) | AdaECE (↓) | AdaECE (↓) | AdaECE (↓)
    """,
    keys="""
    timm/resnet50 imagenet adaptive_ece : imagenet/val-test imagenet-r/test imagenet-a/test
    timm/resnet50 imagenet adaptive_ece : imagenet-v2/test imagenet-sketch/test
    """,
    body="""
    DNN            | 4.90    20.48    52.30    9.58    22.94
    Mixup          | 2.28*_  14.70*_  47.41    6.46    18.26*_
    RegMixup (our) | 3.06    17.42    45.65*_  7.34    20.85
    ---
    AugMix         | 4.28    19.13    51.35    3.94*_  21.25
    ---
    DE (5×)        | 3.61    17.32    51.64    7.94    19.35
    """,
)

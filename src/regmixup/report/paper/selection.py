"""The selected values, and the cross-validations behind them: Tables 9 and 12 to 14."""

from regmixup.report.paper.transcript import read_table

HYPERPARAMETERS = read_table(
    "9",
    "Selected hyper-parameters: T and σ₀ by ECE, all others by accuracy",
    head="""
    Train Data/  | Hyperparas | C10:2 | C100:2 | ImageNet
    Architecture |  | WRN | R50 | WRN | R50 |
    """,
    keys="""
    wrn28-10 cifar10 selected : cifar10/test
    resnet50 cifar10 selected : cifar10/test
    wrn28-10 cifar100 selected : cifar100/test
    resnet50 cifar100 selected : cifar100/test
    timm/resnet50 imagenet selected : imagenet/val-test
    """,
    body="""
    DNN; T              | 1.32  1.51  1.33  1.42  1.19
    ---
    DNN-SN; c           | 0.5   0.5   0.5   0.5   -
    DNN-SN; T           | 1.42  1.51  1.21  1.42  -
    ---
    DNN-SR; r           | 0.3   0.3   0.3   0.3   -
    DNN-SR; T           | 1.33  1.41  1.22  1.42  -
    ---
    DE; T               | 1.31  1.42  1.11  1.21  1.29
    ---
    SNGP; T             | 1.41  -     1.52  -     -
    ---
    Mixup; α            | 0.3   0.3   0.3   0.3   0.1
    Mixup; T            | 0.73  0.82  1.09  1.21  1.06
    ---
    RegMixup; η = 1, α  | 20    20    10    10    10
    RegMixup; T         | 1.12  1.31  1.23  1.21  1.14
    ---
    KFAC-LLLA; #samples | 1000  1000  1000  1000  .
    KFAC-LLLA; σ₀       | 1     0.6   4     0.1   -
    """,
    marked=False,
)

MIXUP_GRID = read_table(
    "12 left",
    "Mixup: validation accuracy (%) for each α",
    head="""
      | WRN28-10:2 | RN50:2
      | CIFAR10 (Val) | CIFAR100 (Val) | CIFAR10 (Val) | CIFAR100 (Val)
    α | Accuracy:4
    """,
    keys="""
    wrn28-10 cifar10 accuracy : cifar10/val-10
    wrn28-10 cifar100 accuracy : cifar100/val-10
    resnet50 cifar10 accuracy : cifar10/val-10
    resnet50 cifar100 accuracy : cifar100/val-10
    """,
    body="""
    0.1 | 96.06  81.04  95.35  79.60
    0.2 | 96.46  80.91  95.21  80.11
    0.3 | 96.77  81.06  95.36  80.31
    0.4 | 96.71  81.01  95.26  78.93
    0.5 | 96.70  80.99  95.28  78.91
    1   | 96.74  80.66  94.96  78.79
    5   | 96.62  79.84  94.98  77.74
    10  | 96.54  79.24  94.94  75.76
    20  | 96.26  78.40  95.16  75.56
    """,
    marked=False,
)

MIXUP_GRID_IMAGENET = read_table(
    "12 right",
    "Mixup on ImageNet: validation accuracy (%) for each α",
    head="""
      | RN50
      | ImageNet
    α | Accuracy
    """,
    keys="""
    timm/resnet50 imagenet accuracy : imagenet/val-tune
    """,
    body="""
    0.1 | 77.10
    0.2 | 77.02
    1   | 76.19
    10  | 72.17
    20  | 71.51
    """,
    marked=False,
)

MIXUP_GRID_OTHERS = read_table(
    "13",
    "Mixup with two further networks: validation accuracy (%) for each α",
    head="""
      | DenseNet-121:2 | PyramidNet-200:2
      | CIFAR10 (Val) | CIFAR100 (Val) | CIFAR10 (Val) | CIFAR100 (Val)
    α | Accuracy:4
    """,
    keys="""
    densenet121 cifar10 accuracy : cifar10/val-10
    densenet121 cifar100 accuracy : cifar100/val-10
    pyramidnet200 cifar10 accuracy : cifar10/val-10
    pyramidnet200 cifar100 accuracy : cifar100/val-10
    """,
    body="""
    0.1 | 95.89  80.54  96.71  82.34
    0.2 | 96.10  80.80  96.70  82.17
    0.3 | 96.21  80.80  96.67  81.70
    0.4 | 96.06  79.71  96.79  82.62
    0.5 | 95.98  80.17  96.92  81.90
    1   | 96.07  79.08  96.89  81.80
    10  | 95.93  75.76  96.69  79.50
    20  | 95.74  76.03  96.60  78.75
    """,
    marked=False,
)

REGMIXUP_GRID = read_table(
    "14",
    "RegMixup: validation accuracy (%) for each α and η",
    head="""
        | WRN28-10:6 | RN50:6
        | CIFAR10 (Val):3 | CIFAR100 (Val):3 | CIFAR10 (Val):3 | CIFAR100 (Val):3
        | Accuracy:12
    α/η | 0.1 | 1 | 2 | 0.1 | 1 | 2 | 0.1 | 1 | 2 | 0.1 | 1 | 2
    """,
    keys="""
    wrn28-10 cifar10 accuracy : cifar10/val-10[eta=0.1] cifar10/val-10[eta=1] cifar10/val-10[eta=2]
    wrn28-10 cifar100 accuracy : cifar100/val-10[eta=0.1] cifar100/val-10[eta=1] cifar100/val-10[eta=2]
    resnet50 cifar10 accuracy : cifar10/val-10[eta=0.1] cifar10/val-10[eta=1] cifar10/val-10[eta=2]
    resnet50 cifar100 accuracy : cifar100/val-10[eta=0.1] cifar100/val-10[eta=1] cifar100/val-10[eta=2]
    """,
    body="""
    0.1 | 96.12  96.02  96.38  80.08  80.86  80.96  94.32  95.02  94.48  78.56  79.84  77.92
    0.2 | 96.14  96.00  96.82  80.60  81.96  81.22  94.84  95.44  95.26  78.48  79.18  78.12
    0.3 | 95.82  96.68  96.34  80.92  81.82  80.94  94.62  95.46  95.48  78.38  79.74  78.21
    0.4 | 96.28  96.58  96.48  80.82  81.62  81.00  94.92  95.74  95.46  78.32  79.85  78.17
    0.5 | 96.08  96.88  96.44  81.00  81.20  81.38  94.72  96.04  95.24  78,56  79.34  78.29
    1   | 96.36  97.00  96.96  81.58  81.72  80.68  95.36  95.98  96.00  79.14  79.88  78.62
    5   | 96.50  97.14  97.22  82.00  81.94  81.04  95.86  96.26  96.04  79.42  80.13  78.30
    10  | 96.54  97.16  97.28  80.98  82.51  80.60  95.28  95.58  96.32  80.36  80.65  79.16
    15  | 96.65  97.27  97.18  81.38  82.16  80.59  95.15  96.10  96.34  79.72  80.32  78.80
    20  | 96.72  97.32  97.16  81.58  82.27  80.62  95.46  96.50  96.38  79.68  80.18  78.76
    30  | 96.74  97.28  97.28  82.48  81.94  80.40  95.66  96.46  95.90  79.39  79.78  79.22
    """,
    marked=False,
)

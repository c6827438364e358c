"""Accuracy and out-of-distribution detection: Tables 1 to 5, and with other vicinal distributions 18 and 19."""

from regmixup.report.paper.transcript import read_table

SUMMARY = read_table(
    "1",
    "WRN28-10 trained on CIFAR-10: accuracy on the test set and under corruption, AUROC of OOD detection (%)",
    head="""
           |  | Cov. Shift | OOD Detection:3
           | C10 (Test) | C10-C | C100 | SVHN | T-ImageNet
    Models | Accuracy (↑) | Accuracy (↑) | AUROC (↑) | AUROC (↑) | AUROC (↑)
    """,
    keys="""
    wrn28-10 cifar10 accuracy : cifar10/test cifar10-c
    wrn28-10 cifar10 auroc : cifar100/test svhn/test tiny-imagenet/val
    """,
    body="""
    DNN            | 96.14   76.60   88.61   96.00   86.44
    Mixup          | 97.01   81.68   83.17   87.53   84.02
    RegMixup (Our) | 97.46*  83.13*  89.63*  96.72*  90.19*
    """,
)

TEST_ACCURACY = read_table(
    "2",
    "Accuracy (%) on the test sets of CIFAR-10 and CIFAR-100",
    head="""
            | IND Accuracy:4
            | WRN28-10:2 | RN50:2
            | C10 (Test) | C100 (Test) | C10 (Test) | C100 (Test)
    Methods | Accuracy (↑):2 | Accuracy (↑):2
    """,
    keys="""
    wrn28-10 cifar10 accuracy : cifar10/test
    wrn28-10 cifar100 accuracy : cifar100/test
    resnet50 cifar10 accuracy : cifar10/test
    resnet50 cifar100 accuracy : cifar100/test
    """,
    body="""
    DNN            | 96.14    81.58   95.19    79.19
    Mixup          | 97.01    82.60   96.05    80.12
    RegMixup (our) | 97.46*_  83.25*  96.71*_  81.52*
    ---
    DNN-SN         | 96.22    81.60   95.20    79.27
    DNN-SRN        | 96.22    81.38   95.39    78.96
    SNGP           | 95.98    79.20   -        -
    DUQ            | 94.7     -       -        -
    KFAC-LLLA      | 96.11    81.56   95.21    79.41
    Augmix         | 96.40    81.10   -        -
    ---
    DE (5×)        | 96.75    83.85_  96.23    82.09_
    """,
)

SHIFT_ACCURACY = read_table(
    "3",
    "Accuracy (%) under covariate shift, trained on CIFAR-10 and CIFAR-100",
    head="""
            | Covariate Shift Accuracy:8
            | WRN28-10:4 | R50:4
            | C10-C | C10.1 | C10.2 | C100-C | C10-C | C10.1 | C10.2 | C100-C
    Methods | Accuracy (↑):4 | Accuracy (↑):4
    """,
    keys="""
    wrn28-10 cifar10 accuracy : cifar10-c cifar10.1/test cifar10.2/test
    wrn28-10 cifar100 accuracy : cifar100-c
    resnet50 cifar10 accuracy : cifar10-c cifar10.1/test cifar10.2/test
    resnet50 cifar100 accuracy : cifar100-c
    """,
    body="""
    DNN            | 76.60    90.73    84.79    52.54    75.18    88.58    83.31    50.62
    Mixup          | 81.68    91.29    86.55    56.99    78.63    90.03    84.61    53.96
    RegMixup (our) | 83.13    92.79*_  88.05*_  59.44    81.18*_  91.58*_  86.72*_  57.64*_
    ---
    DNN-SN         | 76.56    91.01    84.72    52.61    74.88    88.26    82.96    50.55
    DNN-SRN        | 77.21    90.88    85.24    52.54    75.40    88.61    83.49    50.48
    SNGP           | 78.37    90.80    84.95    57.23    -        -        -        -
    DUQ            | 71.6     -        -        50.4     -        -        -        -
    KFAC-LLLA      | 76.56    90.68    84.68    52.57    75.18    88.34    83.50    50.85
    AugMix         | 90.02*_  91.6     85.9     68.15*_  -        -        -        -
    ---
    DE (× 5)       | 78.32    92.17    85.59    55.58    77.63    90.05    85.00    53.91
    """,
)

IMAGENET = read_table(
    "4",
    "ResNet-50 on ImageNet: accuracy on the test set and under covariate shift, AUROC of OOD detection (%)",
    head="""
     | IND Acc. | Covariate Shift Acc:4 | OOD Det.
     | ImageNet-1K | R | A | V2 | Sk | O
     | Acc (↑) | Acc (↑) | Acc (↑) | Acc (↑) | Acc (↑) | AUROC (↑)
    """,
    keys="""
    timm/resnet50 imagenet accuracy : imagenet/val-test imagenet-r/test imagenet-a/test
    timm/resnet50 imagenet accuracy : imagenet-v2/test imagenet-sketch/test
    timm/resnet50 imagenet auroc : imagenet-o/test
    """,
    body="""
    DNN            | 76.60   36.41    2.76    64.53   24.72   55.97
    Mixup          | 77.15   39.05    3.29    64.58   26.34   55.54
    RegMixup (our) | 77.68*  39.76*_  5.96*_  65.66*  26.98*  57.05*_
    ---
    AugMix         | 76.88   38.29    2.63    64.94   25.61   56.91
    ---
    DE (5×)        | 78.22_  38.94    2.11    66.68_  27.03_  53.29
    """,
)

DETECTION = read_table(
    "5",
    "AUROC (%) of OOD detection, trained on CIFAR-10 and CIFAR-100",
    head="""
                        | WRN28-10:6 | RN50:6
                        | CIFAR10 (In-Distribution):3 | CIFAR100 (In-Distribution):3 \
                        | CIFAR10 (In-Distribution):3 | CIFAR100 (In-Distribution):3
    Out-of-Distribution | C100 | SVHN | T-ImageNet | C10 | SVHN | T-ImageNet \
                        | C100 | SVHN | T-ImageNet | C10 | SVHN | T-ImageNet
    Methods             | AUROC (↑):3 | AUROC (↑):3 | AUROC (↑):3 | AUROC (↑):3
    """,
    keys="""
    wrn28-10 cifar10 auroc : cifar100/test svhn/test tiny-imagenet/val
    wrn28-10 cifar100 auroc : cifar10/test svhn/test tiny-imagenet/val
    resnet50 cifar10 auroc : cifar100/test svhn/test tiny-imagenet/val
    resnet50 cifar100 auroc : cifar10/test svhn/test tiny-imagenet/val
    """,
    body="""
    DNN            | 88.61   96.00   86.44    81.06   79.68    80.99   88.61   93.20    87.82   79.33   82.45    79.89
    Mixup          | 83.17   87.53   84.02    78.37   78.68    80.61   84.24   89.40    84.89   77.02   76.86    80.14
    RegMixup (our) | 89.63   96.72*  90.19*_  81.27*  89.32*_  83.13*  89.63*  95.39*_  90.04*  79.44*  88.66*_  82.56*_
    ---
    DNN-SN         | 88.56   95.59   87.71    81.10   83.43    82.26   88.19   93.46    87.55   79.20   80.78    79.90
    DNN-SRN        | 88.46   96.12   87.43    81.26   85.51    82.41   88.82   93.54    87.82   78.77   82.39    79.70
    SNGP           | 90.61*  95.25   90.01    79.05   86.78    82.60   -       -        -       -       -        -
    KFAC-LLLA      | 89.33   94.17   87.81    81.04   80.32    81.57   89.54   93.13    88.32   79.30   82.80    80.17
    Aug-Mix        | 89.78   91.3    88.99    81.10   76.64    80.56   -       -        -       -       -        -
    ---
    DE (5×)        | 91.25_  97.53_  89.52    83.26_  85.07    83.40_  91.38_  96.90    90.5    81.93_  85.08    82.15
    """,
)

VICINAL_CIFAR10 = read_table(
    "18",
    "Other vicinal distributions on CIFAR-10: accuracy, and AUROC of OOD detection (%)",
    head="""
            | I.I.D. | Covariate Shift:3 | O.O.D.:3
            | C10 | C10-C | C10.2 | C10.1 | C100 | SVHN | T-ImageNet
    Methods | Accuracy (↑):4 | AUROC (↑):3
    """,
    keys="""
    * cifar10 accuracy : cifar10/test cifar10-c cifar10.2/test cifar10.1/test
    * cifar10 auroc : cifar100/test svhn/test tiny-imagenet/val
    """,
    body="""
    == WRN28-10
    RegMixup               | 97.46*  83.13*  88.05   92.79   89.63   96.72*  90.19
    CutMix                 | 96.70   71.40   87.06   91.18   88.65   92.25   91.70*
    RegCutMix              | 96.79   71.26   86.84   92.10   89.24   89.47   91.68*
    Vit-Mixup+CutMix       | 97.23   77.60   87.85   92.30   89.23   83.46   90.86
    ViT-RegMixup+CutMix    | 97.30   78.67   88.42   93.15   89.03   91.62   89.41
    ViT-RegMixup+RegCutMix | 97.47   79.10   88.79*  93.35*  89.93*  94.18   90.39
    == R50
    RegMixup               | 96.71   81.18*  86.72   91.58*  89.63*  95.39*  90.04*
    CutMix                 | 96.27   70.63   85.35   90.35   85.88   83.03   87.43
    RegCutMix              | 95.85   70.22   84.64   90.31   85.10   84.76   87.36
    ViT-Mixup+CutMix       | 96.87*  76.36   87.05*  90.75   89.19   93.39   89.76
    ViT-RegMixup+CutMix    | 96.60   77.21   86.30   90.97   84.22   87.90   85.87
    ViT-RegMixup+RegCutMix | 96.47   75.36   86.01   91.28   86.36   87.21   88.42
    """,
)

VICINAL_CIFAR100 = read_table(
    "19",
    "Other vicinal distributions on CIFAR-100: accuracy, and AUROC of OOD detection (%)",
    head="""
            | I.I.D. | Covariate Shift | O.O.D.:3
            | C100 | C100-C | C10 | SVHN | T-ImageNet
    Methods | Accuracy (↑):2 | AUROC (↑):3
    """,
    keys="""
    * cifar100 accuracy : cifar100/test cifar100-c
    * cifar100 auroc : cifar10/test svhn/test tiny-imagenet/val
    """,
    body="""
    == WRN28-10
    RegMixup (Ours)        | 83.25   59.44*  81.27*  89.32   83.13*
    CutMix                 | 81.73   46.64   79.06   85.22   81.07
    RegCutMix              | 82.30   47.37   80.99   84.42   81.85
    ViT-Mixup+CutMix       | 84.05*  54.94   80.81   85.36   81.32
    ViT-RegMixup+CutMix    | 83.74   55.12   79.92   86.44   82.28
    ViT-RegMixup+RegCutMix | 83.92   55.50   80.75   90.23*  83.07
    == R50
    RegMixup               | 81.52   57.64*  79.44   88.66*  82.56
    CutMix                 | 80.21   45.23   77.78   85.39   80.33
    RegCutMix              | 79.07   44.64   77.56   80.52   79.18
    ViT-Mixup+CutMix       | 82.39*  56.40   80.53   81.09   81.01
    ViT-RegMixup+CutMix    | 81.65   52.99   79.64   86.45   81.42
    ViT-RegMixup+RegCutMix | 82.10   53.57   80.66*  84.43   83.03*
    """,
)

"""Other vicinal distributions in the place of Mixup: Tables 18 and 19."""

from regmixup.report.paper.transcript import read_table

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

"""The constants are those of make_cifar_c.py and make_imagenet_c.py, copied from there as text."""

import re

import pytest

from regmixup.data.corruptions.constants import CONSTANTS

CIFAR = """
gaussian_noise .04 .06 .08 .09 .10
shot_noise 500 250 100 75 50
impulse_noise .01 .02 .03 .05 .07
speckle_noise .06 .10 .12 .16 .20
gaussian_blur .4 .6 .7 .8 1
glass_blur (.05,1,1) (.25,1,1) (.4,1,1) (.25,1,2) (.4,1,2)
defocus_blur (.3,.4) (.4,.5) (.5,.6) (1,.2) (1.5,.1)
motion_blur (6,1) (6,1.5) (6,2) (8,2) (9,2.5)
zoom_blur (1.06,.01) (1.11,.01) (1.16,.01) (1.21,.01) (1.26,.01)
snow (.1,.2,1,.6,8,3,.95) (.1,.2,1,.5,10,4,.9) (.15,.3,1.75,.55,10,4,.9) \
(.25,.3,2.25,.6,12,6,.85) (.3,.3,1.25,.65,14,12,.8)
frost (1,.2,5) (1,.3,5) (.9,.4,5) (.85,.4,5) (.75,.45,5)
fog (.2,3) (.5,3) (.75,2.5) (1,2) (1.5,1.75)
brightness .05 .10 .15 .20 .30
contrast .75 .5 .4 .3 .15
saturate (.3,0) (.1,0) (1.5,0) (2,.1) (2.5,.2)
elastic_transform 32 (0,0,.08) (.05,.2,.07) (.08,.06,.06) (.1,.04,.05) (.1,.03,.03)
pixelate .95 .9 .85 .75 .65
jpeg_compression 80 65 58 50 40
spatter (.62,.1,.7,.7,.5,0) (.65,.1,.8,.7,.5,0) (.65,.3,1,.69,.5,0) (.65,.1,.7,.69,.6,1) (.65,.1,.5,.68,.6,1)
"""
IMAGENET = """
gaussian_noise .08 .12 .18 .26 .38
shot_noise 60 25 12 5 3
impulse_noise .03 .06 .09 .17 .27
speckle_noise .15 .2 .35 .45 .6
gaussian_blur 1 2 3 4 6
glass_blur (.7,1,2) (.9,2,1) (1,2,3) (1.1,3,2) (1.5,4,2)
defocus_blur (3,.1) (4,.5) (6,.5) (8,.5) (10,.5)
motion_blur (10,3) (15,5) (15,8) (15,12) (20,15)
zoom_blur (1.11,.01) (1.16,.01) (1.21,.02) (1.26,.02) (1.31,.03)
snow (.1,.3,3,.5,10,4,.8) (.2,.3,2,.5,12,4,.7) (.55,.3,4,.9,12,8,.7) \
(.55,.3,4.5,.85,12,8,.65) (.55,.3,2.5,.85,12,12,.55)
frost (1,.4,1) (.8,.6,1) (.7,.7,1) (.65,.7,1) (.6,.75,1)
fog (1.5,2) (2,2) (2.5,1.7) (2.5,1.5) (3,1.4)
brightness .1 .2 .3 .4 .5
contrast .4 .3 .2 .1 .05
saturate (.3,0) (.1,0) (2,0) (5,.1) (20,.2)
elastic_transform 244 (2,.7,.1) (2,.08,.2) (.05,.01,.02) (.07,.01,.02) (.12,.01,.02)
pixelate .6 .5 .4 .3 .25
jpeg_compression 25 18 15 10 7
spatter (.65,.3,4,.69,.6,0) (.65,.3,3,.68,.6,0) (.65,.3,2,.68,.5,0) (.65,.3,1,.65,1.5,1) (.67,.4,1,.65,1.5,1)
"""


@pytest.mark.parametrize(("kind", "published"), [("cifar", CIFAR), ("imagenet", IMAGENET)])
def test_every_number_is_the_published_one(kind, published):
    """The side that elastic shares are multiples of comes first; frost ends with the scale of its pictures."""
    lines = dict(line.split(" ", 1) for line in published.strip().splitlines())
    assert lines.keys() == CONSTANTS[kind].keys()
    for name, text in lines.items():
        side, text = (float(text.split()[0]), text.split(" ", 1)[1]) if name == "elastic_transform" else (1.0, text)
        levels = [[side * float(number) for number in re.split(",", level.strip("()"))] for level in text.split()]
        assert [list(level) for level in CONSTANTS[kind][name]] == [pytest.approx(level) for level in levels], name

"""Thresholds that keep a promise about errors: by simulation, with the scan that does not keep it beside them."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import binom

from regmixup.deployment import calibration
from regmixup.deployment.calibration import (
    Calibration,
    ScoreChoice,
    choose_score,
    fewest_images,
    fit_temperature,
    halves,
    misclassified,
)
from regmixup.metrics import auroc
from regmixup.metrics.scores import SCORES
from regmixup.posthoc import Conformal
from regmixup.types import Predictions

RISK, DELTA = 0.05, 0.1
# The share of errors at a score that is uniform in [0, 1], and its mean up to t.
FLAT = (lambda s: torch.full_like(s, 1.01 * RISK), lambda t: 1.01 * RISK)
RISING = (lambda s: 0.2 * s**2, lambda t: 0.2 * t**2 / 3)
# Low enough at first, far too high in the middle, low again: the risk up to t is not monotone.
BUMP = (
    lambda s: torch.where((s > 0.3) & (s < 0.4), 0.5, 0.01),
    lambda t: 0.01 + 0.49 * min(max(t - 0.3, 0), 0.1) / t,
)


def simulate(rate, images, generator):
    scores = torch.rand(images, generator=generator, dtype=torch.float64)
    return scores, torch.rand(images, generator=generator, dtype=torch.float64) < rate(scores)


def promised(rate, images, generator):
    """Return the threshold that passes, or None."""
    first, second = (simulate(rate, images, generator) for _ in range(2))
    sequence = calibration.threshold_sequence(*first, risk=RISK, most=0.95, images=images)
    accepted, errors = calibration.count_accepted(sequence, *second)
    passed = calibration.count_passing(accepted, errors, risk=RISK, confidence=1 - DELTA)
    return float(sequence[passed - 1]) if passed else None


def scanned(rate, images, generator):
    """Return the largest threshold that passes a test of its own, as if it had been the only one; or None."""
    scores, wrong = simulate(rate, images, generator)
    thresholds = scores.sort().values
    accepted, errors = calibration.count_accepted(thresholds, scores, wrong)
    good = calibration.binomial_tail(errors, accepted, RISK) <= DELTA
    return float(thresholds[good.nonzero().max()]) if bool(good.any()) else None


def failures(choose, case, images=300, times=1000):
    """Return the share of simulations in which more than RISK of what the threshold accepts is wrong."""
    generator, (rate, mean) = torch.Generator().manual_seed(0), case
    found = [choose(rate, images, generator) for _ in range(times)]
    return sum(t is not None and mean(t) > RISK for t in found) / times


@pytest.mark.parametrize("case", [FLAT, RISING, BUMP], ids=["flat", "rising", "bump"])
def test_the_promise_fails_in_at_most_delta_of_a_thousand_simulations(case):
    slack = 3 * math.sqrt(DELTA * (1 - DELTA) / 1000)
    assert failures(promised, case) <= DELTA + slack


def test_a_scan_over_thresholds_does_not_keep_the_promise():
    """So the test above would notice an uncorrected scan."""
    assert failures(scanned, FLAT) > 2 * DELTA


def test_the_promise_is_not_kept_by_accepting_nothing():
    """A good model: 1 % errors up to a score of 0.8, 30 % after. The ideal threshold of risk 5 % is 0.93."""
    rate = lambda s: torch.where(s < 0.8, 0.01, 0.3)  # noqa: E731
    generator = torch.Generator().manual_seed(0)
    found = [promised(rate, 1000, generator) for _ in range(50)]
    assert all(t is not None and t > 0.75 for t in found)
    assert 0.85 < sum(found) / len(found) < 0.94


def test_the_tail_is_the_binomial_one():
    errors, accepted = torch.tensor([0, 3, 50, 0]), torch.tensor([149, 200, 60, 0])
    for risk in (0.02, 0.3):
        expected = torch.from_numpy(binom.cdf(errors.numpy(), accepted.numpy(), risk))
        torch.testing.assert_close(calibration.binomial_tail(errors, accepted, risk), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize(("risk", "confidence", "images"), [(0.02, 0.95, 149), (0.01, 0.95, 299), (0.5, 0.5, 1)])
def test_the_fewest_images_are_the_fewest(risk, confidence, images):
    assert fewest_images(risk, confidence) == images
    assert (1 - risk) ** images <= 1 - confidence + 1e-12 < (1 - risk) ** (images - 1) + 1e-12


def labelled(images, wrong=0, seed=0):
    """Logits of images, of which the least sure `wrong` are wrong."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (images,), generator=generator)
    gap = torch.linspace(8, 1, images)
    logits = torch.nn.functional.one_hot(labels, 3) * gap[:, None]
    labels = torch.where(torch.arange(images) >= images - wrong, (labels + 1) % 3, labels)
    order = torch.randperm(images, generator=generator)
    return Predictions(logits[order], labels[order])


class TestCalibration:
    asking = Calibration(risk=0.02, confidence=0.95, acceptance=1.0)

    def test_two_percent_at_95_needs_149_accepted_images(self):
        """Half of the images test the promise; all have one score, so that every threshold accepts all."""
        logits = torch.tensor([[5.0, 0.0]]).repeat(298, 1)
        right = torch.zeros(298, dtype=torch.long)
        promise = self.asking.fit(Predictions(logits, right)).promise
        assert (promise.accepted, promise.errors, promise.images) == (149, 0, 149)
        contract = (
            r"nothing can be promised\. At most 0\.02 errors among the accepted with 0\.95 confidence needs at least "
            r"149 accepted images without an error; of the 148 images that test it, the first threshold accepts 148, 0"
        )
        with pytest.raises(calibration.NoPromiseError, match=contract):
            self.asking.fit(Predictions(logits[:296], right[:296]))
        with pytest.raises(calibration.NoPromiseError, match=r"accepts 149, [1-9]\d* of them wrong"):
            self.asking.fit(Predictions(logits, (torch.arange(298) % 5 == 0).long()))

    @pytest.mark.parametrize("asked", [{"risk": 0.5}, {"sets": Conformal()}])
    def test_one_image_cannot_be_halved(self, asked):
        with pytest.raises(calibration.NoPromiseError, match="2 validation images or more, got 1"):
            Calibration(**asked).fit(Predictions(torch.tensor([[1.0, 0.0]]), torch.tensor([0])))

    def test_the_promise_comes_from_images_that_fitted_nothing_else(self):
        """Right labels in the second half change neither the temperature nor the sequence of thresholds."""
        whole = labelled(1000, wrong=60)
        first, second = halves(whole)
        fitted = Calibration(risk=0.02).fit(whole)
        tested = torch.ones(1000, dtype=torch.bool)
        tested[halves(Predictions(whole.logits, torch.arange(1000)))[0].labels] = False
        labels = torch.where(tested, whole.logits.argmax(1), whole.labels)
        better = Calibration(risk=0.02).fit(Predictions(whole.logits, labels))
        assert better.temperature == fitted.temperature
        assert better.threshold >= fitted.threshold
        assert fitted.promise.images == len(second) == 500
        assert (fitted.images, fitted.errors) == (500, int(misclassified(first).sum()))
        assert fitted.threshold <= Calibration().fit(first).threshold

    def test_the_split_is_a_partition_that_the_number_of_images_decides(self):
        whole = Predictions(torch.zeros(101, 101), torch.arange(101))
        first, second = halves(whole)
        assert len(first) == 51
        assert sorted([*first.labels.tolist(), *second.labels.tolist()]) == list(range(101))
        assert torch.equal(halves(whole)[0].labels, first.labels)
        assert first.labels.double().mean() == pytest.approx(50, abs=15)  # no run of neighbours, which a class may be

    def test_sets_are_fitted_on_scaled_logits_of_the_second_part(self):
        whole = labelled(400, wrong=20)
        second = halves(whole)[1]
        found = Calibration(sets=Conformal(method="aps", level=0.9)).fit(whole)
        scaled = second.logits.double() / found.temperature
        assert found.sets.count == 200
        assert found.sets.quantile == pytest.approx(Conformal(method="aps").fit(scaled, second.labels).quantile)

    @pytest.mark.parametrize(
        ("fields", "contract"),
        [
            ({"acceptance": 1.01}, "acceptance must be a finite number > 0 and <= 1"),
            ({"score": "entropie"}, "unknown score 'entropie': did you mean 'entropy'"),
            ({"risk": 0}, "risk must be a finite number > 0 and < 1"),
            ({"sets": "lac"}, r"sets must be None or such as rm\.posthoc\.Conformal\(method=\"lac\"\), got 'lac'"),
            ({"confidence": 0.9}, "confidence must be 0.95 without risk, got 0.9"),
            ({"risk": 0.1, "confidence": 1}, "confidence must be a finite number > 0 and < 1"),
        ],
    )
    def test_arguments(self, fields, contract):
        with pytest.raises(ValueError, match=contract):
            Calibration(**fields)


class TestAutomaticScore:
    def test_it_is_the_score_of_the_largest_auroc_and_is_recorded(self):
        """Large and small logits of the same shape: the softmax of both is sure, the largest logit is not."""
        sure, strange = 30 + torch.eye(3) * 30, torch.eye(3) * 31
        validation = Predictions(torch.cat([sure, sure]), torch.arange(3).repeat(2))
        fitted = Calibration(score="auto", acceptance=1.0).fit(validation, strange)
        aurocs = {name: auroc(score(validation.logits), score(strange)) for name, score in SCORES.items()}
        assert fitted.choice == ScoreChoice(aurocs=aurocs, images=6, ood_images=3)
        assert aurocs["entropy"] < aurocs["energy"] == 1
        assert fitted.score == fitted.choice.name == next(name for name in SCORES if aurocs[name] == 1)
        named = Calibration(score=fitted.score, acceptance=1.0).fit(validation)
        assert replace(fitted, choice=None) == named

    def test_without_ood_images_it_is_msp_and_says_so(self):
        with pytest.warns(UserWarning, match=r"max_probability \(MSP\): no out-of-distribution validation images"):
            fitted = Calibration(score="auto").fit(labelled(100))
        assert fitted.score == "max_probability"
        assert fitted.choice == ScoreChoice(aurocs={}, images=100, ood_images=0)

    def test_images_that_test_a_promise_have_no_part_in_the_choice(self):
        whole, strange = labelled(1000), torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        fitted = Calibration(score="auto", risk=0.05).fit(whole, strange)
        assert fitted.choice == choose_score(halves(whole)[0].logits, strange)
        assert fitted.promise.images == 500

    def test_ood_images_choose_nothing_else(self):
        with pytest.raises(ValueError, match=r"ood must be left out unless .* got score 'entropy'"):
            Calibration().fit(labelled(100), torch.zeros(2, 3))


class TestTemperature:
    def test_it_minimises_the_sum_of_nll_and_the_prior(self):
        validation = labelled(60, wrong=6)
        fitted = fit_temperature(validation)

        def loss(temperature):
            nll = torch.nn.functional.cross_entropy(validation.logits.double() / temperature, validation.labels)
            return 60 * float(nll) + math.log(temperature) ** 2 / (2 * calibration.PRIOR**2)

        grid = [0.1 * 1.001**step for step in range(4600)]
        assert fitted == pytest.approx(min(grid, key=loss), rel=2e-3)

    def test_few_images_leave_it_near_1_and_many_do_not(self):
        """Sixty images with one error gave 0.46 without the prior, and made a wrong answer 99.7 % sure."""
        few = fit_temperature(labelled(60, wrong=1))
        many = fit_temperature(labelled(6000, wrong=100))
        images = labelled(6000, wrong=100)
        grid = [0.1 * 1.01**step for step in range(460)]
        alone = min(grid, key=lambda t: torch.nn.functional.cross_entropy(images.logits.double() / t, images.labels))
        assert 0.7 < few < 1
        assert many == pytest.approx(alone, rel=0.03) != pytest.approx(1, abs=0.05)

    def test_without_an_error_it_stays_near_1(self):
        """The best one would be the smallest: every answer, also of rejected images, would be 100 % sure."""
        assert 0.7 < fit_temperature(labelled(60)) < 1

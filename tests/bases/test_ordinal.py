"""Cumulative logits, held against statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from statsmodels.miscmodels.ordinal_model import OrderedModel

from headstart.bases.ordinal import CumulativeLogit


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 5))
    score = features @ rng.normal(size=5) + rng.logistic(size=400)
    return features, np.searchsorted([-1, 0, 2], score)


def test_without_a_penalty_it_is_the_model_of_statsmodels():
    features, target = rows()
    ours = CumulativeLogit(1e8, 4).fit(features, target)
    model = OrderedModel(target, features, distr="logit")
    theirs = model.fit(disp=0, method="bfgs", gtol=1e-8).params
    assert ours.coef_[0] == pytest.approx(theirs[:5], abs=1e-3)
    assert ours.cuts_ == pytest.approx(model.transform_threshold_params(theirs)[1:-1], abs=1e-3)
    assert ours.outputs(features) == pytest.approx(model.predict(theirs, features), abs=1e-3)


def test_sparse_rows_and_a_class_without_rows():
    features, target = rows()
    sparse = CumulativeLogit(1.0, 6).fit(csr_matrix(features), target)
    dense = CumulativeLogit(1.0, 6).fit(features, target)
    assert sparse.outputs(csr_matrix(features)) == pytest.approx(dense.outputs(features), abs=1e-6)
    assert dense.outputs(features).sum(1) == pytest.approx(1.0)
    assert dense.outputs(features)[:, 4:].max() < 0.1


def test_a_small_c_draws_the_weights_to_zero():
    features, target = rows()
    assert np.abs(CumulativeLogit(1e-6, 4).fit(features, target).coef_).max() < 1e-2

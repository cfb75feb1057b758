"""The loss of a student that is given a teacher's vectors, against numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import log_softmax

from headstart.models.heads import LOGIT_SCALE, VectorHead


def test_it_is_the_distance_to_its_own_vector_and_the_choice_among_all() -> None:
    torch.manual_seed(0)
    head, hidden, target = VectorHead(6, 4), torch.randn(5, 6), F.normalize(torch.randn(5, 4), dim=1)
    total, count = head.loss(hidden, target)
    ours = hidden.numpy() @ head.linear.weight.detach().numpy().T
    cosine = ours @ target.numpy().T / np.linalg.norm(ours, axis=1, keepdims=True)
    chosen = -np.diag(log_softmax(LOGIT_SCALE * cosine, axis=1)).sum()
    assert (total.item(), count) == (pytest.approx(chosen + (1 - np.diag(cosine)).sum(), rel=1e-5), 5)


def test_a_student_that_has_the_teachers_vectors_is_at_no_distance() -> None:
    head = VectorHead(4, 4)
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(4))
    target = torch.eye(4)
    total, _ = head.loss(3 * target, target)
    assert total.item() == pytest.approx(4 * np.log(1 + 3 * np.exp(-LOGIT_SCALE)), abs=1e-5)

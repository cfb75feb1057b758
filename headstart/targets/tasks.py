"""The targets by task: what has to tell tasks apart reads this table."""

from __future__ import annotations

from headstart.targets.classes import Classes
from headstart.targets.labels import Labels
from headstart.targets.numbers import Numbers
from headstart.targets.ordered import Ordered
from headstart.targets.tags import Tags
from headstart.targets.target import Target
from headstart.task import Task

TARGETS: dict[Task, type[Target]] = {kind.task: kind for kind in (Classes, Labels, Numbers, Ordered, Tags)}

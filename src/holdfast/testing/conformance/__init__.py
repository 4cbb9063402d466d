"""The conformance kit: what every store must do, as tests that any store's own test suite can run.

Derive from `StoreConformance`, say how a store is made, and let pytest collect it::

    class TestMyStore(StoreConformance):
        def make_store(self, clock):
            self.place = new_empty_place()
            return MyStore(self.place, clock=clock)

        def make_another(self, clock):
            return MyStore(self.place, clock=clock)
"""

from holdfast.testing.conformance.attempts import AttemptRules
from holdfast.testing.conformance.children import ChildRules
from holdfast.testing.conformance.continuing import ContinuingRules
from holdfast.testing.conformance.deadlines import DeadlineRules
from holdfast.testing.conformance.deliveries import DeliveryRules
from holdfast.testing.conformance.duties import DutyRules
from holdfast.testing.conformance.flows import FlowRules
from holdfast.testing.conformance.ghosts import GhostRules
from holdfast.testing.conformance.groups import GroupRules
from holdfast.testing.conformance.inputs import InputRules
from holdfast.testing.conformance.instances import InstanceRules
from holdfast.testing.conformance.keeping import KeepingRules
from holdfast.testing.conformance.lost_owners import LostOwnerRules
from holdfast.testing.conformance.overview import OverviewRules
from holdfast.testing.conformance.policies import PolicyRules
from holdfast.testing.conformance.questions import QuestionRules
from holdfast.testing.conformance.sharing import SharingRules
from holdfast.testing.conformance.streams import StreamRules
from holdfast.testing.conformance.terminations import TerminationRules
from holdfast.testing.conformance.updates import UpdateRules
from holdfast.testing.conformance.workers import WorkerRules

__all__ = ["StoreConformance"]


class StoreConformance(
    InstanceRules,
    InputRules,
    AttemptRules,
    GroupRules,
    TerminationRules,
    PolicyRules,
    WorkerRules,
    LostOwnerRules,
    StreamRules,
    FlowRules,
    KeepingRules,
    SharingRules,
    ContinuingRules,
    DeliveryRules,
    ChildRules,
    DeadlineRules,
    UpdateRules,
    QuestionRules,
    OverviewRules,
    GhostRules,
    DutyRules,
):
    """All of the rules."""

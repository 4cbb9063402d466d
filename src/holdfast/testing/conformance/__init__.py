"""The conformance kit: the rules of the store contract as tests, for the test suite of any store.

Derive from `StoreConformance`, define how a store is made, and let pytest collect the class::

    class TestMyStore(StoreConformance):
        def make_store(self, clock):
            self.place = new_empty_place()
            return MyStore(self.place, clock=clock)

        def make_another(self, clock):
            return MyStore(self.place, clock=clock)

Each test has a new store and a clock that the test moves. A store whose data only one store object can have returns
None from `make_another`; the tests with two stores are skipped then.
"""

from holdfast.testing.conformance.activity_cancels import ActivityCancelRules
from holdfast.testing.conformance.attempts import AttemptRules, LargeInputRules
from holdfast.testing.conformance.children import ChildRules
from holdfast.testing.conformance.code_checks import CodeCheckRules
from holdfast.testing.conformance.concurrent_duties import ConcurrentDutyRules
from holdfast.testing.conformance.contract_rows import ContractRowRules
from holdfast.testing.conformance.counts import CountRules
from holdfast.testing.conformance.deadlines import DeadlineRules
from holdfast.testing.conformance.groups import GroupRules, SharedStoreRules
from holdfast.testing.conformance.id_policy import IdPolicyRules
from holdfast.testing.conformance.instances import ContinueAsNewRules, FlowRules, InstanceRules, StateValueRules
from holdfast.testing.conformance.large_rows import LargeRowRules
from holdfast.testing.conformance.launches import LaunchRules
from holdfast.testing.conformance.messages import MessageRules
from holdfast.testing.conformance.pauses import PauseRules
from holdfast.testing.conformance.queries import QueryRules
from holdfast.testing.conformance.requests import RequestRules
from holdfast.testing.conformance.restoring import RestoreRules
from holdfast.testing.conformance.retention import RetentionRules
from holdfast.testing.conformance.search import AttributeRules, SearchRules
from holdfast.testing.conformance.stale_workers import LostOwnerRules, StaleWorkerRules
from holdfast.testing.conformance.streams import StreamRules
from holdfast.testing.conformance.terminations import TerminationRules
from holdfast.testing.conformance.updates import UpdateRules
from holdfast.testing.conformance.versions import VersionRules
from holdfast.testing.conformance.wakeups import WakeupRules
from holdfast.testing.conformance.workers import WorkerListRules, WorkerRules

__all__ = ["StoreConformance"]


class StoreConformance(
    InstanceRules,
    LargeInputRules,
    AttemptRules,
    ActivityCancelRules,
    GroupRules,
    TerminationRules,
    IdPolicyRules,
    WorkerRules,
    LostOwnerRules,
    StreamRules,
    FlowRules,
    StateValueRules,
    SharedStoreRules,
    ContinueAsNewRules,
    VersionRules,
    MessageRules,
    ChildRules,
    DeadlineRules,
    UpdateRules,
    QueryRules,
    WakeupRules,
    WorkerListRules,
    StaleWorkerRules,
    ConcurrentDutyRules,
    LaunchRules,
    CodeCheckRules,
    CountRules,
    RestoreRules,
    ContractRowRules,
    RequestRules,
    LargeRowRules,
    AttributeRules,
    SearchRules,
    PauseRules,
    RetentionRules,
):
    """Every rule of the kit."""

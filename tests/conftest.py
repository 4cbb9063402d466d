"""Hypothesis profiles: `dev` for every save, `ci` for every landing, `nightly` for the long hunt."""

import os

from hypothesis import HealthCheck, settings

COMMON = {"deadline": None, "suppress_health_check": (HealthCheck.too_slow,)}

settings.register_profile("dev", max_examples=50, stateful_step_count=30, **COMMON)
settings.register_profile("ci", max_examples=300, stateful_step_count=50, print_blob=True, **COMMON)
settings.register_profile("nightly", max_examples=10_000, stateful_step_count=100, print_blob=True, **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

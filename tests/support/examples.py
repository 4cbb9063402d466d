"""The number of random examples of a test, by profile of Hypothesis."""

from hypothesis import settings


def examples(*, dev: int, ci: int, nightly: int) -> int:
    """Return the number for the loaded profile.

    The profile is looked up by its name, so that a change of `max_examples` in a profile does not change the test.
    """
    return {"dev": dev, "ci": ci, "nightly": nightly}[settings.get_current_profile_name()]

"""For all tests: a property is right or wrong, not slow. A machine that others keep busy must not fail one."""

from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

"""The exit codes of all commands, and what `kedge --help` says about them."""

from __future__ import annotations

EXIT_BAD_INPUT = 2
EXIT_NOT_PASSED = 3
EXIT_INTERRUPTED = 130

NOT_PASSED = {
    "discover": "the run is not ok for searching (with --require pairs: for pairs)",
    "lexicon": "what is listed is not ok for a lexicon",
    "unite": "the map is not ok, or a space was left out",
    "compare": "no run can be trusted",
    "rehearse": "a metric is below --fail-under",
    "migrate": "the target does not hold what it should",
    "drift": "the vectors are not of the same model (precision aside), or some have changed",
    "audit": "there are vectors of several models, or the answer is uncertain",
    "canary check": "it is not the same model (precision aside)",
}
"""The commands that exit with 3, and when."""

EXIT_CODES = "\n".join(
    (
        "exit codes:",
        "  0    done",
        "  2    bad input, or something that cannot be read or written; one line says what",
        "  3    done, but the result did not pass:",
        *(f"         {command}: {reason}" for command, reason in NOT_PASSED.items()),
        "  130  interrupted by Ctrl-C or SIGTERM; nothing half-written is left",
    )
)
"""The end of `kedge --help`."""

"""A training that failed is proved by the same failure, and by nothing else."""

from ml_assets.extras.prove.model import failure_verdict

THEN = "the training went non-finite"


def test_only_the_same_failure_is_equal() -> None:
    assert failure_verdict("p/trained_model", THEN, THEN, "error").outcome == "equal"
    other = failure_verdict("p/trained_model", THEN, "the request is wrong", "error")
    assert (other.outcome, "the request is wrong" in other.said) == ("differs", True)
    assert failure_verdict("p/trained_model", THEN, None, "no disk").outcome == "differs"
    done = failure_verdict("p/trained_model", THEN, None, "")
    assert (done.outcome, "trained to the end" in done.said) == ("differs", True)

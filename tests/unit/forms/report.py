"""What forms make of whole collections of schemas, in numbers; it prints and judges nothing.

Run it: ``python -m tests.unit.forms.report [--slow N] [--broken N] [FILE …]``; without files it takes the
folder of cases beside this checkout. A file is ``{"cases": [{"id", "schema", "data"?}]}``.

Columns: schemas with a form, of all; median and slowest processor time to build a form with its spec;
untouched documents that were returned as the same JSON; valid documents accepted and invalid documents
refused, of all; errors at a field of the form (the others are in its summary); answers that nobody gave.
"""

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from nbagent.forms.form import Form
from tests.shared import COLLECTIONS, FORMS, cases_of
from tests.unit.forms.judging import (
    broken_versions,
    ids,
    offered,
    oracle,
    scalars,
    verdict,
)

MAX_BROKEN = 200
"""Broken documents that are tried per case."""


@dataclass
class Tally:
    """The numbers of one collection, and its problems."""

    schemas: int = 0
    built: int = 0
    times: list[tuple[float, str]] = field(default_factory=list)
    documents: int = 0
    identical: int = 0
    valid: int = 0
    accepted: int = 0
    invalid: int = 0
    refused: int = 0
    errors: int = 0
    placed: int = 0
    invented: int = 0
    wrong: list[str] = field(default_factory=list)


def measure(cases, most=MAX_BROKEN):
    """All numbers of one collection; ``most`` broken documents are tried per case."""
    tally = Tally()
    for case in cases:
        tally.schemas += 1
        try:
            _judge(tally, case, most)
        except Exception as error:
            tally.wrong.append(f"{case['id']}: {type(error).__name__}: {error}")
    return tally


def _judge(tally, case, most):
    start = time.thread_time()
    form = Form(case["schema"])
    json.dumps(form.spec(), allow_nan=False)
    tally.times.append((1000 * (time.thread_time() - start), str(case["id"])))
    tally.built += 1
    answer = form.submit(None)
    strange = scalars(answer.document) - offered(case["schema"]) if answer.json_text else set()
    tally.invented += len(strange)
    tally.wrong += [f"{case['id']}: invented {sorted(strange)[:5]}"] if strange else []
    if "data" in case:
        _identity(tally, case)
        _rejection(tally, case, most)


def _identity(tally, case):
    tally.documents += 1
    answer = Form(case["schema"], value=case["data"]).submit(None)
    same = answer.json_text is not None and json.dumps(answer.document) == json.dumps(case["data"])
    tally.identical += same
    if not same:
        tally.wrong.append(f"{case['id']}: not identical")


def _rejection(tally, case, most):
    validator = oracle(case["schema"])
    if validator is None:
        return
    _verdict(tally, case, validator, case["data"])
    for document, _ in zip(broken_versions(case["data"]), range(most), strict=False):
        _verdict(tally, case, validator, document)


def _verdict(tally, case, validator, document):
    expected = verdict(validator, document)
    if expected is None:
        return
    form = Form(case["schema"], value=document)
    answer = form.submit(None)
    if answer.ok is not expected:
        told = json.dumps(document)[:200]
        tally.wrong.append(f"{case['id']}: {answer.ok} for {told}: {answer.errors[:2]}")
    if expected:
        tally.valid += 1
        tally.accepted += answer.ok
        return
    tally.invalid += 1
    tally.refused += not answer.ok
    known = ids(form.fields)
    tally.errors += len(answer.errors)
    tally.placed += sum(each in known for each, _, _ in answer.errors)
    lost = [each for each, _, _ in answer.errors if each is not None and each not in known]
    tally.wrong += [f"{case['id']}: errors at {lost[:3]}, which is no field"] if lost else []


HEAD = (
    "collection", "built", "median ms", "max ms", "identical", "accepted", "refused", "placed",
    "invented",
)  # fmt: skip


def row(name, tally):
    """One line of the table."""
    times = [each for each, _ in tally.times] or [0.0]
    return (
        name,
        f"{tally.built}/{tally.schemas}",
        f"{statistics.median(times):.2f}",
        f"{max(times):.1f}",
        f"{tally.identical}/{tally.documents}",
        f"{tally.accepted}/{tally.valid}",
        f"{tally.refused}/{tally.invalid}",
        f"{tally.placed}/{tally.errors}",
        str(tally.invented),
    )


def main():
    """Print the table and the problems."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--slow", type=int, default=0, help="how many slow schemas to name")
    parser.add_argument("--broken", type=int, default=MAX_BROKEN, help="wrong documents per case")
    options = parser.parse_args()
    files = options.files or [FORMS / f"{name}.json" for name in COLLECTIONS]
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD))
    wrong = []
    for path in files:
        tally = measure(cases_of(path), options.broken)
        print("| " + " | ".join(row(path.stem, tally)) + " |", flush=True)
        wrong += [f"{path.stem}: {each}" for each in tally.wrong]
        for took, name in sorted(tally.times, reverse=True)[: options.slow]:
            print(f"    {took:.1f} ms {name}")
    print(*(["", "wrong:", *wrong[:100]] if wrong else ["", "nothing went wrong"]), sep="\n")


if __name__ == "__main__":
    main()

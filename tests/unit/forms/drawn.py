"""What a page without a kernel shows of a form."""

import json

from nbagent.forms.form import Submission
from nbagent.forms.values import ABSENT
from nbagent.notebook.cards.form_card import answer_record, bundle, question_of


def drawn(form, answer=ABSENT):
    """The HTML of a form's card while it is open, or once it is answered with this document."""
    question = question_of(form, title=form.fields.label)
    if answer is ABSENT:
        item, status = question.item("q", "", ""), "interrupted"
    else:
        submission = Submission(ok=True, json_text=json.dumps(answer))
        item, status = answer_record(question, submission, by="form", after=0.0), "completed"
    return bundle(form.fields.label, item, status)["text/html"]

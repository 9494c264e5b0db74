"""The deterministic model."""

import json

import pytest

from batchctl.simulator import answer, prompt_digest

BANK = 'Pick one of ["card_arrival", "card_linking", "lost_or_stolen_card", "exchange_rate", "top_up_failed"].'
DESK = "Sort the ticket.\n- billing\n- shipping\n- technical\n- account\n- other\nAnswer with category and priority."


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("I am still waiting on my card?", "card_arrival"),
        ("Someone stole my card", "lost_or_stolen_card"),
        ("What is the exchange rate for euro?", "exchange_rate"),
        ("My top up failed", "top_up_failed"),
    ],
)
def test_bank_messages(text: str, category: str) -> None:
    """The category is found by words, whether the list stands in the system text or in the prompt."""
    assert json.loads(answer(f"Message: {text}", BANK)) == {"category": category}
    assert json.loads(answer(f"{BANK}\n\nMessage:\n{text}")) == {"category": category}
    assert json.loads(answer(f"{BANK}\n\n<message>{text}</message>\nAnswer as JSON.")) == {"category": category}


@pytest.mark.parametrize(
    ("text", "category", "priority"),
    [
        ("My invoice was charged twice", "billing", "high"),
        ("My account was hacked, please lock my login immediately", "account", "urgent"),
        ("Where is my parcel?", "shipping", "normal"),
        ("Just a suggestion, I would love a dark mode", "other", "low"),
    ],
)
def test_tickets_with_priority(text: str, category: str, priority: str) -> None:
    """Priority is given when asked for, by keywords."""
    assert json.loads(answer(f"Ticket: {text}", DESK)) == {"category": category, "priority": priority}


def test_without_categories_the_answer_tells_its_prompt() -> None:
    """The echo holds a digest, so two prompts never share an answer."""
    assert prompt_digest("hello 1") in answer("hello 1")
    assert answer("hello 1") != answer("hello 2")
    assert answer("hello", "a") != answer("hello", "b")
    assert json.loads(answer("hello", "Answer in JSON"))["digest"] == prompt_digest("hello", "Answer in JSON")

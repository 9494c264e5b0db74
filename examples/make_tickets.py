"""Writes a list of made-up support tickets as JSON lines: `python examples/make_tickets.py 4000 > tickets.jsonl`."""

from __future__ import annotations

import json
import random
import sys

OPENINGS = ("Hello,", "Hi there,", "Good morning.", "", "Dear team,", "Grüezi,", "Bonjour,")
STORIES = (
    "my parcel {number} has not been delivered, the delivery is {days} days late.",
    "the delivery of order {number} went to the wrong address.",
    "I sent the {thing} back {days} days ago and still wait for my refund.",
    "please refund order {number}, the {thing} is not what I wanted.",
    "my payment for order {number} was taken twice from my card.",
    "the payment page refuses my card, although the card works elsewhere.",
    "I cannot log in to my account, the password mail never arrives.",
    "please change the e-mail of my account to one with “ü” in it.",
    "does the {thing} also come in blue? A question before I buy.",
    "I have a question: is the {thing} suitable for children?",
    "the {thing} arrived damaged, the box was crushed.\nPhotos are attached.",
    "the {thing} broke after {days} days, it came damaged I believe.",
    "thank you for the quick help last week!",
)
ENDINGS = ("", "This is urgent!", "Please answer soon.", "No hurry.", "Thanks 🙂", "I am quite upset.")
THINGS = ("lamp", "kettle", "backpack", "desk chair", "headphones", "coffee grinder", "rain jacket")
CUSTOMERS = ("Ada", "Noor", "Jürgen", "Chloé", "Zoë", "李雷", "Tomás", "Olena")


def ticket(number: int, chance: random.Random) -> dict[str, str]:
    """One ticket; the same number and seed give the same ticket."""
    story = chance.choice(STORIES).format(
        number=10_000 + number, days=chance.randint(2, 30), thing=chance.choice(THINGS)
    )
    words = (chance.choice(OPENINGS), story, chance.choice(ENDINGS))
    return {
        "id": f"T-{number:06d}",
        "customer": chance.choice(CUSTOMERS),
        "text": " ".join(word for word in words if word),
    }


def main() -> None:
    """Write as many tickets as the first argument says (4,000 without one)."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    chance = random.Random(20260701)
    for number in range(1, count + 1):
        sys.stdout.write(json.dumps(ticket(number, chance), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    main()

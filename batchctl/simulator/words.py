"""Word knowledge of the classifier: stems, synonyms of category words, and words that tell the priority."""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = re.compile(r"[a-z0-9']+")
_ENDINGS = (
    "ations",
    "ation",
    "ings",
    "ing",
    "ies",
    "ied",
    "ers",
    "er",
    "ed",
    "es",
    "al",
    "s",
    "e",
    "y",
)


def word_set(text: str) -> frozenset[str]:
    """Make a set of the words of a text."""
    return frozenset(text.split())


STOP = word_set(
    "a an and are as at be been but by can do does did for from had has have how i if in into is it its me my of on or "
    "our so that the their them there this to was we were what when where which who why will with would you your"
)

# Words of people, by the word of a category they speak for.
SYNONYMS: dict[str, str] = {
    "account": "login password email profile username register signup sign",
    "activate": "activation enable start",
    "age": "old child kid son daughter minor young",
    "apple": "iphone watch",
    "arrival": "waiting arrive arrived coming came received receive delivery mail track tracking yet still",
    "atm": "machine cashpoint",
    "balance": "money funds amount",
    "beneficiary": "recipient payee",
    "billing": "invoice charge charged bill fee subscription payment price paid overcharged card",
    "blocked": "locked lock frozen",
    "bug": "crash crashes error broken glitch fails",
    "cancel": "stop undo reverse",
    "cancellation": "cancel unsubscribe terminate close",
    "cash": "withdraw withdrew withdrawal atm money notes",
    "change": "update new edit modify",
    "charged": "charge fee cost extra",
    "complaint": "terrible awful angry disappointed unacceptable rude worst",
    "compromised": "fraud stolen hacked someone used",
    "contactless": "tap tapping",
    "country": "countries abroad europe uk us",
    "declined": "rejected refused denied decline",
    "delivery": "deliver delivered arrive arrived package parcel courier shipped shipping track tracking",
    "details": "address name phone number",
    "edit": "change update modify",
    "estimate": "long when days take time",
    "exchange": "rate currency convert conversion foreign",
    "failed": "fail unsuccessful through work working",
    "feature": "add wish suggestion dark request option export would love",
    "fee": "fees charge charged cost costs extra",
    "feedback": "suggestion opinion idea",
    "fiat": "currency currencies",
    "forgotten": "forgot forget remember",
    "fraud": "scam stolen unauthorized unauthorised",
    "identity": "id passport verification documents prove",
    "limits": "limit maximum most many",
    "linking": "link reconnect connect add found",
    "lost": "missing stolen find lose left misplaced",
    "passcode": "password code",
    "pending": "still processing waiting hold",
    "pin": "passcode code",
    "receiving": "receive get paid salary",
    "recognised": "recognize recognise unknown strange know",
    "refund": "money back return reimburse refunded",
    "return": "exchange back send wrong size",
    "sales": "pricing quote demo enterprise plan buy discount",
    "security": "hacked phishing breach suspicious fraud compromised",
    "shipping": "package parcel courier tracking delivered delivery arrive arrived shipped",
    "stolen": "theft stole thief robbed taken",
    "swallowed": "ate stuck kept took retained swallow",
    "technical": "error crash crashes broken bug fails failing freeze slow load loading install",
    "terminate": "close delete cancel leave",
    "timing": "long when take days time",
    "topping": "topup add",
    "top": "topup add",
    "transfer": "send sent transferred sending",
    "twice": "double duplicate duplicated two times",
    "unable": "cannot can't couldn't won't",
    "verify": "verification prove proof",
    "virtual": "online",
    "visa": "mastercard",
    "withdrawal": "withdraw withdrew atm taken took",
    "working": "work works broken broke stopped",
    "wrong": "incorrect mistake different",
}

PRIORITIES = (
    (
        "urgent",
        word_set(
            "urgent urgently immediately asap emergency stolen fraud hacked critical outage unauthorized unauthorised"
        ),
    ),
    (
        "high",
        word_set(
            "cannot can't blocked broken failed fails failing wrong lost refund angry today unacceptable twice "
            "declined crash crashes overcharged missing"
        ),
    ),
    ("low", word_set("wondering suggestion curious feature wish love idea thanks feedback whenever nice")),
)


def words(text: str) -> list[str]:
    """Split into lower-case words."""
    return _WORD.findall(text.lower())


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Cut one common ending, so that forms of a word meet."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:  # noqa: PLR2004
            return word[: -len(ending)]
    return word

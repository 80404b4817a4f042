"""What a number must fulfil beside its shape: check digits and dates. Each takes the text of a match."""

from collections.abc import Callable

_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_ID_CHECK = "10X98765432"
# GB/T 2260: the first two digits of a resident's number.
_PROVINCES = frozenset(
    str(region * 10 + n)
    for region, provinces in ((1, 5), (2, 3), (3, 7), (4, 6), (5, 4), (6, 5), (7, 1), (8, 3))
    for n in range(0 if region == 5 else 1, provinces + 1)
)
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# Lengths of the IBAN registry.
_IBAN_LENGTHS = {
    int(length): frozenset(countries.split())
    for length, countries in {
        "15": "NO",
        "16": "BE",
        "18": "DK FK FI FO GL NL SD",
        "19": "MK SI",
        "20": "AT BA EE KZ LT LU MN XK",
        "21": "CH HR LI LV",
        "22": "BG BH CR DE GB GE IE ME RS VA",
        "23": "AE GI IL IQ OM SO TL",
        "24": "AD CZ ES MD PK RO SA SE SK TN VG",
        "25": "LY PT ST",
        "26": "IS TR",
        "27": "BI DJ FR GR IT MC MR SM",
        "28": "AL AZ BY CY DO GT HN HU LB NI PL SV",
        "29": "BR EG PS QA UA",
        "30": "JO KW MU YE",
        "31": "MT SC",
        "32": "LC",
        "33": "RU",
    }.items()
}
_TOO_PLAIN = 2


def digits_of(text: str) -> str:
    """Decimal digits of a text, whatever script they are in, as ASCII."""
    return "".join(str(int(c)) for c in text if c.isdecimal())


def luhn(text: str) -> bool:
    """ISO/IEC 7812: payment cards. Separators don't count; a number of one digit over and over is none."""
    digits = digits_of(text)
    if len(digits) < 2 or len(set(digits)) < _TOO_PLAIN:
        return False
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) << (place & 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def cn_resident_id(text: str) -> bool:
    """GB 11643-1999: 17 digits and a check digit by ISO 7064 MOD 11-2; a province, and a date of birth that was."""
    number = "".join(c.upper() for c in text if c.isalnum())
    number = digits_of(number[:17]) + (digits_of(number[17:]) or number[17:])
    if len(number) != 18 or not number[:17].isdecimal() or number[:2] not in _PROVINCES:
        return False
    year, month, day = int(number[6:10]), int(number[10:12]), int(number[12:14])
    if not (1800 <= year < 2200 and 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1]):
        return False
    if (month, day) == (2, 29) and (year % 4 or (year % 100 == 0 and year % 400)):
        return False
    return _ID_CHECK[sum(int(d) * w for d, w in zip(number, _ID_WEIGHTS, strict=False)) % 11] == number[17]


def iban_mod97(text: str) -> bool:
    """ISO 13616: the length of its country, and 1 modulo 97 with the first four characters last."""
    number = "".join(c for c in text if c.isalnum()).upper()
    if not number.isascii() or number[:2] not in _IBAN_LENGTHS.get(len(number), ()):
        return False
    return int("".join(str(int(c, 36)) for c in number[4:] + number[:4])) % 97 == 1


CHECKS: dict[str, Callable[[str], bool]] = {"luhn": luhn, "cn_resident_id": cn_resident_id, "iban_mod97": iban_mod97}
"""Checks by the name that a policy uses."""

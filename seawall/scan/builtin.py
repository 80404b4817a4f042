"""Patterns that come with Seawall, by the name that a policy's `builtin` uses.

All are ASCII (`(?a)`): a number that follows a Chinese character begins a word there. They are told apart from what
merely looks like them by prefixes, lengths and check digits; what has none of these (a mobile number) can only be told
by its shape.
"""

from dataclasses import dataclass

# Between the groups of a number; the fold leaves spaces and dashes as they are.
_GAP = r"[ \u00a0\u2007\u2009\u202f\-\u2010-\u2015\u2212]?"


@dataclass(frozen=True, slots=True)
class Part:
    """One pattern of a set; a match must also pass `check`, and one that holds a character of `never` is none.

    `plain`: not looked for behind disguises.
    """

    pattern: str
    check: str | None = None
    never: str = ""
    plain: bool = False


def _grouped(first: str, *groups: int) -> str:
    return first + "".join(rf"{_GAP}[0-9]{{{n}}}" for n in groups)


def _number(*shapes: str) -> Part:
    """Number with a Luhn digit that stands alone.

    A fraction is taken along with its point, so that a match that has one is none: 0.4111111111111111 is no card.
    """
    return Part(rf"(?a)\b(?:[0-9]{{1,20}}\.)?(?:{'|'.join(shapes)})(?:\.[0-9]{{1,20}})?\b", "luhn", ".")


_OTHER_BINS = "(?:60|68|69|84|87|88|90|94|95|98|99)[0-9]{2}"
_CARDS = _number(
    _grouped("4[0-9]{3}", 4, 4, 4),
    "4[0-9]{12}",
    _grouped("5[1-5][0-9]{2}", 4, 4, 4),
    _grouped("(?:222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)", 4, 4, 4),
    _grouped("3[47][0-9]{2}", 6, 5),
    _grouped("3(?:0[0-5]|[689][0-9])[0-9]", 6, 4),
    _grouped("(?:6011|64[4-9][0-9]|65[0-9]{2})", 4, 4, 4),
    _grouped("35(?:2[89]|[3-8][0-9])", 4, 4, 4),
    _grouped("62[0-9]{2}", 4, 4, 4, 3),
    _grouped("62[0-9]{2}", 4, 4, 4),
    _grouped("(?:50(?:1[89]|20|38)|5[68][0-9]{2}|6304|67(?:59|6[1-3]))", 4, 4, 4),
    "1[0-9]{14}",
)
_BANK_CARDS = _number(
    *(_grouped("62[0-9]{2}", 4, 4, 4, *last) for last in ((3,), (2,), (1,), ())),
    *(_grouped(_OTHER_BINS, 4, 4, 4, *last) for last in ((3,), ())),
)
_MOBILE = "1(?:3[0-9]|4[5-9]|5[0-35-9]|6[2567]|7[0-8]|8[0-9]|9[0-35-9])"

# All two letters, and the longer ones that people have addresses in: `W@x.shape` is a product of matrices.
_TOP_LEVEL = (
    "[A-Za-z]{2}|(?i:com|net|org|edu|gov|mil|int|info|biz|name|pro|dev|app|cloud|tech|online|site|website|xyz|store|shop"
    "|top|vip|wang|club|live|email|mail|group|world|today|agency|digital|company|academy|team|work|space|life|ltd|inc|llc"
    "|museum|jobs|mobi|asia|aero|coop|travel|bank|finance|money|health|care|law|art|blog|news|media|studio|design|games"
    "|link|host|page|systems|solutions|services|support|software|network|global|center|international|example|test"
    "|xn--[a-z0-9\\-]{2,58})"
)

_KEYS = (
    # Prefixes that their issuers chose so that they can be found.
    r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|A3T[A-Z0-9])[A-Z0-9]{16}",
    r"LTAI[A-Za-z0-9]{12,26}",
    r"AKID[A-Za-z0-9]{28,48}",
    r"AIza[A-Za-z0-9_\-]{35}",
    r"https://hooks\.slack\.com/services/T[A-Za-z0-9]+/B[A-Za-z0-9]+/[A-Za-z0-9]{20,}",
    r"GOCSPX-[A-Za-z0-9_\-]{28}",
    r"ya29\.[A-Za-z0-9_\-]{30,}",
    r"gh[pousr]_[A-Za-z0-9]{36,255}",
    r"github_pat_[A-Za-z0-9_]{60,255}",
    r"gl(?:pat|cbt|ptt|dt|rt|ft|soat)-[A-Za-z0-9_\-]{16,}",
    r"GR1348941[A-Za-z0-9_\-]{20}",
    r"sk-(?:proj|svcacct|admin|ant-[a-z0-9]{2,8}|or-v1|lf)-[A-Za-z0-9_\-]{20,}",
    r"sk-[A-Za-z0-9]{32,}",
    r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}",
    r"hf_[A-Za-z0-9]{30,}",
    r"gsk_[A-Za-z0-9]{40,}",
    r"xai-[A-Za-z0-9]{60,}",
    r"r8_[A-Za-z0-9]{36,}",
    r"xox[abeoprs]-[A-Za-z0-9\-]{10,}",
    r"xapp-[0-9]-[A-Za-z0-9\-]{20,}",
    r"SG\.[A-Za-z0-9_\-]{22}\.[A-Za-z0-9_\-]{43}",
    r"(?:SK|AC)[0-9a-f]{32}",
    r"[0-9]{8,10}:AA[A-Za-z0-9_\-]{33}",
    r"[MNO][A-Za-z0-9_\-]{23,25}\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,38}",
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-AgE[A-Za-z0-9_\-]{50,}",
    r"dop_v1_[0-9a-f]{64}",
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    r"lin_api_[A-Za-z0-9]{40}",
    r"[0-9a-f]{32}-us[0-9]{1,2}",
    r"dapi[0-9a-f]{32}",
    r"hvs\.[A-Za-z0-9_\-]{24,}",
    r"AccountKey=[A-Za-z0-9+/]{86}==",
    r"(?i:aws)_?(?i:secret)_?(?i:access)_?(?i:key)[\"']?\s{0,8}[:=]\s{0,8}[\"']?[A-Za-z0-9+/]{40}",
)

# Line ends as they are, or as JSON and environment files write them.
_BREAK = r"(?:\s|\\[nr])*"
_KEY_NAME = r"(?:[A-Z0-9]{1,10} ){0,3}PRIVATE KEY(?: BLOCK)?"

BUILTIN: dict[str, tuple[Part, ...]] = {
    "api_keys": tuple(Part(rf"(?a)\b(?:{key})") for key in _KEYS),
    # The header is enough, and the match goes on through the key: a stream's key is covered as it comes.
    "private_keys": (
        Part(
            rf"(?a)-----BEGIN {_KEY_NAME}-----"
            rf"(?:{_BREAK}(?:[A-Z][A-Za-z\-]{{1,20}}: [^\n\\]{{0,100}}|[A-Za-z0-9+/]{{20,}}={{0,2}}))*"
            rf"(?:(?:{_BREAK}[A-Za-z0-9+/=]{{1,76}}){{0,2}}{_BREAK}-----END {_KEY_NAME}-----)?"
        ),
    ),
    "payment_cards": (_CARDS,),
    "bank_cards": (_BANK_CARDS,),
    "cn_resident_ids": (
        Part(
            rf"(?a)\b[1-8][0-9]{{5}}{_GAP}(?:18|19|20|21)[0-9]{{2}}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01]){_GAP}[0-9]{{3}}[0-9Xx]\b",
            "cn_resident_id",
        ),
    ),
    "cn_mobiles": (
        Part(
            rf"(?a)\b(?:[0-9]{{1,20}}\.)?(?:(?:00)?86{_GAP})?{_MOBILE}"
            rf"(?:[0-9]{{8}}|{_GAP}[0-9]{{4}}{_GAP}[0-9]{{4}})(?:\.[0-9]{{1,20}})?\b",
            never=".",
        ),
    ),
    "emails": (
        Part(
            r"(?a)\b[A-Za-z0-9](?:[A-Za-z0-9._%+\-]{0,62}[A-Za-z0-9_%+\-])?@"
            rf"(?:[A-Za-z0-9](?:[A-Za-z0-9\-]{{0,61}}[A-Za-z0-9])?\.){{1,8}}(?:{_TOP_LEVEL})\b"
        ),
    ),
    "ibans": (
        Part(
            rf"(?a)\b[A-Z]{{2}}[0-9]{{2}}(?:{_GAP}[A-Z0-9]{{4}}){{2,7}}(?:{_GAP}[A-Z0-9]{{1,3}})?\b",
            "iban_mod97",
        ),
    ),
    "jwts": (Part(r"(?a)\beyJ[A-Za-z0-9_\-]{8,512}\.eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?"),),
    # The patterns of the five-layer article, as they stand there.
    "five_layer": (
        Part(r"(密码|账号|身份证)\s*[:：=]\s*\w+", plain=True),
        Part(r"[\u4e00-\u9fa5]+\s*的\s*(银行卡|手机号)", plain=True),
        Part(r"\b\d{6,18}\b", plain=True),
    ),
}
"""Sets by name; a set's patterns count as one rule."""

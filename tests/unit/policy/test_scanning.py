"""The section `scan`: read, checked and compiled, and not yet taken by a gate."""

import pytest

from seawall.policy.compile import build_policy, compile_policy
from seawall.policy.load import load
from seawall.policy.mistake import PolicyError
from seawall.policy.scanning import ScanningDocument, rules_of

RULES = """\
scan:
  rules:
    - {id: cn-credential, pattern: '(密码|账号|身份证)\\s*[:：=]\\s*\\w+', on: [request, response], do: mask}
    - {id: cn-ownership,  pattern: '[\\u4e00-\\u9fa5]+\\s*的\\s*(银行卡|手机号)', on: [request], do: flag}
    - {id: long-number,   pattern: '\\b\\d{6,18}\\b', check: luhn, on: [response], do: mask, placeholder: "[CARD]"}
    - {id: secrets, builtin: api_keys, do: block, on_error: closed, max_length: 200, normalise: false}
  on_error: open
  hold: {size: 512, time: 500ms}
"""


def mistakes(text: str) -> list[str]:
    with pytest.raises(PolicyError) as refused:
        load(text, file="p", model=ScanningDocument)
    return [str(mistake) for mistake in refused.value.mistakes]


def test_a_gate_refuses_it_until_it_is_applied() -> None:
    """Nothing that a policy says goes unheeded: the section is an unknown key to `policy check`, `push` and a worker."""
    with pytest.raises(PolicyError) as refused:
        compile_policy(RULES)
    assert "policy.yaml:1:1: scan: unknown key" in str(refused.value)


def test_the_section_is_compiled() -> None:
    """Rules by side, their defaults, and the bounds of the wait."""
    loaded = load(RULES, model=ScanningDocument)
    scan = build_policy(loaded, "").scan
    assert scan is not None
    assert scan.request is not None
    assert scan.response is not None
    assert [rule.id for rule in scan.request.rules] == ["cn-credential", "cn-ownership", "secrets"]
    assert [rule.id for rule in scan.response.rules] == ["cn-credential", "long-number", "secrets"]
    assert (scan.hold.size, scan.hold.seconds) == (512, 0.5)
    credential, _, number, secrets = (
        rules_of(loaded.document.scan) if isinstance(loaded.document, ScanningDocument) else ()
    )
    assert (credential.replacement, number.replacement) == ("[cn-credential]", "[CARD]")
    assert (credential.on_error, secrets.on_error, secrets.max_length) == ("open", "closed", 200)
    assert (credential.normalises, number.normalises, secrets.normalises) == (False, True, False)


def test_no_rules_are_nothing() -> None:
    assert build_policy(load("scan: {on_error: closed}", model=ScanningDocument), "").scan is None
    assert compile_policy("").scan is None


@pytest.mark.parametrize(
    ("rule", "column", "mistake"),
    [
        ("{id: a, pattern: 'x(?<=y)'}", 33, "[0].pattern: rule 'a': look-around is beyond the dialect at position 1"),
        (
            "{id: a, pattern: '('}",
            33,
            "[0].pattern: rule 'a': is no pattern: missing ), unterminated subpattern at position 0",
        ),
        ("{id: a}", 16, "[0]: must have either a pattern or a builtin; allowed: one of the two"),
        (
            "{id: a, pattern: x, builtin: emails}",
            16,
            "[0]: must have either a pattern or a builtin; allowed: one of the two",
        ),
        ("{pattern: x}", 16, "[0].id: is missing"),
        (
            "{id: a, pattern: x, check: lun}",
            43,
            "[0].check: 'lun' is not allowed here; did you mean 'luhn'? allowed: luhn, cn_resident_id, iban_mod97",
        ),
        ("{id: a, pattern: x, do: hide}", 40, "[0].do: 'hide' is not allowed here; allowed: block, mask, flag"),
        ("{id: a, pattern: x, on: []}", 40, "[0].on: is empty; allowed: request, response, or leave the key out"),
        ("{id: a, pattern: x, on: [both]}", 41, "[0].on[0]: 'both' is not allowed here; allowed: request, response"),
        (
            "{id: a, pattern: x, placeholder: y}",
            36,
            "[0].placeholder: has no use in a rule that does not mask; allowed: do: mask",
        ),
        (
            "{id: a, pattern: x, normalise: 'true'}",
            47,
            "[0].normalise: 'true' is not allowed here; allowed: true, false",
        ),
        ("{id: a, pattern: x, max_length: 0}", 48, "[0].max_length: '0' is out of range; allowed: 1 to 16384"),
        (
            "{id: a, pattern: x, do: mask, placeholder: ''}",
            59,
            "[0].placeholder: '' is no placeholder; allowed: 1 to 64 printable characters",
        ),
        (
            "{id: a, builtin: email}",
            33,
            "[0].builtin: 'email' is not allowed here; did you mean 'emails'? allowed: api_keys, private_keys, pa",
        ),
        ("{id: a, pattern: x}, {id: a, pattern: y}", 42, "[1].id: 'a' the same id as scan.rules[0].id (p:1:21)"),
    ],
)
def test_mistakes_name_their_place(rule: str, column: int, mistake: str) -> None:
    (told,) = mistakes(f"scan: {{rules: [{rule}]}}")
    assert told.startswith(f"p:1:{column}: scan.rules{mistake}")


def test_mistakes_of_the_bounds() -> None:
    assert mistakes("scan: {hold: {size: 20KiB, time: 2h}, on_error: shut}") == [
        "p:1:21: scan.hold.size: '20KiB' is out of range; allowed: 64 bytes to 16KiB",
        "p:1:34: scan.hold.time: '2h' is out of range; allowed: 10ms to 60s",
        "p:1:49: scan.on_error: 'shut' is not allowed here; allowed: open, closed",
    ]

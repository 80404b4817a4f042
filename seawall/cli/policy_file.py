"""The policy file that settings name, for commands that can't go on without it."""

from seawall.cli.failure import Failure
from seawall.policy.compile import compile_policy
from seawall.policy.compiled import Policy
from seawall.policy.mistake import PolicyError
from seawall.serve.policy_text import read_policy
from seawall.serve.settings import Settings


def compiled(settings: Settings) -> Policy:
    """Read and compile the policy file, or an empty document without one. Raises Failure, with all its mistakes."""
    path = settings.policy_file
    try:
        text = "" if path is None else read_policy(path)
        return compile_policy(text, file=path or "policy", upstreams=settings.upstreams, max_body=settings.max_body)
    except OSError as e:
        raise Failure(f"{path}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"{path}: not UTF-8") from None
    except PolicyError as e:
        raise Failure(str(e)) from None
    except ValueError as e:
        raise Failure(f"--upstream: {e}") from None

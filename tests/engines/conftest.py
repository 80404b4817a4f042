from tests.engines.fixture import llama

__all__ = ["llama"]

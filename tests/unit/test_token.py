from __future__ import annotations

import base64
import hmac
import random
import string
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.domain.errors import InvalidArgument, InvalidTaskToken
from airunner.domain.token import TaskToken, TerminationSigner, TokenSigner

OLD, NEW = b"an old key, retired", b"a new key, in use.."
ALPHABET = string.ascii_letters + string.digits + "-_.="
TOKEN = TaskToken(job_id="018bcfe5-6800-7000-8000-000000000001", queue="builds", attempt=3)

tokens = st.builds(
    TaskToken,
    job_id=st.uuids().map(str),
    queue=st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=80),
    attempt=st.integers(0, 2**32 - 1),
    receipt=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200),
)


@given(token=tokens)
def test_a_token_comes_back_exactly(token: TaskToken) -> None:
    signer, of_another_replica = TokenSigner([NEW]), TokenSigner([NEW])
    text = signer.encode(token)
    assert signer.decode(text) == token
    # One that has not made the text must read it.
    assert of_another_replica.decode(text) == token
    assert of_another_replica.encode(of_another_replica.decode(text)) == text


def test_no_mutation_of_a_token_is_accepted() -> None:
    signer, dice = TokenSigner([NEW]), random.Random(4)
    text = signer.encode(TOKEN)
    refused = 0
    for _ in range(100_000):
        mutated = mutate(text, dice)
        if mutated == text:
            continue
        with pytest.raises(InvalidTaskToken):
            signer.decode(mutated)
        refused += 1
    assert refused > 95_000


def mutate(text: str, dice: random.Random) -> str:
    place = dice.randrange(len(text))
    letter = dice.choice(ALPHABET)
    match dice.randrange(5):
        case 0:
            return text[:place] + text[place + 1 :]
        case 1:
            return text[:place] + letter + text[place:]
        case 2:
            return text[:place] + text[place:][::-1]
        case _:
            return text[:place] + letter + text[place + 1 :]


@given(text=st.text(max_size=300))
def test_any_other_text_is_an_invalid_argument(text: str) -> None:
    with pytest.raises(InvalidArgument):
        TokenSigner([NEW]).decode(text)


@pytest.mark.parametrize("text", ["", ".", "v1", "v1.", "v1.AAAA", "v2.AAAA", "v1." + "A" * 5000, "v1.ü"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidTaskToken):
        TokenSigner([NEW]).decode(text)


def test_another_spelling_of_the_same_bytes_is_refused() -> None:
    signer = TokenSigner([NEW])
    token = TaskToken(job_id=TOKEN.job_id, queue="x", attempt=1)
    text = signer.encode(token)
    with pytest.raises(InvalidTaskToken):
        signer.decode(text + "=")
    # The last letter may hold bits that belong to no byte; only one spelling of them counts.
    accepted = [letter for letter in ALPHABET if accepts(signer, text[:-1] + letter)]
    assert accepted == [text[-1]]


def accepts(signer: TokenSigner, text: str) -> bool:
    try:
        signer.decode(text)
    except InvalidTaskToken:
        return False
    return True


def test_a_rotation_breaks_no_running_attempt() -> None:
    before, during, after = TokenSigner([OLD]), TokenSigner([NEW, OLD]), TokenSigner([NEW])
    assert during.decode(before.encode(TOKEN)) == TOKEN
    assert after.decode(during.encode(TOKEN)) == TOKEN
    with pytest.raises(InvalidTaskToken):
        after.decode(before.encode(TOKEN))


def test_tokens_of_two_jobs_cannot_be_mixed() -> None:
    signer = TokenSigner([NEW])
    other = TaskToken(job_id=str(uuid.uuid4()), queue="builds", attempt=3)
    mine, theirs = signer.encode(TOKEN), signer.encode(other)
    with pytest.raises(InvalidTaskToken):
        signer.decode(mine[:30] + theirs[30:])


@pytest.mark.parametrize("keys", [[], [b""], [b"short"], [NEW, b"15 bytes only.."]])
def test_keys_that_anybody_could_guess_are_refused(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        TokenSigner(keys)


@pytest.mark.parametrize("key", [b"k" * 16, b"k" * 64, b"k" * 65, b"k" * 200])
def test_the_signature_is_a_plain_hmac(key: bytes) -> None:
    raw = base64.urlsafe_b64decode(TokenSigner([key]).encode(TOKEN).partition(".")[2] + "==")
    assert raw[-16:] == hmac.digest(key, raw[:-16], "sha256")[:16]


ENDS = TokenSigner([NEW]).terminations()


def test_a_termination_token_is_of_one_attempt_on_one_instance() -> None:
    text = ENDS.encode(TOKEN.job_id, 3, "i-1")
    assert ENDS.verifies(text, TOKEN.job_id, 3, "i-1")
    assert not ENDS.verifies(text, TOKEN.job_id, 4, "i-1")
    assert not ENDS.verifies(text, TOKEN.job_id, 3, "i-2")
    assert not ENDS.verifies(text, "018bcfe5-6800-7000-8000-000000000002", 3, "i-1")


@given(
    texts=st.lists(st.text(max_size=4), min_size=2, max_size=2),
    others=st.lists(st.text(max_size=4), min_size=2, max_size=2),
    attempt=st.integers(0, 11),
)
def test_no_other_triple_has_the_same_termination_token(
    texts: list[str], others: list[str], attempt: int
) -> None:
    text = ENDS.encode(texts[0], 1, texts[1])
    is_same = [*texts, 1] == [*others, attempt]
    assert ENDS.verifies(text, others[0], attempt, others[1]) == is_same


@pytest.mark.parametrize("text", ["", "t1", "t1.", "t2.{}", "{}", "t1.{}0", "t1.\u00e9"])
def test_a_text_that_is_no_termination_token_is_refused(text: str) -> None:
    signature = ENDS.encode(TOKEN.job_id, 3, "i-1").partition(".")[2]
    assert not ENDS.verifies(text.format(signature), TOKEN.job_id, 3, "i-1")


def test_a_termination_token_is_accepted_while_its_key_is_known() -> None:
    text = TokenSigner([OLD]).terminations().encode(TOKEN.job_id, 3, "i-1")
    assert TokenSigner([NEW, OLD]).terminations().verifies(text, TOKEN.job_id, 3, "i-1")
    assert not ENDS.verifies(text, TOKEN.job_id, 3, "i-1")


def test_a_termination_token_opens_nothing_else() -> None:
    signer = TokenSigner([NEW])
    text = ENDS.encode(TOKEN.job_id, 3, "i-1")
    with pytest.raises(InvalidTaskToken):
        signer.decode(text)
    with pytest.raises(InvalidTaskToken):
        signer.decode(text.replace("t1.", "v1."))
    task_token = signer.encode(TOKEN)
    assert not ENDS.verifies(task_token.replace("v1.", "t1."), TOKEN.job_id, 3, "i-1")
    assert not TerminationSigner(signer.labelled("airunner bell v1")).verifies(text, TOKEN.job_id, 3, "i-1")

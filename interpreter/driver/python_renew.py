# Renew: this process continues in a copy of its sandbox, and other copies have
# the same memory. The driver loads this then; `driver` is its module, python.py.
import os
import sys


def renew():
    """Reseed the generators that would give the same numbers in every copy. The
    operating system's own (os.urandom, secrets, uuid4) need nothing."""
    for reseed in (openssl, standard, numpy):
        driver.attempt(reseed)


def openssl():
    # OpenSSL reseeds in a forked child, but its process ID is the same here.
    ssl = sys.modules.get("_ssl")
    if ssl is not None:
        ssl.RAND_add(os.urandom(48), 48.0)


def standard():
    random = sys.modules.get("random")
    if random is not None:
        random.seed()


def numpy():
    # The generators that default_rng returned are the program's own.
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()

# The request "renew": this process continues in a copy of its sandbox, and other
# copies have the same memory. `driver` is the module python.py.
import os
import sys


def renew():
    """Reseed the random generators that would return the same numbers in every
    copy. os.urandom, secrets and uuid4 use the kernel's, which differs."""
    for reseed in (openssl, standard, numpy):
        driver.ignore_errors(reseed)


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
    # Generators that default_rng returned belong to the program.
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()

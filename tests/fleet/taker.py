"""A process that takes tokens, for the tests to race. Not a test itself.

taker.py PLACE BUCKET TRIES   says `waiting`, waits for a line, tries so often in 4 threads to
                              take a token of 50 a day; says how many it got
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from toolkiln.fleet.address import RedisClient, open_redis
from toolkiln.fleet.security_stores import RedisBuckets
from toolkiln.model.policy import Draw, Rate
from toolkiln.store.store import Store, open_store


def main(place: str, bucket: str, tries: str) -> None:
    """Does the above."""
    draw = Draw(bucket, Rate(50, 86_400))
    opened: RedisClient | Store = open_redis(place) if "://" in place else open_store(place)
    buckets = RedisBuckets(opened) if isinstance(opened, RedisClient) else opened.buckets
    with closing(opened), ThreadPoolExecutor(4) as pool:
        print("waiting", flush=True)
        sys.stdin.readline()
        waits = list(pool.map(lambda _: buckets.take([draw]), range(int(tries))))
    print(waits.count(0.0), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

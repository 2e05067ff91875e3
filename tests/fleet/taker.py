"""A process that takes tokens, for the tests to race. Not a test itself.

taker.py URL BUCKET TRIES   says `waiting`, waits for a line, tries so often in 4 threads to
                            take a token of 50 a day; says how many it got
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from toolkiln.fleet.address import open_redis
from toolkiln.fleet.security_stores import RedisBuckets
from toolkiln.model.policy import Draw, Rate


def main(url: str, bucket: str, tries: str) -> None:
    """Does the above."""
    draw = Draw(bucket, Rate(50, 86_400))
    with closing(open_redis(url)) as opened, ThreadPoolExecutor(4) as pool:
        buckets = RedisBuckets(opened)
        print("waiting", flush=True)
        sys.stdin.readline()
        waits = list(pool.map(lambda _: buckets.take([draw]), range(int(tries))))
    print(waits.count(0.0), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

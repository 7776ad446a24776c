"""Which server of a pool is next, by a clock that the tests turn."""

from __future__ import annotations

from parallelsearch.retrieval.serving.pool import ServerPool


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def pool_of(*urls: str) -> tuple[ServerPool, Clock]:
    clock = Clock()
    return ServerPool(urls, clock), clock


def test_urls_are_those_of_the_server_not_of_its_path() -> None:
    pool, _ = pool_of("http://a:1/", "http://b:2/retrieve")
    assert [server.url for server in pool.servers] == ["http://a:1", "http://b:2"]


def test_a_failed_server_rests_one_second_then_two_then_four_up_to_thirty() -> None:
    pool, clock = pool_of("http://a", "http://b")
    server = pool.servers[0]
    rests = []
    for _ in range(7):
        pool.failed(server)
        rests.append(server.rests_until - clock.seconds)
    assert rests == [1, 2, 4, 8, 16, 30, 30]
    assert pool.next() is pool.servers[1] and pool.wants_check(server)
    clock.seconds += 30
    assert pool.next() is server
    pool.answered(server)
    assert not pool.wants_check(server)


def test_if_all_rest_the_first_to_wake_is_asked() -> None:
    pool, _ = pool_of("http://a", "http://b")
    for server, failures in zip(pool.servers, (2, 1), strict=True):
        for _ in range(failures):
            pool.failed(server)
    assert pool.next() is pool.servers[1]


def test_another_server_than_the_one_that_just_failed_is_preferred() -> None:
    pool, _ = pool_of("http://a", "http://b")
    with pool.request(pool.servers[1]):
        assert pool.next() is pool.servers[0]
        assert pool.next(but_not=[pool.servers[0]]) is pool.servers[1]
        assert pool.next(but_not=pool.servers) is pool.servers[0]

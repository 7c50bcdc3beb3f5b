"""Tests of shunt.py against a shuntd that runs. Its owner is a Go test, which sets the SHUNT_ variables."""

import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

import shunt

ENV = {name[6:]: value for name, value in os.environ.items() if name.startswith("SHUNT_")}
UNICODE = "h\u00e9llo \u2603 \U0001d11e \x00 \"\\ \u2028 %41+"
BINARY = bytes(range(256))


def control(path):
    """Asks the Go test to do something to shuntd."""
    with urllib.request.urlopen(urllib.request.Request(ENV["CONTROL"] + path, method="POST"), timeout=20) as answer:
        answer.read()


clients = []  # of the test that runs


def client(url="URL", token=ENV["TOKEN"], **how):
    clients.append(shunt.Client(ENV.get(url, url), "ns", token, **how))
    return clients[-1]


def lossy(path, **how):
    c = client("LOSSY", **how)
    control(path)
    return c


class Case(unittest.TestCase):
    def setUp(self):
        self.client = client()
        self.queue = "py-" + self.id().rsplit(".", 1)[1]

    def tearDown(self):
        while clients:
            clients.pop().close()

    def one(self, **how):
        """The only message of the queue."""
        got = self.client.pull(self.queue, **dict({"max": 10, "wait": 5}, **how))
        self.assertEqual(len(got), 1, got)
        return got[0]

    def none(self):
        self.assertEqual(self.client.pull(self.queue, max=10), [])

    def problem(self, kind, type, call, *args, **how):
        with self.assertRaises(kind) as caught:
            call(*args, **how)
        self.assertEqual(caught.exception.type, type)
        self.assertIs(caught.exception.__class__, kind)
        return caught.exception


class Calls(Case):
    def test_life(self):
        done = self.client.publish(self.queue, "hello", id="a/b \u2603", type="kind", headers={"X-One": UNICODE},
                                   retain=60, unique=1, expire=60, max_attempts=3)
        self.assertEqual((done.id, done.replayed), ("a/b \u2603", False))
        self.assertEqual(self.client.status(self.queue, done.id).state, "prepare")
        self.assertEqual(self.client.status(self.queue, serial=done.serial).id, done.id)
        m = self.one()
        self.assertEqual((m.text, m.id, m.type, m.attempt, m.queue, m.serial), ("hello", done.id, "kind", 1, self.queue,
                                                                                done.serial))
        self.assertEqual(m.headers, {"X-One": UNICODE})
        self.assertAlmostEqual((m.lease_ends_at - m.enqueued_at).total_seconds(), 30, delta=10)
        self.assertIsNone(self.client.wait(self.queue, done.id, timeout=0.05))
        self.client.extend(m, 60)
        self.client.ack(m, BINARY)
        out = self.client.wait(self.queue, done.id)
        self.assertEqual((out.kind, out.result, out.attempt), ("acked", BINARY, 1))
        self.assertEqual(self.client.status(self.queue, done.id).outcome.result, BINARY)
        self.none()

    def test_payloads(self):
        for payload in (BINARY, UNICODE, "", b"\xff", bytearray(b"x"), b"\xed\xa0\x80"):
            want = payload.encode() if isinstance(payload, str) else bytes(payload)
            for publish in (lambda: self.client.publish(self.queue, payload, headers={"k": UNICODE}),
                            lambda: self.client.publish_batch(self.queue, [{"payload": payload}])):
                publish()
                m = self.one()
                self.assertEqual(m.payload, want)
                self.client.ack(m)
        self.client.publish(self.queue, BINARY, headers={"big": "\u2603" * 5000})
        self.assertEqual(self.one().headers, {"big": "\u2603" * 5000})
        self.assertRaises(TypeError, self.client.publish, self.queue, 3)

    def test_delay(self):
        begun = time.monotonic()
        self.client.publish(self.queue, "x", delay=0.3)
        self.none()
        self.one()
        self.assertGreaterEqual(time.monotonic() - begun, 0.29)

    def test_batch(self):
        done = self.client.publish_batch(self.queue, [{"payload": "1", "id": "i"}, {"payload": "2", "id": "i"},
                                                      {"payload": "3"}], idempotency_key="k")
        self.assertIsInstance(done[1], shunt.Duplicate)
        got = self.client.pull([self.queue + "-none", self.queue], max=10)
        self.assertEqual([m.text for m in got], ["1", "3"])
        self.client.ack(got[0])
        first, second = self.client.ack_batch([got[0], got[1].receipt])
        self.assertIs(type(first), shunt.LeaseLost)
        self.assertIsNone(second)
        self.assertRaises(ValueError, self.client.publish_batch, self.queue, [])
        self.assertRaises(ValueError, self.client.ack_batch, [])

    def test_fail(self):
        self.client.publish(self.queue, "x", id="f", retain=60)
        m = self.one()
        self.client.fail(m, "bad \u2603" + "x" * 20000, after=0)
        m = self.one()
        self.assertEqual((m.attempt, m.failure[:5]), (2, "bad \u2603"))
        self.client.release(m)
        m = self.one()
        self.assertEqual(m.attempt, 2)
        self.client.fail(m, snooze=0.1)
        m = self.one()
        self.assertEqual(m.attempt, 2)
        self.client.fail(m, "never", reject=True)
        out = self.client.wait(self.queue, "f")
        self.assertEqual((out.kind, out.failure), ("rejected", "never"))
        self.none()

    def test_waits_for_the_end(self):
        self.client.publish(self.queue, "x", id="w", retain=60)
        got = []
        waiter = threading.Thread(target=lambda: got.append(self.client.wait(self.queue, "w", timeout=10)))
        waiter.start()
        self.client.ack(self.one(), "result")
        waiter.join()
        self.assertEqual(got[0].result, b"result")

    def test_keep_alive(self):
        self.client.publish(self.queue, "x")
        line = self.client._idle[0].sock.getsockname()
        for _ in range(3):
            self.client.pull(self.queue)
        self.assertEqual([c.sock.getsockname() for c in self.client._idle], [line])


class Errors(Case):
    def test_tokens(self):
        bad = client(token="no-token-of-this-namespace")
        self.problem(shunt.Unauthorized, "invalid-token", bad.publish, self.queue, "x")
        self.problem(shunt.Unauthorized, "no-token", client(token=None).pull, self.queue)
        self.problem(shunt.Unauthorized, "invalid-token", bad.work, self.queue, print)
        self.problem(shunt.NotFound, "no-pool", client(token="p:x").pull, self.queue)
        self.assertRaises(ValueError, shunt.Client, ENV["URL"], "ns", "a\r\nb: c")
        self.assertRaises(ValueError, shunt.Client, "ftp://x", "ns")

    def test_requests(self):
        c, q = self.client, self.queue
        self.assertIn("receipt", self.problem(shunt.InvalidRequest, "invalid-request", c.ack, "x").faults[0]["name"])
        p = self.problem(shunt.InvalidRequest, "invalid-request", c.publish, q, "x", expire=0, retain=5)
        self.assertEqual(len(p.faults), 2)
        self.problem(shunt.InvalidRequest, "invalid-request", c.publish, "a b/", "x")
        self.problem(shunt.TooLarge, "too-large", c.publish, q, "x" * 3000000)
        self.problem(shunt.NotFound, "no-message", c.status, q, "none")
        self.assertRaises(ValueError, c.publish, q, "x", idempotency_key="a\nb")
        self.assertRaises(ValueError, c.status, q)

    def test_states(self):
        c, q = self.client, self.queue
        c.publish(q, "x", id="i")
        taken = self.problem(shunt.Duplicate, "duplicate", c.publish, q, "y", id="i")
        self.assertEqual(taken.existing.state, "prepare")
        m = self.one()
        c.ack(m)
        for late in (c.ack, c.fail, c.release, c.extend):
            self.problem(shunt.LeaseLost, "lease-lost", late, m)
        self.assertIsInstance(self.caught(c.wait, q, "i", timeout=1), (shunt.NotKept, shunt.NotFound))
        c.publish(q, "x")
        self.problem(shunt.Conflict, "no-id", c.ack, self.one(), "result")
        c.publish(q, "x", idempotency_key="k")
        self.problem(shunt.KeyReused, "idempotency-key-reused", c.publish, q, "y", idempotency_key="k")

    def caught(self, call, *args, **how):
        try:
            call(*args, **how)
        except shunt.ShuntError as failure:
            return failure

    def test_lease_lost(self):
        self.client.publish(self.queue, "x")
        first = self.one(lease=0.05)
        second = self.one()
        self.assertEqual(second.attempt, 2)
        self.problem(shunt.LeaseLost, "lease-lost", self.client.ack, first)
        self.client.ack(second)

    def test_tls(self):
        c = client("TLS", ca_file=ENV["CA"])
        for _ in range(2):
            c.publish(self.queue, BINARY * 200)
        self.assertEqual(len(c.pull(self.queue, max=2)), 2)
        for bad in (client("TLS", retry_for=0),
                    client(ENV["TLS"].replace("127.0.0.1", "localhost"), ca_file=ENV["CA"], retry_for=0)):
            with self.assertRaises(shunt.Unreachable) as caught:
                bad.pull(self.queue)
            self.assertFalse(caught.exception.sent)
            self.assertIn("certificate", str(caught.exception))


class Troubles(Case):
    def test_lost_answers(self):
        c = lossy("/lose?n=2")
        done = c.publish(self.queue, "x", idempotency_key="k")
        self.assertTrue(done.replayed)
        m = self.one()
        c = lossy("/lose?n=1")
        self.problem(shunt.Unconfirmed, "unconfirmed", c.ack, m)
        c = lossy("/lose?n=1")
        with self.assertRaises(shunt.Unreachable) as caught:
            c.publish(self.queue, "y")
        self.assertTrue(caught.exception.sent)
        m = self.one()
        self.assertEqual(m.text, "y")
        self.assertIsInstance(lossy("/lose?n=1").ack_batch([m])[0], shunt.Unconfirmed)

    def test_refusals(self):
        begun = time.monotonic()
        lossy("/refuse?n=1&status=429&type=rate-limited&after=1").publish(self.queue, "x")
        self.assertGreaterEqual(time.monotonic() - begun, 1)
        self.client.ack(self.one())
        lossy("/refuse?n=2&status=502").publish(self.queue, "x", idempotency_key="k")
        self.client.ack(self.one())
        self.problem(shunt.ServerFailed, "", lossy("/refuse?n=1&status=502").publish, self.queue, "x")
        c = lossy("/refuse?n=1&status=503&type=busy&after=1", retry_for=0)
        self.assertEqual(self.problem(shunt.Unavailable, "busy", c.pull, self.queue).retry_after, 1)
        self.none()

    def test_restart(self):
        c, q = self.client, self.queue
        c.publish(q, "0", idempotency_key="0")
        handled = []
        worker = shunt.Worker(client(), q + "-work", lambda m: handled.append(m.text))
        working = threading.Thread(target=worker.run)
        working.start()
        kept = client()
        kept.pull(q + "-none")
        control("/kill")
        with self.assertRaises(shunt.Unreachable) as caught:
            client(retry_for=0).publish(q, "none")
        self.assertFalse(caught.exception.sent)
        publishers = [threading.Thread(target=c.publish, args=(q, str(i)), kwargs={"idempotency_key": str(i)})
                      for i in (1, 2)]
        for p in publishers:
            p.start()
        control("/start")
        kept.publish(q + "-none", "x")  # it sees that its connection has ended, so it needs no key
        for p in publishers:
            p.join()
        for i in (0, 1, 2):
            self.assertTrue(c.publish(q, str(i), idempotency_key=str(i)).replayed)
        self.assertEqual(sorted(m.text for m in c.pull(q, max=10)), ["0", "1", "2"])
        c.publish(q + "-work", "x", id="x", retain=60)
        self.assertEqual(c.wait(q + "-work", "x").kind, "acked")
        worker.stop()
        working.join(5)
        self.assertFalse(working.is_alive())
        self.assertEqual(handled, ["x"])


class Work(Case):
    def work(self, handler, until, url="URL", **how):
        """Runs a worker until until has returned."""
        how.setdefault("lease", 1)
        worker = shunt.Worker(client(url, ca_file=ENV["CA"]), self.queue, handler, **how)
        working = threading.Thread(target=worker.run)
        working.start()
        try:
            return until()
        finally:
            worker.stop()
            working.join(5)
            self.assertFalse(working.is_alive())

    def test_long_handler(self):
        self.client.publish(self.queue, "x", id="x", retain=60)
        begun = threading.Event()

        def handler(m):
            begun.set()
            time.sleep(2.2)
            return "r%d" % m.attempt

        def until():
            begun.wait(5)
            self.assertEqual(self.client.pull(self.queue, wait=1.8), [])
            return self.client.wait(self.queue, "x")

        out = self.work(handler, until)
        self.assertEqual((out.kind, out.result), ("acked", b"r1"))

    def test_exceptions(self):
        """Of a handler that raises, and of one whose return is no result."""
        c, q = self.client, self.queue
        c.publish(q, "x", id="raises")
        c.publish(q, "x", id="returns")

        def handler(m):
            if m.id == "raises":
                raise ValueError("why \u2603")
            return {}

        def failures():
            end = time.monotonic() + 5
            while time.monotonic() < end:
                got = [c.status(q, "raises").failure, c.status(q, "returns").failure]
                if all(got):
                    return got
            return None

        with self.assertLogs("shunt", "WARNING"):
            got = self.work(handler, failures)
        self.assertEqual(got[0], "ValueError: why \u2603")
        self.assertTrue(got[1].startswith("TypeError: "), got)

    def test_verdicts(self):
        c, q = self.client, self.queue
        seen = []

        def handler(m):
            seen.append((m.attempt, m.failure))
            if len(seen) == 1:
                raise shunt.Retry("later", 0)
            if len(seen) == 2:
                raise shunt.Snooze(0.1)
            raise shunt.Reject("no")

        c.publish(q, "x", id="v", retain=60)
        out = self.work(handler, lambda: c.wait(q, "v"))
        self.assertEqual((out.kind, out.failure), ("rejected", "no"))
        self.assertEqual([one[0] for one in seen], [1, 2, 2])
        self.assertEqual(seen[1][1], "later")

    def test_stop_idle(self):
        for url in ("URL", "TLS"):
            begun = time.monotonic()
            self.work(print, lambda: self.client.pull(self.queue), url)
            self.assertLess(time.monotonic() - begun, 5)
        self.client.publish(self.queue, "x")
        self.assertEqual(self.one().attempt, 1)

    def test_gives_back(self):
        """SIGTERM comes before the answer of a pull, which has a message: it was not begun, and goes back."""
        for url in ("LOSSY", "TLS"):
            p = self.worker(url)
            control("/term?pid=%d" % p.pid)
            self.client.publish(self.queue, "x")
            self.assertEqual(p.stdout.read(), b"")
            self.assertEqual(p.wait(10), 0)
            m = self.one(wait=0)
            self.assertEqual(m.attempt, 1)
            self.client.ack(m)

    def worker(self, url="URL"):
        p = subprocess.Popen([sys.executable, "-B", __file__, "work", self.queue, url], stdout=subprocess.PIPE)
        self.addCleanup(p.wait)  # the last cleanup is the first to run
        self.addCleanup(p.kill)
        self.addCleanup(p.stdout.close)
        self.assertEqual(p.stdout.readline(), b"ready\n")
        return p

    def test_signal(self):
        """SIGTERM while it waits, and while it handles: the handler ends, and nothing else is held."""
        for busy in (False, True):
            p = self.worker()
            if busy:
                self.client.publish(self.queue, "1", id="1", retain=60)
                self.assertEqual(p.stdout.readline(), b"begun\n")
                self.client.publish(self.queue, "2")
            begun = time.monotonic()
            p.terminate()
            self.assertEqual(p.wait(10), 0)
            self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(self.client.status(self.queue, "1").outcome.result, b"done")
        m = self.one(wait=0)
        self.assertEqual((m.text, m.attempt), ("2", 1))


def work(queue, url):
    signal.alarm(50)  # it ends also where the test was killed
    c = client(url, ca_file=ENV["CA"])
    worker = shunt.Worker(c, queue, handler)
    asks = worker._asks

    def told(sock):  # the first pull is about to be sent, with the signals' handlers in place
        print("ready", flush=True)
        worker._asks = asks
        return asks(sock)

    worker._asks = told
    worker.run()


def handler(message):
    print("begun", flush=True)
    time.sleep(0.5)  # for the signal, which comes while it runs
    return "done"


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:])
    else:
        unittest.main(verbosity=2)

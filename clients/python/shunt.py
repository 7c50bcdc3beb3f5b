"""A client of shuntd's HTTP interface /v1: reliable message queues on Redis.

One file, Python 3.9 or later, the standard library alone. Copy it into your project.

    import shunt
    client = shunt.Client("http://127.0.0.1:7777", "ns", token="...")
    client.publish("orders", b"payload", id="order-7", idempotency_key=shunt.new_key())
    client.work(["orders"], lambda message: print(message.text))

All times are seconds, as int or float, rounded up to a whole ms. Payloads and results are bytes, or str, which is sent
as UTF-8. All errors of a call are a ShuntError. Wrong arguments that need no server are ValueError or TypeError.

A Client may be used from several threads at once: each call has a connection of its own, which is kept for the next
one. After a fork it makes new ones. It follows no redirect, and uses no proxy of the environment.
"""

import base64
import datetime
import email.utils
import http.client
import json
import logging
import math
import os
import random
import re
import select
import signal
import socket
import ssl
import threading
import time
import urllib.parse
import uuid

__all__ = [
    "Client", "Worker", "Message", "Published", "Status", "Outcome", "new_key", "Reject", "Retry", "Snooze",
    "ShuntError", "Unreachable", "Problem", "InvalidRequest", "Unauthorized", "Forbidden", "NotFound", "Duplicate",
    "Conflict", "LeaseLost", "Unconfirmed", "NotKept", "TooLarge", "KeyReused", "RateLimited", "Unavailable",
    "UnknownOutcome", "ServerFailed",
]

log = logging.getLogger("shunt")

_PREFIX = "urn:shunt:problem:"
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 10.0  # between attempts: doubled each time, and half of it random
_MAX_RETRY_AFTER = 60.0
_MAX_REASON = 16 << 10  # bytes
_MAX_QUERY = 4000  # characters; a server reads 16 KiB of request line and headers by default


# ---- errors


class ShuntError(Exception):
    """The base of all errors of this module."""


class Unreachable(ShuntError):
    """There was no whole answer: no connection, a broken one, or none within the timeout.

    sent is False where the server surely has not got the request, and True where it may have done what it asked for.
    """

    def __init__(self, text, sent):
        super().__init__(text)
        self.sent = sent


class Problem(ShuntError):
    """The server refused. Its attributes are those of the answer.

    type         the stable name without "urn:shunt:problem:", such as "lease-lost"; "" where the answer had none
    status       of HTTP
    title        a sentence that goes with the type
    detail       what is special here; may be ""
    faults       of an invalid request: a list of dicts with in, name and detail
    existing     of a duplicate: the Status of the message that has the id; may be None
    request      the request's id in shuntd's log; may be ""
    retry_after  seconds, None where the answer has none
    after_loss   an earlier attempt of this call may have been done although its answer was lost
    """

    def __init__(self, status, body=None, retry_after=None):
        body = body if isinstance(body, dict) else {}
        name = str(body.get("type") or "")
        self.type = name[len(_PREFIX):] if name.startswith(_PREFIX) else ""
        self.status = status
        self.title = str(body.get("title") or http.client.responses.get(status, "no reason is given"))
        self.detail = str(body.get("detail") or "")
        faults = body.get("faults")
        self.faults = faults if isinstance(faults, list) else []
        self.existing = Status(body["existing"]) if isinstance(body.get("existing"), dict) else None
        self.request = str(body.get("request") or "")
        self.retry_after = retry_after
        self.after_loss = False
        parts = ["%d %s: %s" % (status, self.type or "no shunt problem", self.title), self.detail]
        parts += ["%s %s: %s" % (f.get("in"), f.get("name"), f.get("detail")) for f in self.faults[:5]]
        super().__init__(" ".join(p for p in parts if p))


class InvalidRequest(Problem):
    """400: see faults."""


class Unauthorized(Problem):
    """401: there is no token, or it is not valid for the namespace."""


class Forbidden(Problem):
    """403: the token's role does not allow this."""


class NotFound(Problem):
    """404: there is no such message, pool or route."""


class Conflict(Problem):
    """409: the message is in a state, or of a kind, that does not allow this; see type."""


class Duplicate(Conflict):
    """409: the id is taken by another message; see existing."""


class LeaseLost(Problem):
    """410: the message was settled already, or its lease has ended. The verdict has changed nothing."""


class Unconfirmed(LeaseLost):
    """410: the same, after an answer was lost: this very verdict may have settled the message."""


class NotKept(Problem):
    """410: the message is over, and its outcome was not kept: it was published without retain."""


class TooLarge(Problem):
    """413: the payload, or the whole request, is larger than the server takes."""


class KeyReused(Problem):
    """422: another request was made under this Idempotency-Key."""


class RateLimited(Problem):
    """429: the token's limit is reached."""


class ServerFailed(Problem):
    """500 and above: what was asked for may have been done."""


class Unavailable(ServerFailed):
    """503 of a type that says that nothing was done: busy, stopping, redis-full, redis-unavailable."""


class UnknownOutcome(ServerFailed):
    """503: a reply of Redis was lost, so it may have been done."""


_BY_TYPE = {
    "duplicate": Duplicate, "lease-lost": LeaseLost, "unconfirmed": Unconfirmed, "outcome-not-kept": NotKept,
    "busy": Unavailable, "stopping": Unavailable, "redis-full": Unavailable, "redis-unavailable": Unavailable,
    "unknown-outcome": UnknownOutcome,
}
_BY_STATUS = {
    400: InvalidRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 413: TooLarge,
    422: KeyReused, 429: RateLimited,
}


def _problem(status, body, retry_after=None):
    problem = Problem(status, body)
    kind = _BY_TYPE.get(problem.type) or _BY_STATUS.get(status) or (ServerFailed if status >= 500 else Problem)
    return kind(status, body, retry_after)


# ---- what a handler of work may raise


class Reject(Exception):
    """Raised by a handler: the message becomes a dead letter, without further attempts."""


class Retry(Exception):
    """Raised by a handler: the attempt has failed, and the next one comes after some seconds, 0 or more."""

    def __init__(self, reason, after):
        super().__init__(reason)
        self.after = after


class Snooze(Exception):
    """Raised by a handler: the message comes again after some seconds, 0.1 or more. No attempt is counted."""

    def __init__(self, seconds):
        super().__init__("snoozed for %s s" % seconds)
        self.seconds = seconds


# ---- what answers have


def _instant(text):
    """A time of RFC 3339 in UTC, of which Python 3.9 reads few forms."""
    m = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z$", text or "")
    if not m:
        return None
    whole = datetime.datetime.strptime(m.group(1), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return whole + datetime.timedelta(microseconds=round(float(m.group(2) or 0) * 1e6))


def _bytes(of, name):
    """Bytes in an answer: None where there are none."""
    if of.get(name + "_base64") is not None:
        return base64.b64decode(of[name + "_base64"], validate=True)
    text = of.get(name)
    return None if text is None else text.encode()


class _Record:
    def __repr__(self):
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % one for one in sorted(vars(self).items())))


class Message(_Record):
    """A message that was pulled, which is the consumer's until its lease ends or it is settled.

    payload bytes; text, the same as str; receipt, which settles this delivery; queue; serial, "" for one of another
    program; id, type and failure (of the attempt before), "" where there is none; attempt, from 1; recoveries; headers,
    a dict of str; enqueued_at and lease_ends_at, datetimes in UTC or None. lost is set once the lease is known to be
    lost: a handler of work that sees it had better end.
    """

    def __init__(self, of):
        self.receipt, self.queue = of["receipt"], of["queue"]
        self.payload = _bytes(of, "payload") or b""
        self.serial, self.id, self.type = of.get("serial", ""), of.get("id", ""), of.get("type", "")
        self.attempt, self.recoveries = of.get("attempt", 0), of.get("recoveries", 0)
        self.headers, self.failure = of.get("headers") or {}, of.get("failure", "")
        self.enqueued_at, self.lease_ends_at = _instant(of.get("enqueued_at")), _instant(of.get("lease_ends_at"))
        self.lost = False

    @property
    def text(self):
        """The payload as str. UnicodeDecodeError if it is not UTF-8."""
        return self.payload.decode()


class Published(_Record):
    """A message that was published: serial, id ("" without one), ref, and replayed: an earlier request did it."""

    def __init__(self, of, replayed):
        self.serial, self.id, self.ref = of.get("serial", ""), of.get("id", ""), of.get("ref", "")
        self.replayed = replayed


class Outcome(_Record):
    """How a message ended: kind ("acked", "rejected", ...), result (bytes or None), failure, attempt, ended_at."""

    def __init__(self, of):
        self.kind, self.result, self.failure = of["kind"], _bytes(of, "result"), of.get("failure", "")
        self.attempt, self.ended_at = of.get("attempt", 0), _instant(of.get("ended_at"))
        self.kept_until = _instant(of.get("kept_until"))


class Status(_Record):
    """Where a message is: state ("prepare", "delay", "leased", "doing", "dead", "done", ...; "" if unknown), attempt,
    outcome or None, cancelled, failure, and the times enqueued_at, due_at, started_at, unique_until (datetime or None).
    """

    def __init__(self, of):
        self.queue, self.id, self.serial = of.get("queue", ""), of.get("id", ""), of.get("serial", "")
        self.state, self.attempt = of.get("state", ""), of.get("attempt", 0)
        self.cancelled, self.failure = bool(of.get("cancelled")), of.get("failure", "")
        self.enqueued_at, self.due_at = _instant(of.get("enqueued_at")), _instant(of.get("due_at"))
        self.started_at, self.unique_until = _instant(of.get("started_at")), _instant(of.get("unique_until"))
        self.outcome = Outcome(of["outcome"]) if of.get("outcome") else None


# ---- what requests have


def new_key():
    """A new Idempotency-Key."""
    return uuid.uuid4().hex


def _ms(seconds):
    return math.ceil(round(seconds * 1000, 6))


def _put(fields, name, value):
    """Adds bytes to a JSON object: as text where they are UTF-8."""
    if isinstance(value, str):
        value = value.encode()
    value = bytes(memoryview(value))  # TypeError for what are no bytes; bytes(3) would be three zeros
    try:
        fields[name] = value.decode()
    except UnicodeDecodeError:
        fields[name + "_base64"] = base64.b64encode(value).decode()


def _options(id=None, type=None, delay=None, headers=None, expire=None, retain=None, unique=None, max_attempts=None):
    """The fields of a publish beside its payload. A value of None is not sent, and any other is: 0 is refused."""
    fields = {"id": id, "type": type, "headers": dict(headers) if headers else None, "max_attempts": max_attempts}
    for name, seconds in (("delay", delay), ("expire", expire), ("retain", retain), ("unique", unique)):
        fields[name + "_ms"] = None if seconds is None else _ms(seconds)
    return {name: value for name, value in fields.items() if value is not None}


class _Stopped(Exception):
    """A worker was stopped before its pull was sent."""


# ---- the client


class Client:
    """Calls of one namespace.

    url              "http://host:port" or "https://host:port"; a path is put before /v1
    namespace        letters, digits, - and _
    token            of the namespace, "pool:token" for another pool than the default; None: a server without tokens
    timeout          of one attempt of a call, 30 s; a call that waits has its wait on top
    connect_timeout  5 s
    retry_for        how long a call is tried again after failures that allow it, 30 s; 0: never
    ca_file          of authorities in PEM; None: those of the system. Certificates are always verified.
    max_answer       bytes of an answer that are read at most, 128 MiB
    """

    def __init__(self, url, namespace, token=None, *, timeout=30.0, connect_timeout=5.0, retry_for=30.0, ca_file=None,
                 max_answer=128 << 20):
        at = urllib.parse.urlsplit(url)
        if at.scheme not in ("http", "https") or not at.hostname or at.query or at.fragment or at.username:
            raise ValueError("url: want http://host:port or https://host:port")
        if timeout <= 0 or connect_timeout <= 0 or retry_for < 0 or max_answer < 1:
            raise ValueError("want timeouts and max_answer above 0, and retry_for of 0 or more")
        self._host, self._port = at.hostname, at.port
        self._base = at.path.rstrip("/") + "/v1/" + urllib.parse.quote(namespace, safe="")
        self._tls = ssl.create_default_context(cafile=ca_file) if at.scheme == "https" else None
        self._headers = {"Accept": "application/json", "User-Agent": "shunt-python/1"}
        if token is not None:
            if not re.fullmatch(r"[!-~]+", token):
                raise ValueError("token: want printable ASCII without spaces")
            self._headers["Authorization"] = "Bearer " + token
        self.timeout, self.connect_timeout, self.retry_for = timeout, connect_timeout, retry_for
        self.max_answer = max_answer
        self._lock, self._idle, self._pid = threading.Lock(), [], os.getpid()

    def close(self):
        """Closes the idle connections. The Client can be used further."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- publish

    def publish(self, queue, payload, *, id=None, type=None, delay=None, headers=None, expire=None, retain=None,
                unique=None, max_attempts=None, idempotency_key=None):
        """Publishes one message, and returns a Published.

        payload          bytes or str, by default up to 1 MiB
        id               1 to 255 bytes; Duplicate while another message of the queue has it
        type             a name for the handler, 1 to 255 bytes
        delay            until it is due, 0 to 100 years
        headers          dict of str: at most 100, each 1 to 255 bytes of name and up to 16 KiB of value
        expire           until it is too late to handle it; longer than delay
        retain           how long its outcome is kept; needs an id; without it wait is of no use
        unique           how long the id stays taken; needs an id
        max_attempts     1 to 255; the server's default otherwise
        idempotency_key  1 to 255 printable characters of ASCII. The publish is done once for a key in 24 h. So it is
                         tried again after lost answers, too. Each key costs some 300 bytes in Redis for 24 h. Without
                         one it is tried again only where nothing was done, and Unreachable.sent may be True.
        """
        fields = _options(id, type, delay, headers, expire, retain, unique, max_attempts)
        query = {"header." + name: value for name, value in fields.pop("headers", {}).items()}
        query.update(fields)
        if len(urllib.parse.urlencode(query)) > _MAX_QUERY:  # as a batch of one all of it is in the body
            one = {"payload": payload, "id": id, "type": type, "delay": delay, "headers": headers, "expire": expire,
                   "retain": retain, "unique": unique, "max_attempts": max_attempts}
            done = self.publish_batch(queue, [one], idempotency_key=idempotency_key)[0]
            if isinstance(done, Problem):
                raise done
            return done
        if isinstance(payload, str):
            payload = payload.encode()
        answer, replayed = self._publish(self._queue(queue) + "/messages", query, bytes(memoryview(payload)), None,
                                         idempotency_key)
        return Published(answer, replayed)

    def publish_batch(self, queue, messages, *, idempotency_key=None):
        """Publishes 1 to 100 messages: dicts with payload and any options of publish but the key.

        Returns a list of the same order, with a Published, or the Problem for which that one was not published. The
        key is that of the whole batch. ValueError for another number of messages.
        """
        if not 1 <= len(messages) <= 100:
            raise ValueError("messages: want 1 to 100")
        orders = []
        for one in messages:
            one = dict(one)
            order = {}
            _put(order, "payload", one.pop("payload"))
            order.update(_options(**one))
            orders.append(order)
        answer, replayed = self._publish(self._queue(queue) + "/messages:batch", {}, None, orders, idempotency_key)
        return [_problem(one["problem"].get("status", 0), one["problem"]) if one.get("problem")
                else Published(one, replayed) for one in answer["messages"]]

    def _publish(self, path, query, body, value, key):
        headers = {}
        if key is not None:
            if not re.fullmatch(r"[ -~]{1,255}", key):
                raise ValueError("idempotency_key: want 1 to 255 printable characters of ASCII")
            headers["Idempotency-Key"] = key
        status, answer, got = self._call("POST", path, query, body, value, headers, repeatable=key is not None)
        return answer, got.get("Idempotency-Replayed") == "true"

    # -- consume

    def pull(self, queues, *, max=1, lease=30.0, wait=0.0):
        """Takes up to max messages, 1 to 1,000, of 1 to 64 queues, the first of them first. Returns a list of Messages.

        lease  how long they are the consumer's, 0.01 s to 7 days
        wait   for a first message where there is none, 0 to 24 h; the server cuts it, by default at 10 minutes

        It is never tried again by itself: after a lost answer messages may be leased. They come again with the end of
        the lease.
        """
        return self._pull(queues, max, lease, wait, None)

    def _pull(self, queues, max, lease, wait, worker):
        if isinstance(queues, str):
            queues = [queues]
        value = {"queues": list(queues), "max": max, "lease_ms": _ms(lease), "wait_ms": _ms(wait)}
        _, answer, _ = self._call("POST", "/pull", value=value, wait=wait, retry_for=0, worker=worker)
        return [Message(one) for one in (answer or {}).get("messages", ())]

    def ack(self, message, result=None):
        """Says that the message is done. message is a Message or its receipt, here and below.

        result is bytes or str, up to 1 MiB, for who waits for it; it needs a message with an id (else Conflict), and is
        kept for the message's retain. LeaseLost if it comes too late; Unconfirmed if that may be because of this very
        ack, whose answer was lost.
        """
        fields = {}
        if result is not None:
            _put(fields, "result", result)
        self._verdict("ack", message, fields)

    def ack_batch(self, messages):
        """Acks 1 to 1,000 messages. Returns a list of the same order: None, or the Problem of that one."""
        verdicts = [{"verdict": "ack", "receipt": self._receipt(one)} for one in messages]
        if not 1 <= len(verdicts) <= 1000:
            raise ValueError("messages: want 1 to 1000")
        _, answer, headers = self._call("POST", "/settle", value=verdicts, repeatable=True)
        failed = [_problem(one["problem"].get("status", 0), one["problem"]) if one.get("problem") else None
                  for one in answer["outcomes"]]
        if headers["after_loss"]:
            failed = [Unconfirmed(410, {"type": _PREFIX + "unconfirmed", "title": "An answer was lost."})
                      if isinstance(one, LeaseLost) else one for one in failed]
        return failed

    def fail(self, message, reason="", *, after=None, reject=False, snooze=None):
        """Says that the attempt has failed, for a reason of up to 16 KiB; what is longer is cut.

        after   s until the next attempt, 0 or more; None: the server's backoff
        reject  True: no further attempt; the message becomes a dead letter
        snooze  s, 0.1 or more: it comes again, and no attempt is counted

        At most one of the three (InvalidRequest). LeaseLost and Unconfirmed as with ack.
        """
        fields = {"reject": True} if reject else {}
        if reason:
            fields["reason"] = reason.encode("utf-8", "replace")[:_MAX_REASON].decode("utf-8", "ignore")
        if after is not None:
            fields["after_ms"] = _ms(after)
        if snooze is not None:
            fields["snooze_ms"] = _ms(snooze)
        self._verdict("fail", message, fields)

    def release(self, message):
        """Gives the message back as if it had not been taken. LeaseLost and Unconfirmed as with ack."""
        self._verdict("release", message, {})

    def extend(self, message, lease=30.0):
        """Has the lease end after so many seconds from now, 0.01 s to 7 days. LeaseLost if it has ended already."""
        self._verdict("extend", message, {"lease_ms": _ms(lease)})

    def _receipt(self, message):
        return message.receipt if isinstance(message, Message) else message

    def _verdict(self, name, message, fields, **how):
        fields["receipt"] = self._receipt(message)
        try:
            self._call("POST", "/" + name, value=fields, repeatable=True, **how)
        except LeaseLost as problem:
            if name == "extend" or not problem.after_loss or isinstance(problem, Unconfirmed):
                raise
            raise Unconfirmed(410, {"type": _PREFIX + "unconfirmed", "title": "An answer was lost: this verdict may "
                                    "have settled the message.", "request": problem.request}) from problem

    # -- look

    def status(self, queue, id=None, *, serial=None):
        """The Status of a message, by its id or its serial. NotFound if nothing is known of it."""
        return Status(self._call("GET", self._message(queue, id, serial), repeatable=True)[1])

    def wait(self, queue, id=None, *, serial=None, timeout=60.0):
        """Waits for the end of a message, up to timeout. Returns its Outcome, or None if it has not ended yet.

        NotKept if it has ended and was published without retain; NotFound if nothing is known of it; Conflict if it
        has no id.
        """
        path, end = self._message(queue, id, serial) + "/outcome", time.monotonic() + timeout
        while True:
            left = max(0.0, min(end - time.monotonic(), 30.0))
            begun = time.monotonic()
            _, answer, _ = self._call("GET", path, {"wait_ms": _ms(left)}, repeatable=True, wait=left)
            if answer["over"]:
                return Outcome(answer["outcome"])
            if time.monotonic() >= end:
                return None
            if time.monotonic() - begun < min(left, _FIRST_PAUSE):  # from a server that stops
                time.sleep(_FIRST_PAUSE)

    def _queue(self, queue):
        return "/" + urllib.parse.quote(queue, safe="")

    def _message(self, queue, id, serial):
        if (id is None) == (serial is None):
            raise ValueError("want an id or a serial")
        ref = "id:" + id if id is not None else "serial:" + serial
        return self._queue(queue) + "/messages/" + urllib.parse.quote(ref, safe="")

    # -- work

    def work(self, queues, handler, *, lease=30.0, wait=20.0):
        """Handles messages, one at a time, until SIGTERM or SIGINT, or until Worker.stop by another thread.

        It is Worker(...).run(): see there for what becomes of a message. Signals are taken in the main thread alone.
        """
        Worker(self, queues, handler, lease=lease, wait=wait).run()

    # -- the line

    def _call(self, method, path, query=None, body=None, value=None, headers=None, *, repeatable=False, wait=0.0,
              retry_for=None, timeout=None, ended=None, worker=None):
        """One call with its further attempts: status, the answer's JSON (None without one) and its headers.

        repeatable  it may be done twice without harm, so it is sent again after an answer was lost
        ended       a threading.Event that ends the further attempts
        """
        target = self._base + path
        if query:
            target += "?" + urllib.parse.urlencode(query, quote_via=urllib.parse.quote)
        headers = dict(self._headers, **(headers or {}))
        if value is not None:
            body = json.dumps(value, ensure_ascii=False).encode()
            headers["Content-Type"] = "application/json"
        timeout = (self.timeout if timeout is None else timeout) + wait
        end = time.monotonic() + (self.retry_for if retry_for is None else retry_for)
        pause, after_loss = _FIRST_PAUSE, False
        while True:
            try:
                status, answer, got = self._once(method, target, body, headers, timeout, worker)
                got["after_loss"] = after_loss
                return status, answer, got
            except (Unreachable, Unavailable, RateLimited, ServerFailed) as failure:
                nothing_done = isinstance(failure, (Unavailable, RateLimited)) or \
                    isinstance(failure, Unreachable) and not failure.sent
                least = getattr(failure, "retry_after", None) or 0.0
                pause_now = max(pause * random.uniform(0.5, 1.0), least)
                if not (nothing_done or repeatable) or time.monotonic() + pause_now > end or ended and ended.is_set():
                    raise
                after_loss = after_loss or not nothing_done
            except Problem as problem:
                problem.after_loss = after_loss
                raise
            if ended:
                ended.wait(pause_now)
            else:
                time.sleep(pause_now)
            pause = min(pause * 2, _LAST_PAUSE)

    def _once(self, method, target, body, headers, timeout, worker):
        connection = self._connection()
        kept = False
        try:
            connection.sock.settimeout(timeout)
            if worker and not worker._asks(connection.sock):
                kept = True
                raise _Stopped()
            end = time.monotonic() + timeout
            try:
                connection.request(method, target, body=body, headers=headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it may have refused a body that is too large, before it has read all of it
            answer = connection.getresponse()
            raw, size = [], 0
            while True:
                part = answer.read(64 << 10)
                if not part:
                    break
                raw.append(part)
                size += len(part)
                if size > self.max_answer:
                    raise http.client.HTTPException("the answer has more than %d bytes" % self.max_answer)
                if time.monotonic() > end:
                    raise socket.timeout("the answer was not complete in %s s" % timeout)
            kept = not answer.will_close
            return self._answer(answer.status, answer.headers, b"".join(raw))
        except (OSError, http.client.HTTPException) as failure:
            raise Unreachable("%s: %s" % (type(failure).__name__, failure), True) from failure
        finally:
            if worker:
                kept = worker._asked() and kept
            if kept:
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()

    def _answer(self, status, headers, raw):
        after = headers.get("Retry-After")
        headers = {name: headers[name] for name in headers}
        try:
            answer = json.loads(raw) if raw else None
        except ValueError:
            if status < 300:
                raise Unreachable("the answer is not JSON", True) from None
            answer = None
        if status >= 300:
            raise _problem(status, answer, _seconds(after))
        return status, answer, headers

    def _connection(self):
        """A connection that is open: one that was kept and has not ended, or a new one."""
        with self._lock:
            if self._pid != os.getpid():  # those of the parent are the parent's
                self._idle, self._pid = [], os.getpid()
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            if not _readable(connection.sock):
                return connection
            connection.close()
        if self._tls:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self.connect_timeout,
                                                     context=self._tls)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self.connect_timeout)
        connection.auto_open = 0
        try:
            connection.connect()
        except OSError as failure:
            connection.close()
            raise Unreachable("connect to %s: %s" % (self._host, failure), False) from failure
        return connection


def _readable(sock):
    """An idle connection on which something comes has ended."""
    try:
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):  # it is closed, or its number is too high for select
        return True


def _seconds(retry_after):
    """Retry-After: a number, or a date of HTTP."""
    if not retry_after:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return min(max(0.0, seconds), _MAX_RETRY_AFTER) if seconds == seconds else None


# ---- the worker


class Worker:
    """Handles messages of some queues, one at a time. Start several in threads or processes for more at once.

    handler  takes a Message. Its return acks: str or bytes are the result, for a message that has an id; None is none.
             An exception fails with its text; Reject, Retry and Snooze say more.
    lease    1 s to 7 days. It is extended at each third of it while the handler runs, by a thread; a handler that holds
             the GIL for longer loses it. So a process that is killed delays its message by up to this.
    wait     of one pull, 1 to 600 s; less than the idle timeout of what is between

    While shuntd cannot be reached it pauses, from 0.1 s up to 10 s. What it goes on after is logged to the logger
    "shunt". A pull that is refused for another reason, as for its token, ends run with that Problem.
    """

    def __init__(self, client, queues, handler, *, lease=30.0, wait=20.0):
        if not 1 <= lease <= 7 * 86400 or not 1 <= wait <= 600:
            raise ValueError("want a lease of 1 s to 7 days, and a wait of 1 to 600 s")
        self.client, self.handler, self.lease, self.wait = client, handler, lease, wait
        self.queues = [queues] if isinstance(queues, str) else list(queues)
        self._stopping, self._line = False, None

    def stop(self):
        """Ends run after the handler that runs now. It may be called from any thread, and by a signal's handler."""
        self._stopping = True
        line = self._line
        if line is not None:
            try:
                # Half of the connection: the server ends the pull, and what it has sent by then is still read, and
                # released. The socket's own shutdown would have TLS forget its keys.
                socket.socket.shutdown(line, socket.SHUT_WR)
            except OSError:
                pass  # it has just ended

    def _asks(self, sock):
        self._line = sock
        return not self._stopping

    def _asked(self):
        self._line = None
        return not self._stopping

    def run(self):
        """Runs until stop, SIGTERM or SIGINT. A second signal does what it did before run."""
        before = {}

        def heard(number, frame):
            while before:
                signal.signal(*before.popitem())
            self.stop()

        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                old = signal.signal(number, heard)
                before[number] = signal.SIG_DFL if old is None else old
        try:
            self._loop()
        finally:
            while before:
                signal.signal(*before.popitem())

    def _loop(self):
        pause = _FIRST_PAUSE
        while not self._stopping:
            begun = time.monotonic()
            try:
                messages = self.client._pull(self.queues, 1, self.lease, self.wait, self)
            except _Stopped:
                return
            except ShuntError as failure:
                if self._stopping:  # also 400: of a request that the stop has cut
                    return
                if not isinstance(failure, (Unreachable, ServerFailed, RateLimited)):
                    raise
                now = max(pause * random.uniform(0.5, 1.0), getattr(failure, "retry_after", None) or 0.0)
                log.warning("no pull, the next one in %.1f s: %s", now, failure)
                self._pause(now)
                pause = min(pause * 2, _LAST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            if not messages and time.monotonic() - begun < _FIRST_PAUSE:  # from a server that stops
                self._pause(_FIRST_PAUSE)
            for message in messages:
                if self._stopping:
                    self._say(message, "release", {})
                else:
                    self._handle(message)

    def _pause(self, seconds):
        """In short sleeps: what a signal's handler may touch has no locks."""
        end = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < end:
            time.sleep(min(0.1, max(0.0, end - time.monotonic())))

    def _handle(self, message):
        over = threading.Event()
        beat = threading.Thread(target=self._beat, args=(message, over), name="shunt lease", daemon=True)
        beat.start()
        try:
            name, fields = self._judge(message)
            self._say(message, name, fields)
        except BaseException:  # the end of the process, not the message's fault
            self._say(message, "release", {})
            raise
        finally:
            over.set()
            beat.join()

    def _judge(self, message):
        """Runs the handler: the verdict and its fields."""
        try:
            result, fields = self.handler(message), {}
            if result is not None:
                _put(fields, "result", result)
            return "ack", fields if message.id else {}
        except Reject as why:
            return "fail", {"reason": str(why), "reject": True}
        except Retry as why:
            return "fail", {"reason": str(why), "after_ms": max(0, _ms(why.after))}
        except Snooze as why:
            return "fail", {"snooze_ms": max(100, _ms(why.seconds))}
        except Exception as why:
            log.warning("a handler failed: queue %s, message %s", message.queue, message.id or message.serial,
                        exc_info=True)
            return "fail", {"reason": "%s: %s" % (type(why).__name__, why)}

    def _say(self, message, name, fields):
        if "reason" in fields:
            reason = fields["reason"].encode("utf-8", "replace")[:_MAX_REASON].decode("utf-8", "ignore")
            fields["reason"] = reason or "failed"
        try:
            self.client._verdict(name, message, fields)
        except ShuntError as failure:
            log.warning("no %s: queue %s, message %s: %s", name, message.queue, message.id or message.serial, failure)

    def _beat(self, message, over):
        """Extends the lease until the verdict was said."""
        third = self.lease / 3
        while not over.wait(third):
            try:
                self.client._verdict("extend", message, {"lease_ms": _ms(self.lease)}, ended=over, retry_for=third,
                                     timeout=min(self.client.timeout, third))
            except LeaseLost:
                message.lost = not over.is_set()
                return
            except ShuntError as failure:
                log.warning("no extend: queue %s: %s", message.queue, failure)

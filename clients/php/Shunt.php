<?php

/**
 * A client of shuntd's HTTP interface /v1: reliable message queues on Redis.
 *
 * One file, PHP 8.1 or later, no extension but json, and openssl for https. With pcntl, work() ends on SIGTERM. It
 * speaks HTTP over PHP's streams with keep-alive, and needs no curl, which php-cli often is without. It follows no
 * redirect, and uses no proxy of the environment.
 *
 *     require 'Shunt.php';
 *     $client = new Shunt\Client('http://127.0.0.1:7777', 'ns', token: '...');
 *     $client->publish('orders', 'payload', id: 'order-7', idempotencyKey: Shunt\Client::newKey());
 *     $client->work(['orders'], fn (Shunt\Message $m, callable $extend) => doWith($m->payload));
 *
 * All times are seconds, as int or float, rounded up to a whole ms. Payloads and results are strings of any bytes. All
 * errors of a call are a ShuntException. Wrong arguments that need no server are \InvalidArgumentException.
 */

declare(strict_types=1);

namespace Shunt;

/** The base of all errors of a call. */
class ShuntException extends \RuntimeException
{
}

/** There was no whole answer: no connection, a broken one, or none within the timeout. */
final class Unreachable extends ShuntException
{
    /** @param bool $sent false: the server surely has not got the request; true: it may have done it */
    public function __construct(string $text, public readonly bool $sent)
    {
        parent::__construct($text);
    }
}

/** The server refused. */
class Problem extends ShuntException
{
    /** The stable name without "urn:shunt:problem:", such as "lease-lost"; '' where the answer had none. */
    public readonly string $type;
    public readonly string $title;
    /** What is special here; may be ''. */
    public readonly string $detail;
    /** @var list<array{in: string, name: string, detail: string}> Of an invalid request. */
    public readonly array $faults;
    /** Of a duplicate: the message that has the id. */
    public readonly ?Status $existing;
    /** The request's id in shuntd's log; may be ''. */
    public readonly string $request;

    /**
     * @param int        $status     of HTTP
     * @param array      $body       of the answer
     * @param float|null $retryAfter seconds; null: the answer has none
     * @param bool       $afterLoss  an earlier attempt of this call may have been done although its answer was lost
     */
    final public function __construct(
        public readonly int $status,
        array $body = [],
        public readonly ?float $retryAfter = null,
        public readonly bool $afterLoss = false,
    ) {
        $text = static fn (string $name): string => \is_string($body[$name] ?? null) ? $body[$name] : '';
        $prefix = 'urn:shunt:problem:';
        $this->type = str_starts_with($text('type'), $prefix) ? substr($text('type'), \strlen($prefix)) : '';
        $this->title = $text('title');
        $this->detail = $text('detail');
        $this->faults = \is_array($body['faults'] ?? null) ? $body['faults'] : [];
        $this->existing = \is_array($body['existing'] ?? null) ? new Status($body['existing']) : null;
        $this->request = $text('request');
        $parts = [$status, $this->type ?: 'no shunt problem', $this->title, $this->detail];
        foreach (\array_slice($this->faults, 0, 5) as $f) {
            $parts[] = ($f['in'] ?? '') . ' ' . ($f['name'] ?? '') . ': ' . ($f['detail'] ?? '');
        }
        parent::__construct(implode(' ', array_filter($parts)), $status);
    }

    /** The exception that fits. */
    public static function of(int $status, array $body, ?float $retryAfter = null, bool $afterLoss = false): self
    {
        $type = \is_string($body['type'] ?? null) ? $body['type'] : '';
        $class = match (substr($type, \strlen('urn:shunt:problem:'))) {
            'duplicate' => Duplicate::class,
            'lease-lost' => LeaseLost::class,
            'unconfirmed' => Unconfirmed::class,
            'outcome-not-kept' => NotKept::class,
            'busy', 'stopping', 'redis-full', 'redis-unavailable' => Unavailable::class,
            'unknown-outcome' => UnknownOutcome::class,
            default => match ($status) {
                400 => InvalidRequest::class,
                401 => Unauthorized::class,
                403 => Forbidden::class,
                404 => NotFound::class,
                409 => Conflict::class,
                413 => TooLarge::class,
                422 => KeyReused::class,
                429 => RateLimited::class,
                default => $status >= 500 ? ServerFailed::class : self::class,
            },
        };

        return new $class($status, $body, $retryAfter, $afterLoss);
    }
}

/** 400: see $faults. */
final class InvalidRequest extends Problem
{
}

/** 401: there is no token, or it is not valid for the namespace. */
final class Unauthorized extends Problem
{
}

/** 403: the token's role does not allow this. */
final class Forbidden extends Problem
{
}

/** 404: there is no such message, pool or route. */
final class NotFound extends Problem
{
}

/** 409: the message is in a state, or of a kind, that does not allow this; see $type. */
class Conflict extends Problem
{
}

/** 409: the id is taken by another message; see $existing. */
final class Duplicate extends Conflict
{
}

/** 410: the message was settled already, or its lease has ended. The verdict has changed nothing. */
class LeaseLost extends Problem
{
}

/** 410: the same, after an answer was lost: this very verdict may have settled the message. */
final class Unconfirmed extends LeaseLost
{
}

/** 410: the message is over, and its outcome was not kept: it was published without retain. */
final class NotKept extends Problem
{
}

/** 413: the payload, or the whole request, is larger than the server takes. */
final class TooLarge extends Problem
{
}

/** 422: another request was made under this Idempotency-Key. */
final class KeyReused extends Problem
{
}

/** 429: the token's limit is reached. */
final class RateLimited extends Problem
{
}

/** 500 and above: what was asked for may have been done. */
class ServerFailed extends Problem
{
}

/** 503 of a type that says that nothing was done: busy, stopping, redis-full, redis-unavailable. */
final class Unavailable extends ServerFailed
{
}

/** 503: a reply of Redis was lost, so it may have been done. */
final class UnknownOutcome extends ServerFailed
{
}

/** Thrown by a handler: the message becomes a dead letter, without further attempts. */
final class Reject extends \Exception
{
}

/** Thrown by a handler: the attempt has failed, and the next one comes after some seconds, 0 or more. */
final class Retry extends \Exception
{
    public function __construct(string $reason, public readonly int|float $after)
    {
        parent::__construct($reason);
    }
}

/** Thrown by a handler: the message comes again after some seconds, 0.1 or more. No attempt is counted. */
final class Snooze extends \Exception
{
    public function __construct(public readonly int|float $seconds)
    {
        parent::__construct("snoozed for $seconds s");
    }
}

/** A message that was pulled, which is the consumer's until its lease ends or it is settled. */
final class Message
{
    public readonly string $receipt;
    public readonly string $queue;
    public readonly string $payload;
    /** '' for a message of another program. */
    public readonly string $serial;
    public readonly string $id;
    public readonly string $type;
    /** From 1. */
    public readonly int $attempt;
    public readonly int $recoveries;
    /** @var array<string, string> A name of digits alone is an int, as PHP has it. */
    public readonly array $headers;
    /** Of the attempt before; '' without one. */
    public readonly string $failure;
    public readonly ?\DateTimeImmutable $enqueuedAt;
    public readonly ?\DateTimeImmutable $leaseEndsAt;

    public function __construct(array $of)
    {
        $this->receipt = $of['receipt'];
        $this->queue = $of['queue'];
        $this->payload = Wire::bytes($of, 'payload') ?? '';
        $this->serial = $of['serial'] ?? '';
        $this->id = $of['id'] ?? '';
        $this->type = $of['type'] ?? '';
        $this->attempt = $of['attempt'] ?? 0;
        $this->recoveries = $of['recoveries'] ?? 0;
        $this->headers = $of['headers'] ?? [];
        $this->failure = $of['failure'] ?? '';
        $this->enqueuedAt = Wire::instant($of, 'enqueued_at');
        $this->leaseEndsAt = Wire::instant($of, 'lease_ends_at');
    }
}

/** A message that was published. */
final class Published
{
    public readonly string $serial;
    /** '' without one. */
    public readonly string $id;
    public readonly string $ref;

    /** @param bool $replayed an earlier request with the same key did it */
    public function __construct(array $of, public readonly bool $replayed)
    {
        $this->serial = $of['serial'] ?? '';
        $this->id = $of['id'] ?? '';
        $this->ref = $of['ref'] ?? '';
    }
}

/** How a message ended. */
final class Outcome
{
    /** "acked", "rejected", ... */
    public readonly string $kind;
    public readonly ?string $result;
    public readonly string $failure;
    public readonly int $attempt;
    public readonly ?\DateTimeImmutable $endedAt;
    public readonly ?\DateTimeImmutable $keptUntil;

    public function __construct(array $of)
    {
        $this->kind = $of['kind'];
        $this->result = Wire::bytes($of, 'result');
        $this->failure = $of['failure'] ?? '';
        $this->attempt = $of['attempt'] ?? 0;
        $this->endedAt = Wire::instant($of, 'ended_at');
        $this->keptUntil = Wire::instant($of, 'kept_until');
    }
}

/** Where a message is. */
final class Status
{
    public readonly string $queue;
    public readonly string $id;
    public readonly string $serial;
    /** "prepare", "delay", "leased", "doing", "dead", "done", ...; '' if it is not known. */
    public readonly string $state;
    public readonly int $attempt;
    public readonly bool $cancelled;
    public readonly string $failure;
    public readonly ?Outcome $outcome;
    public readonly ?\DateTimeImmutable $enqueuedAt;
    public readonly ?\DateTimeImmutable $dueAt;
    public readonly ?\DateTimeImmutable $startedAt;
    public readonly ?\DateTimeImmutable $uniqueUntil;

    public function __construct(array $of)
    {
        $this->queue = $of['queue'] ?? '';
        $this->id = $of['id'] ?? '';
        $this->serial = $of['serial'] ?? '';
        $this->state = $of['state'] ?? '';
        $this->attempt = $of['attempt'] ?? 0;
        $this->cancelled = $of['cancelled'] ?? false;
        $this->failure = $of['failure'] ?? '';
        $this->outcome = isset($of['outcome']) ? new Outcome($of['outcome']) : null;
        $this->enqueuedAt = Wire::instant($of, 'enqueued_at');
        $this->dueAt = Wire::instant($of, 'due_at');
        $this->startedAt = Wire::instant($of, 'started_at');
        $this->uniqueUntil = Wire::instant($of, 'unique_until');
    }
}

/** @internal What stands in requests and answers. */
final class Wire
{
    public static function bytes(array $of, string $name): ?string
    {
        return isset($of[$name . '_base64']) ? base64_decode($of[$name . '_base64'], true) : $of[$name] ?? null;
    }

    public static function instant(array $of, string $name): ?\DateTimeImmutable
    {
        return isset($of[$name]) ? new \DateTimeImmutable($of[$name]) : null;
    }

    /** Bytes as a field of a request: as text where they are UTF-8. */
    public static function put(string $name, string $bytes): array
    {
        return preg_match('//u', $bytes) === 1 ? [$name => $bytes] : [$name . '_base64' => base64_encode($bytes)];
    }

    public static function ms(int|float $seconds): int
    {
        if (!is_finite((float) $seconds) || abs($seconds) > 1e10) {
            throw new \InvalidArgumentException('want a number of seconds');
        }

        return (int) ceil(round($seconds * 1000, 6));
    }

    /** A reason: valid UTF-8 of at most 16 KiB, and not empty. */
    public static function reason(string $text): string
    {
        if (preg_match('//u', $text) !== 1) { // U+FFFD for each byte that is none
            $text = json_decode(json_encode($text, JSON_INVALID_UTF8_SUBSTITUTE));
        }
        for ($text = substr($text, 0, 16 << 10); preg_match('//u', $text) !== 1;) {
            $text = substr($text, 0, -1); // a character that was cut
        }

        return $text === '' ? 'failed' : $text;
    }
}

/** @internal One connection with HTTP/1.1. */
final class Connection
{
    private const MAX_HEAD = 256 << 10;

    /** @var resource|null */
    private $stream;
    private string $got = '';
    private float $end = 0;
    private float $timeout = 0;
    private bool $halved = false;
    /** @var \Closure(): bool */
    private \Closure $stopped;

    /** @throws Unreachable */
    public function __construct(string $address, float $timeout, array $tls)
    {
        $context = stream_context_create(['ssl' => $tls, 'socket' => ['tcp_nodelay' => true]]);
        $stream = @stream_socket_client($address, $code, $text, $timeout, STREAM_CLIENT_CONNECT, $context);
        if ($stream === false) {
            throw new Unreachable("connect to $address: " . ($text ?: error_get_last()['message'] ?? 'failed'), false);
        }
        stream_set_blocking($stream, false);
        $this->stream = $stream;
    }

    /** It has ended: on an idle connection nothing comes. */
    public function ended(): bool
    {
        if ($this->stream === null || $this->got !== '') {
            return true;
        }
        $read = [$this->stream];
        $none = null;

        return @stream_select($read, $none, $none, 0) !== 0;
    }

    public function close(): void
    {
        if ($this->stream !== null) {
            fclose($this->stream);
            $this->stream = null;
        }
    }

    /**
     * One exchange, with timeout s for all of it. When stopped becomes true, its half of the connection is closed: the
     * server ends what waits, and what it has sent by then is still read.
     *
     * @return array{int, array<string, string>, string} status, headers by their small name, body
     * @throws Unreachable
     */
    public function exchange(string $request, float $timeout, int $most, \Closure $stopped): array
    {
        [$this->timeout, $this->end, $this->stopped] = [$timeout, microtime(true) + $timeout, $stopped];
        $this->write($request);
        do { // 100 Continue and its like go before the answer
            while (($at = strpos($this->got, "\r\n\r\n")) === false) {
                $this->more(self::MAX_HEAD);
            }
            $lines = explode("\r\n", substr($this->got, 0, $at));
            $this->got = substr($this->got, $at + 4);
            if (preg_match('~^HTTP/1\.[01] (\d{3})( |$)~', array_shift($lines), $m) !== 1) {
                throw new Unreachable('the answer is no HTTP/1.1', true);
            }
            $status = (int) $m[1];
        } while ($status < 200);
        $headers = [];
        foreach ($lines as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $headers[strtolower($name)] = trim($value);
        }
        $body = $this->body($status, $headers, $most);
        if ($this->halved || $this->got !== '' || strtolower($headers['connection'] ?? '') === 'close') {
            $this->close();
        }

        return [$status, $headers, $body];
    }

    private function body(int $status, array $headers, int $most): string
    {
        if ($status === 204 || $status === 304) {
            return '';
        }
        if (strtolower($headers['transfer-encoding'] ?? '') === 'chunked') {
            for ($body = ''; ($size = hexdec(strtok($this->line(), ';'))) > 0; $this->line()) {
                $this->bounded(\strlen($body) + $size, $most);
                $body .= $this->take((int) $size);
            }
            while ($this->line() !== '') { // trailers
            }

            return $body;
        }
        if (isset($headers['content-length'])) {
            $size = (int) $headers['content-length'];
            $this->bounded($size, $most);

            return $this->take($size);
        }
        try {
            for (;;) {
                $this->more($most);
            }
        } catch (Unreachable $end) { // the end of the connection is that of the body
            if (!feof($this->stream)) {
                throw $end;
            }
        }
        $body = $this->got;
        $this->got = '';
        $this->close();

        return $body;
    }

    private function bounded(int|float $size, int $most): void
    {
        if ($size > $most) {
            throw new Unreachable("the answer has more than $most bytes", true);
        }
    }

    private function line(): string
    {
        while (($at = strpos($this->got, "\r\n")) === false) {
            $this->more(self::MAX_HEAD);
        }
        $line = substr($this->got, 0, $at);
        $this->got = substr($this->got, $at + 2);

        return $line;
    }

    private function take(int $size): string
    {
        while (\strlen($this->got) < $size) {
            $this->more($size + self::MAX_HEAD);
        }
        $part = substr($this->got, 0, $size);
        $this->got = substr($this->got, $size);

        return $part;
    }

    /** Reads some more. */
    private function more(int $most): void
    {
        $this->bounded(\strlen($this->got), $most);
        $this->ready(false);
        $part = @fread($this->stream, 64 << 10);
        if (($part === false || $part === '') && feof($this->stream)) {
            throw new Unreachable('the connection has ended before the answer', true);
        }
        $this->got .= (string) $part;
    }

    private function write(string $request): void
    {
        for ($at = 0, $size = \strlen($request); $at < $size;) {
            if ($this->ready(true)) { // what is of TLS alone brings nothing
                $this->got .= (string) @fread($this->stream, 64 << 10);
                if ($this->got !== '' || feof($this->stream)) {
                    return; // the answer comes before the request's end: of a body that is too large
                }
            }
            $n = @fwrite($this->stream, substr($request, $at, 64 << 10));
            if ($n === false) {
                return; // what the answer says, or that there is none, is read next
            }
            $at += $n;
        }
    }

    /** Waits until it can read, or until it can write; true: it can read. */
    private function ready(bool $write): bool
    {
        for (;;) {
            if (!$this->halved && !$write && ($this->stopped)()) {
                $this->halved = true;
                stream_socket_shutdown($this->stream, STREAM_SHUT_WR);
                $this->end = min($this->end, microtime(true) + 5);
            }
            $left = $this->end - microtime(true);
            if ($left <= 0) {
                throw new Unreachable("the answer was not complete in $this->timeout s", true);
            }
            $left = min($left, 1); // a signal that comes just before select does not end it
            $read = [$this->stream];
            $writes = $write ? [$this->stream] : null;
            $none = null;
            $n = @stream_select($read, $writes, $none, (int) $left, (int) (fmod($left, 1) * 1e6));
            if ($n !== false && $n > 0) { // false: a signal
                return $read !== [];
            }
        }
    }
}

/** Calls of one namespace. Each process makes its own; a fork's child must not use its parent's. */
final class Client
{
    private const FIRST_PAUSE = 0.1; // between attempts: doubled each time, and half of it random
    private const LAST_PAUSE = 10.0;
    private const MAX_QUERY = 4000; // characters; a server reads 16 KiB of request line and headers by default

    private string $address;
    private string $host;
    private string $base;
    private array $tls = [];
    private ?Connection $kept = null;
    private bool $stopping = false;

    /**
     * @param string      $url            "http://host:port" or "https://host:port"; a path is put before /v1
     * @param string      $namespace      letters, digits, - and _
     * @param string|null $token          of the namespace, "pool:token" for another pool than the default; null: none
     * @param float       $timeout        of one attempt of a call; a call that waits has its wait on top
     * @param float       $connectTimeout of a connection with its TLS
     * @param float       $retryFor       how long a call is tried again after failures that allow it; 0: never
     * @param string|null $caFile         of authorities in PEM; null: those of the system. Certificates are always
     *                                    verified.
     * @param int         $maxAnswer      bytes of an answer that are read at most
     */
    public function __construct(
        string $url,
        string $namespace,
        private readonly ?string $token = null,
        private readonly float $timeout = 30.0,
        private readonly float $connectTimeout = 5.0,
        private readonly float $retryFor = 30.0,
        ?string $caFile = null,
        private readonly int $maxAnswer = 128 << 20,
    ) {
        $at = parse_url($url);
        $scheme = $at['scheme'] ?? '';
        if (!\in_array($scheme, ['http', 'https'], true) || !isset($at['host']) || isset($at['query'])
            || isset($at['fragment']) || isset($at['user']) || preg_match('/[^!-~]/', $url)) {
            throw new \InvalidArgumentException('url: want http://host:port or https://host:port');
        }
        if ($token !== null && preg_match('/^[!-~]+$/D', $token) !== 1) {
            throw new \InvalidArgumentException('token: want printable ASCII without spaces');
        }
        if ($timeout <= 0 || $connectTimeout <= 0 || $retryFor < 0 || $maxAnswer < 1) {
            throw new \InvalidArgumentException('want timeouts and maxAnswer above 0, and retryFor of 0 or more');
        }
        $port = $at['port'] ?? ($scheme === 'https' ? 443 : 80);
        $this->address = ($scheme === 'https' ? 'tls' : 'tcp') . "://{$at['host']}:$port";
        $this->host = $at['host'] . (isset($at['port']) ? ":$port" : '');
        $this->base = rtrim($at['path'] ?? '', '/') . '/v1/' . rawurlencode($namespace);
        if ($scheme === 'https') {
            if (!\extension_loaded('openssl')) {
                throw new \InvalidArgumentException('https needs the extension openssl');
            }
            $this->tls = ['verify_peer' => true, 'verify_peer_name' => true, 'allow_self_signed' => false,
                'peer_name' => trim($at['host'], '[]')] + ($caFile === null ? [] : ['cafile' => $caFile]);
        }
    }

    /** A new Idempotency-Key. */
    public static function newKey(): string
    {
        return bin2hex(random_bytes(16));
    }

    /** Closes the idle connection. The Client can be used further. */
    public function close(): void
    {
        $this->kept?->close();
        $this->kept = null;
    }

    /**
     * Publishes one message.
     *
     * @param string                $payload        by default up to 1 MiB
     * @param string|null           $id             1 to 255 bytes; Duplicate while another message has it
     * @param string|null           $type           a name for the handler, 1 to 255 bytes
     * @param int|float|null        $delay          s until it is due, 0 to 100 years
     * @param array<string, string> $headers        at most 100; 1 to 255 bytes of name, up to 16 KiB of value
     * @param int|float|null        $expire         s until it is too late to handle it; longer than delay
     * @param int|float|null        $retain         s its outcome is kept; needs an id; wait() needs it
     * @param int|float|null        $unique         s the id stays taken; needs an id
     * @param int|null              $maxAttempts    1 to 255; the server's default otherwise
     * @param string|null           $idempotencyKey 1 to 255 printable characters of ASCII. The publish is done once for
     *                                              a key in 24 h. So it is tried again after lost answers, too. A key
     *                                              costs some 300 bytes in Redis for 24 h. Without one it is tried
     *                                              again only where nothing was done.
     * @throws ShuntException
     */
    public function publish(
        string $queue,
        string $payload,
        ?string $id = null,
        ?string $type = null,
        int|float|null $delay = null,
        array $headers = [],
        int|float|null $expire = null,
        int|float|null $retain = null,
        int|float|null $unique = null,
        ?int $maxAttempts = null,
        ?string $idempotencyKey = null,
    ): Published {
        $options = compact('id', 'type', 'delay', 'headers', 'expire', 'retain', 'unique', 'maxAttempts');
        $query = self::options($options);
        foreach ((array) ($query['headers'] ?? []) as $name => $value) {
            $query["header.$name"] = $value;
        }
        unset($query['headers']);
        if (\strlen(http_build_query($query)) > self::MAX_QUERY) { // as a batch of one all of it is in the body
            $done = $this->publishBatch($queue, [['payload' => $payload] + $options], $idempotencyKey)[0];

            return $done instanceof Problem ? throw $done : $done;
        }
        [$of, $headers] = $this->call('POST', self::queue($queue) . '/messages', $query, $payload,
            self::key($idempotencyKey), $idempotencyKey !== null);

        return new Published($of, isset($headers['idempotency-replayed']));
    }

    /**
     * Publishes 1 to 100 messages. Each is an array with payload and any options of publish() but the key.
     *
     * @param list<array<string, mixed>> $messages
     * @param string|null                $idempotencyKey of the whole batch; see publish()
     * @return list<Published|Problem> in the same order; a Problem is why that one was not published
     * @throws ShuntException
     */
    public function publishBatch(string $queue, array $messages, ?string $idempotencyKey = null): array
    {
        if (\count($messages) < 1 || \count($messages) > 100) {
            throw new \InvalidArgumentException('messages: want 1 to 100');
        }
        $orders = [];
        foreach ($messages as $one) {
            $payload = $one['payload'] ?? throw new \InvalidArgumentException('messages: one has no payload');
            unset($one['payload']);
            $orders[] = Wire::put('payload', $payload) + self::options($one);
        }
        [$of, $headers] = $this->call('POST', self::queue($queue) . '/messages:batch', [], $orders,
            self::key($idempotencyKey), $idempotencyKey !== null);
        $replayed = isset($headers['idempotency-replayed']);

        return array_map(
            static fn (array $one) => isset($one['problem'])
                ? Problem::of($one['problem']['status'] ?? 0, $one['problem']) : new Published($one, $replayed),
            $of['messages'],
        );
    }

    /**
     * Takes messages. It is never tried again by itself: after a lost answer messages may be leased. They come again
     * with the end of the lease.
     *
     * @param string|list<string> $queues 1 to 64, the first of them first
     * @param int                 $max    1 to 1,000
     * @param int|float           $lease  s they are the consumer's, 0.01 to 7 days
     * @param int|float           $wait   s for a first message where there is none, 0 to 24 h; the server cuts it, by
     *                                    default at 10 minutes
     * @return list<Message>
     * @throws ShuntException
     */
    public function pull(string|array $queues, int $max = 1, int|float $lease = 30, int|float $wait = 0): array
    {
        return $this->take((array) $queues, $max, $lease, $wait, static fn (): bool => false);
    }

    private function take(array $queues, int $max, int|float $lease, int|float $wait, \Closure $stopped): array
    {
        [$of] = $this->call('POST', '/pull', [], ['queues' => array_values($queues), 'max' => $max,
            'lease_ms' => Wire::ms($lease), 'wait_ms' => Wire::ms($wait)], [], false, $wait, 0, $stopped);

        return array_map(static fn (array $one) => new Message($one), $of['messages'] ?? []);
    }

    /**
     * Says that the message is done. A message is a Message or its receipt, here and below.
     *
     * @param string|null $result up to 1 MiB, for who waits for it; it needs a message with an id, else Conflict
     * @throws LeaseLost   if it comes too late
     * @throws Unconfirmed if that may be because of this very ack, whose answer was lost
     * @throws ShuntException
     */
    public function ack(Message|string $message, ?string $result = null): void
    {
        $this->verdict('ack', $message, $result === null ? [] : Wire::put('result', $result));
    }

    /**
     * Acks 1 to 1,000 messages.
     *
     * @param list<Message|string> $messages
     * @return list<Problem|null> in the same order
     * @throws ShuntException
     */
    public function ackBatch(array $messages): array
    {
        if (\count($messages) < 1 || \count($messages) > 1000) {
            throw new \InvalidArgumentException('messages: want 1 to 1000');
        }
        $verdicts = [];
        foreach ($messages as $one) {
            $verdicts[] = ['verdict' => 'ack', 'receipt' => self::receipt($one)];
        }
        [$of, , $afterLoss] = $this->call('POST', '/settle', [], $verdicts, [], true);

        return array_map(static function (array $one) use ($afterLoss): ?Problem {
            $p = isset($one['problem']) ? Problem::of($one['problem']['status'] ?? 0, $one['problem']) : null;

            return $afterLoss && $p instanceof LeaseLost ? self::unconfirmed($p) : $p;
        }, $of['outcomes']);
    }

    /**
     * Says that the attempt has failed. At most one of after, reject and snooze (InvalidRequest).
     *
     * @param string         $reason up to 16 KiB; what is longer is cut
     * @param int|float|null $after  s until the next attempt, 0 or more; null: the server's backoff
     * @param bool           $reject no further attempt: the message becomes a dead letter
     * @param int|float|null $snooze s, 0.1 or more: it comes again, and no attempt is counted
     * @throws LeaseLost|Unconfirmed as with ack()
     * @throws ShuntException
     */
    public function fail(
        Message|string $message,
        string $reason = '',
        int|float|null $after = null,
        bool $reject = false,
        int|float|null $snooze = null,
    ): void {
        $fields = ['reason' => Wire::reason($reason)] + ($reject ? ['reject' => true] : [])
            + ($after === null ? [] : ['after_ms' => Wire::ms($after)])
            + ($snooze === null ? [] : ['snooze_ms' => Wire::ms($snooze)]);
        $this->verdict('fail', $message, $fields);
    }

    /**
     * Gives the message back as if it had not been taken.
     *
     * @throws LeaseLost|Unconfirmed as with ack()
     * @throws ShuntException
     */
    public function release(Message|string $message): void
    {
        $this->verdict('release', $message, []);
    }

    /**
     * Has the lease end after so many seconds from now, 0.01 to 7 days.
     *
     * @throws LeaseLost if it has ended already
     * @throws ShuntException
     */
    public function extend(Message|string $message, int|float $lease = 30): void
    {
        $this->verdict('extend', $message, ['lease_ms' => Wire::ms($lease)]);
    }

    /**
     * Where a message is, by its id or its serial.
     *
     * @throws NotFound if nothing is known of it
     * @throws ShuntException
     */
    public function status(string $queue, ?string $id = null, ?string $serial = null): Status
    {
        return new Status($this->call('GET', self::message($queue, $id, $serial), [], null, [], true)[0]);
    }

    /**
     * Waits for the end of a message, up to timeout s. Null: it has not ended yet.
     *
     * @throws NotKept  if it has ended and was published without retain
     * @throws NotFound if nothing is known of it
     * @throws Conflict if it has no id
     * @throws ShuntException
     */
    public function wait(
        string $queue,
        ?string $id = null,
        ?string $serial = null,
        int|float $timeout = 60,
    ): ?Outcome {
        $path = self::message($queue, $id, $serial) . '/outcome';
        for ($end = microtime(true) + $timeout;;) {
            $begun = microtime(true);
            $left = max(0.0, min($end - $begun, 30.0));
            [$of] = $this->call('GET', $path, ['wait_ms' => Wire::ms($left)], null, [], true, $left);
            if ($of['over']) {
                return new Outcome($of['outcome']);
            }
            if (microtime(true) >= $end) {
                return null;
            }
            if (microtime(true) - $begun < min($left, self::FIRST_PAUSE)) { // from a server that stops
                self::sleep(self::FIRST_PAUSE);
            }
        }
    }

    /**
     * Handles messages, one at a time, until SIGTERM or SIGINT (with pcntl) or stop(). Start several processes for more
     * at once. While shuntd cannot be reached it pauses, from 0.1 s up to 10 s. A pull that is refused for another
     * reason, as for its token, ends it with that Problem.
     *
     * The handler gets the Message and a callable that extends its lease. A handler that may take longer than a third
     * of the lease calls it again and again: it costs nothing until a third of the lease is over. It throws LeaseLost
     * when the message is no longer ours. The handler's return acks: a string is the result, for a message that has an
     * id; null is none. What it throws fails, with its text; Reject, Retry and Snooze say more.
     *
     * A signal lets the handler end; a second one does what it did before.
     *
     * @param string|list<string>                         $queues  1 to 64, the first of them first
     * @param callable(Message, callable(): void): mixed  $handler
     * @param int|float                                   $lease   s, 1 to 7 days
     * @param int|float                                   $wait    s of one pull, 1 to 600
     * @param callable(\Throwable, Message|null): void|null $onError is told what it goes on after; null: error_log
     * @throws ShuntException
     */
    public function work(
        string|array $queues,
        callable $handler,
        int|float $lease = 30,
        int|float $wait = 20,
        ?callable $onError = null,
    ): void {
        if ($lease < 1 || $lease > 7 * 86400 || $wait < 1 || $wait > 600) {
            throw new \InvalidArgumentException('want a lease of 1 s to 7 days, and a wait of 1 to 600 s');
        }
        $onError ??= static function (\Throwable $why, ?Message $m): void {
            error_log('shunt: ' . ($m === null ? '' : "queue $m->queue, message " . ($m->id ?: $m->serial) . ': ')
                . $why::class . ': ' . $why->getMessage());
        };
        $this->stopping = false;
        $restore = $this->listen();
        try {
            $this->loop((array) $queues, $handler, $lease, $wait, $onError);
        } finally {
            $restore();
        }
    }

    /** Ends work() after the handler that runs now. */
    public function stop(): void
    {
        $this->stopping = true;
    }

    /** Has signals stop the loop; returns what restores them. */
    private function listen(): \Closure
    {
        if (!\function_exists('pcntl_signal')) {
            return static function (): void {
            };
        }
        $async = pcntl_async_signals(true);
        $before = [];
        foreach ([SIGTERM, SIGINT] as $number) {
            $before[$number] = pcntl_signal_get_handler($number);
        }
        $restore = static function () use ($before): void {
            foreach ($before as $number => $old) {
                pcntl_signal($number, $old);
            }
        };
        foreach ([SIGTERM, SIGINT] as $number) {
            pcntl_signal($number, function () use ($restore): void {
                $restore();
                $this->stopping = true;
            }, false);
        }

        return static function () use ($restore, $async): void {
            $restore();
            pcntl_async_signals($async);
        };
    }

    private function loop(array $queues, callable $handler, int|float $lease, int|float $wait, callable $onError): void
    {
        $stopped = fn (): bool => $this->stopping;
        $pause = self::FIRST_PAUSE;
        while (!$this->stopping) {
            $begun = microtime(true);
            try {
                $messages = $this->take($queues, 1, $lease, $wait, $stopped);
            } catch (Unreachable|ServerFailed|RateLimited $failure) {
                if ($this->stopping) {
                    return;
                }
                $onError($failure, null);
                $end = microtime(true) + self::pause($pause, $failure);
                while (!$this->stopping && ($left = $end - microtime(true)) > 0) {
                    self::sleep(min(0.1, $left));
                }
                $pause = min($pause * 2, self::LAST_PAUSE);
                continue;
            }
            $pause = self::FIRST_PAUSE;
            if ($messages === [] && microtime(true) - $begun < self::FIRST_PAUSE) { // from a server that stops
                self::sleep(self::FIRST_PAUSE);
            }
            foreach ($messages as $m) {
                [$name, $fields] = $this->stopping ? ['release', []] : $this->judge($m, $handler, $lease, $onError);
                try {
                    $this->verdict($name, $m, $fields);
                } catch (ShuntException $failure) {
                    $onError($failure, $m);
                }
            }
        }
    }

    /** Runs the handler: the verdict and its fields. */
    private function judge(Message $m, callable $handler, int|float $lease, callable $onError): array
    {
        $last = microtime(true);
        $extend = function () use ($m, $lease, &$last): void {
            if (microtime(true) - $last < $lease / 3) {
                return;
            }
            $this->verdict('extend', $m, ['lease_ms' => Wire::ms($lease)], $lease / 3);
            $last = microtime(true);
        };
        try {
            $result = $handler($m, $extend);
            if ($result !== null && !\is_string($result)) {
                throw new \TypeError('a handler returns a string or null, not ' . get_debug_type($result));
            }

            return ['ack', $m->id === '' || $result === null ? [] : Wire::put('result', $result)];
        } catch (Reject $why) {
            return ['fail', ['reason' => Wire::reason($why->getMessage()), 'reject' => true]];
        } catch (Retry $why) {
            return ['fail', ['reason' => Wire::reason($why->getMessage()),
                'after_ms' => max(0, Wire::ms($why->after))]];
        } catch (Snooze $why) {
            return ['fail', ['snooze_ms' => max(100, Wire::ms($why->seconds))]];
        } catch (\Throwable $why) {
            $onError($why, $m);

            return ['fail', ['reason' => Wire::reason($why::class . ': ' . $why->getMessage())]];
        }
    }

    private static function queue(string $queue): string
    {
        return '/' . rawurlencode($queue);
    }

    private static function message(string $queue, ?string $id, ?string $serial): string
    {
        if (($id === null) === ($serial === null)) {
            throw new \InvalidArgumentException('want an id or a serial');
        }

        return self::queue($queue) . '/messages/' . rawurlencode($id !== null ? "id:$id" : "serial:$serial");
    }

    private static function key(?string $key): array
    {
        if ($key !== null && preg_match('/^[ -~]{1,255}$/D', $key) !== 1) {
            throw new \InvalidArgumentException('idempotencyKey: want 1 to 255 printable characters of ASCII');
        }

        return $key === null ? [] : ['Idempotency-Key' => $key];
    }

    private static function receipt(Message|string $message): string
    {
        return $message instanceof Message ? $message->receipt : $message;
    }

    /** The fields of a publish beside its payload. What is null is not sent. */
    private static function options(array $given): array
    {
        $fields = [];
        foreach ($given as $name => $value) {
            if ($value === null || $value === []) {
                continue;
            }
            $fields += match ($name) {
                'id', 'type' => [$name => $value],
                'delay', 'expire', 'retain', 'unique' => [$name . '_ms' => Wire::ms($value)],
                'maxAttempts' => ['max_attempts' => $value],
                'headers' => ['headers' => (object) $value],
                default => throw new \InvalidArgumentException("a message has no option $name"),
            };
        }

        return $fields;
    }

    private static function unconfirmed(LeaseLost $p): Unconfirmed
    {
        return new Unconfirmed(410, ['type' => 'urn:shunt:problem:unconfirmed', 'request' => $p->request,
            'title' => 'An answer was lost: this verdict may have settled the message.'], null, true);
    }

    private function verdict(string $name, Message|string $message, array $fields, ?float $retryFor = null): void
    {
        try {
            $this->call('POST', "/$name", [], ['receipt' => self::receipt($message)] + $fields, [], true, 0, $retryFor);
        } catch (LeaseLost $p) {
            throw $name !== 'extend' && $p->afterLoss && !$p instanceof Unconfirmed ? self::unconfirmed($p) : $p;
        }
    }

    private static function sleep(float $seconds): void
    {
        usleep((int) ($seconds * 1e6)); // a signal ends it early
    }

    private static function pause(float $pause, ShuntException $failure): float
    {
        $least = $failure instanceof Problem ? $failure->retryAfter ?? 0 : 0;

        return max($pause * (0.5 + mt_rand() / mt_getrandmax() / 2), $least);
    }

    /**
     * One call with its further attempts.
     *
     * @param string|array|null $body       a string as it is, an array as JSON
     * @param bool              $repeatable it may be done twice without harm: it is sent again after a lost answer
     * @return array{array, array<string, string>, bool} the answer's JSON, its headers, and whether an earlier attempt
     *                                                   may have been done
     * @throws ShuntException
     */
    private function call(
        string $method,
        string $path,
        array $query,
        string|array|null $body,
        array $headers,
        bool $repeatable,
        int|float $wait = 0,
        ?float $retryFor = null,
        ?\Closure $stopped = null,
    ): array {
        $target = $this->base . $path
            . ($query === [] ? '' : '?' . http_build_query($query, '', '&', PHP_QUERY_RFC3986));
        if (\is_array($body)) {
            try {
                $body = json_encode($body, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES);
            } catch (\JsonException $why) {
                throw new \InvalidArgumentException('a text is not UTF-8', 0, $why);
            }
            $headers['Content-Type'] = 'application/json';
        }
        $headers += ['Host' => $this->host, 'Accept' => 'application/json', 'User-Agent' => 'shunt-php/1'];
        $headers += $this->token === null ? [] : ['Authorization' => "Bearer $this->token"];
        $headers += $body === null ? [] : ['Content-Length' => (string) \strlen($body)];
        $request = "$method $target HTTP/1.1\r\n";
        foreach ($headers as $name => $value) {
            $request .= "$name: $value\r\n";
        }
        $request .= "\r\n" . $body;
        $stopped ??= static fn (): bool => false;
        $end = microtime(true) + ($retryFor ?? $this->retryFor);
        for ($pause = self::FIRST_PAUSE, $afterLoss = false;; $pause = min($pause * 2, self::LAST_PAUSE)) {
            try {
                [$of, $got] = $this->once($request, $this->timeout + $wait, $stopped, $afterLoss);

                return [$of, $got, $afterLoss];
            } catch (Unreachable|ServerFailed|RateLimited $failure) {
                $nothingDone = $failure instanceof Unavailable || $failure instanceof RateLimited
                    || $failure instanceof Unreachable && !$failure->sent;
                $now = self::pause($pause, $failure);
                if (!$nothingDone && !$repeatable || microtime(true) + $now > $end) {
                    throw $failure;
                }
                $afterLoss = $afterLoss || !$nothingDone;
            }
            for ($until = microtime(true) + $now; ($left = $until - microtime(true)) > 0;) {
                self::sleep($left);
            }
        }
    }

    /** One attempt. */
    private function once(string $request, float $timeout, \Closure $stopped, bool $afterLoss): array
    {
        $connection = $this->kept;
        $this->kept = null; // a signal's handler that calls gets another one
        if ($connection === null || $connection->ended()) {
            $connection?->close();
            $connection = new Connection($this->address, $this->connectTimeout, $this->tls);
        }
        try {
            if ($stopped()) {
                throw new Unreachable('stopped', false);
            }
            [$status, $headers, $raw] = $connection->exchange($request, $timeout, $this->maxAnswer, $stopped);
        } catch (\Throwable $failure) {
            $connection->close();
            throw $failure;
        }
        $this->kept = $connection;
        $of = $raw === '' ? [] : json_decode($raw, true, 128, JSON_BIGINT_AS_STRING);
        if ($status >= 300) {
            throw Problem::of($status, \is_array($of) ? $of : [], self::after($headers['retry-after'] ?? ''),
                $afterLoss);
        }
        if (!\is_array($of)) {
            throw new Unreachable('the answer is not JSON', true);
        }

        return [$of, $headers];
    }

    /** Retry-After: a number, or a date of HTTP; at most 60 s. */
    private static function after(string $value): ?float
    {
        if ($value === '') {
            return null;
        }
        $seconds = is_numeric($value) ? (float) $value : (strtotime($value) ?: 0) - microtime(true);

        return min(max(0.0, $seconds), 60.0);
    }
}

<?php

/** Tests of Shunt.php against a shuntd that runs. Its owner is a Go test, which sets the SHUNT_ variables. */

declare(strict_types=1);

require __DIR__ . '/Shunt.php';

use Shunt\Client;
use Shunt\Message;

set_error_handler(static function (int $level, string $text, string $file, int $line): bool {
    if ((error_reporting() & $level) !== 0) { // not silenced by @
        throw new ErrorException($text, 0, $level, $file, $line);
    }

    return false;
});

const UNICODE = "h\u{e9}llo \u{2603} \u{1d11e} \0 \"\\ \u{2028} %41+";

function binary(): string
{
    return implode('', array_map('chr', range(0, 255)));
}

function env(string $name): string
{
    return (string) getenv("SHUNT_$name");
}

function client(string $url = 'URL', ?string $token = '', mixed ...$how): Client
{
    return new Client(env($url) ?: $url, 'ns', $token === '' ? env('TOKEN') : $token, ...$how);
}

/** Asks the Go test to do something to shuntd. */
function control(string $path): void
{
    file_get_contents(env('CONTROL') . $path, false, stream_context_create(['http' => ['method' => 'POST']]));
}

function lossy(string $path, mixed ...$how): Client
{
    control($path);

    return client('LOSSY', '', ...$how);
}

function same(mixed $want, mixed $got, string $what = ''): void
{
    if ($want !== $got) {
        throw new LogicException($what . ' is ' . var_export($got, true) . ', want ' . var_export($want, true));
    }
}

function holds(bool $is, string $what): void
{
    same(true, $is, $what);
}

/** @template T of Throwable */
function throws(string $class, ?string $type, callable $call): Throwable
{
    try {
        $call();
    } catch (Throwable $got) {
        same($class, $got::class, $got->getMessage());
        if ($type !== null) {
            same($type, $got->type);
        }

        return $got;
    }
    throw new LogicException("nothing was thrown, want $class");
}

/** The only message of the queue. */
function one(Client $c, string $queue, int|float $lease = 30, int|float $wait = 5): Message
{
    $got = $c->pull($queue, 10, $lease, $wait);
    same(1, count($got), 'messages');

    return $got[0];
}

/** A process that runs a function of this file, once it has said that it is ready. */
function spawn(string $function, string ...$args): array
{
    global $spawned;
    $spawned[] = $p = proc_open([PHP_BINARY, __FILE__, $function, ...$args], [1 => ['pipe', 'w']], $pipes);
    same("ready\n", fgets($pipes[1]));

    return [$p, $pipes[1]];
}

/** Waits for its end: its exit status. */
function ended(array $process): int
{
    global $spawned;
    array_splice($spawned, array_search($process[0], $spawned, true), 1);
    $rest = stream_get_contents($process[1]);
    $code = proc_close($process[0]);
    if ($code !== 0) {
        echo $rest;
    }

    return $code;
}

$tests = [];

$tests['life'] = function (Client $c, string $q): void {
    $done = $c->publish($q, 'hello', id: "a/b \u{2603}", type: 'kind', headers: ['X-One' => UNICODE], retain: 60,
        unique: 1, expire: 60, maxAttempts: 3);
    same(["a/b \u{2603}", false], [$done->id, $done->replayed]);
    same('prepare', $c->status($q, $done->id)->state);
    same($done->id, $c->status($q, serial: $done->serial)->id);
    $m = one($c, $q);
    same(['hello', $done->id, 'kind', 1, $q, $done->serial], [$m->payload, $m->id, $m->type, $m->attempt, $m->queue,
        $m->serial]);
    same(['X-One' => UNICODE], $m->headers);
    holds($m->leaseEndsAt > $m->enqueuedAt, 'the lease ends later');
    same(null, $c->wait($q, $done->id, timeout: 0.05));
    $c->extend($m, 60);
    $c->ack($m, binary());
    $out = $c->wait($q, $done->id);
    same(['acked', binary(), 1], [$out->kind, $out->result, $out->attempt]);
    same(binary(), $c->status($q, $done->id)->outcome->result);
    same([], $c->pull($q));
};

$tests['payloads'] = function (Client $c, string $q): void {
    foreach ([binary(), UNICODE, '', "\xff", "\xed\xa0\x80"] as $payload) {
        foreach (['publish', 'publishBatch'] as $how) {
            $c->$how($q, $how === 'publish' ? $payload : [['payload' => $payload, 'headers' => ['k' => UNICODE]]]);
            $m = one($c, $q);
            same($payload, $m->payload);
            $c->ack($m->receipt);
        }
    }
    $big = ['big' => str_repeat("\u{2603}", 5000), '0' => 'zero'];
    $c->publish($q, binary(), headers: $big);
    $got = one($c, $q)->headers;
    ksort($got);
    ksort($big);
    same($big, $got);
    throws(InvalidArgumentException::class, null, fn () => $c->publishBatch($q, [['payload' => 'x', 'id' => "\xff"]]));
};

$tests['delay'] = function (Client $c, string $q): void {
    $begun = microtime(true);
    $c->publish($q, 'x', delay: 0.3);
    same([], $c->pull($q));
    one($c, $q);
    holds(microtime(true) - $begun >= 0.29, 'it was delayed');
};

$tests['batch'] = function (Client $c, string $q): void {
    $done = $c->publishBatch($q, [['payload' => '1', 'id' => 'i'], ['payload' => '2', 'id' => 'i'],
        ['payload' => '3']], 'k');
    same(Shunt\Duplicate::class, $done[1]::class);
    $got = $c->pull(["$q-none", $q], 10);
    same(['1', '3'], array_map(fn ($m) => $m->payload, $got));
    $c->ack($got[0]);
    [$first, $second] = $c->ackBatch([$got[0], $got[1]->receipt]);
    same(Shunt\LeaseLost::class, $first::class);
    same(null, $second);
    throws(InvalidArgumentException::class, null, fn () => $c->publishBatch($q, []));
    throws(InvalidArgumentException::class, null, fn () => $c->ackBatch([]));
};

$tests['fail'] = function (Client $c, string $q): void {
    $c->publish($q, 'x', id: 'f', retain: 60);
    $c->fail(one($c, $q), "bad\u{2603}" . str_repeat("\u{2603}", 20000), after: 0);
    $m = one($c, $q);
    same([2, "bad\u{2603}"], [$m->attempt, substr($m->failure, 0, 6)]);
    $c->release($m);
    $m = one($c, $q);
    same(2, $m->attempt);
    $c->fail($m, snooze: 0.1);
    $m = one($c, $q);
    same(2, $m->attempt);
    $c->fail($m, 'never', reject: true);
    $out = $c->wait($q, 'f');
    same(['rejected', 'never'], [$out->kind, $out->failure]);
    same('failed', Shunt\Wire::reason(''));
    same("a\u{fffd}b", Shunt\Wire::reason("a\xffb"));
};

$tests['tokens'] = function (Client $c, string $q): void {
    $bad = client('URL', 'no-token-of-this-namespace');
    throws(Shunt\Unauthorized::class, 'invalid-token', fn () => $bad->publish($q, 'x'));
    throws(Shunt\Unauthorized::class, 'invalid-token', fn () => $bad->work($q, 'var_dump'));
    throws(Shunt\Unauthorized::class, 'no-token', fn () => client('URL', null)->pull($q));
    throws(Shunt\NotFound::class, 'no-pool', fn () => client('URL', 'p:x')->pull($q));
    throws(InvalidArgumentException::class, null, fn () => client('URL', "a\r\nb: c"));
    throws(InvalidArgumentException::class, null, fn () => client('ftp://x'));
};

$tests['requests'] = function (Client $c, string $q): void {
    $bad = throws(Shunt\InvalidRequest::class, 'invalid-request', fn () => $c->ack('x'));
    same('/receipt', $bad->faults[0]['name']);
    $bad = throws(Shunt\InvalidRequest::class, 'invalid-request', fn () => $c->publish($q, 'x', expire: 0, retain: 5));
    same(2, count($bad->faults));
    throws(Shunt\InvalidRequest::class, 'invalid-request', fn () => $c->publish('a b/', 'x'));
    throws(Shunt\TooLarge::class, 'too-large', fn () => $c->publish($q, str_repeat('x', 3000000)));
    throws(Shunt\NotFound::class, 'no-message', fn () => $c->status($q, 'none'));
    throws(InvalidArgumentException::class, null, fn () => $c->publish($q, 'x', idempotencyKey: "a\nb"));
    throws(InvalidArgumentException::class, null, fn () => $c->status($q));
};

$tests['states'] = function (Client $c, string $q): void {
    $c->publish($q, 'x', id: 'i');
    $taken = throws(Shunt\Duplicate::class, 'duplicate', fn () => $c->publish($q, 'y', id: 'i'));
    same('prepare', $taken->existing->state);
    $m = one($c, $q);
    $c->ack($m);
    foreach (['ack', 'fail', 'release', 'extend'] as $late) {
        throws(Shunt\LeaseLost::class, 'lease-lost', fn () => $c->$late($m));
    }
    $c->publish($q, 'x');
    throws(Shunt\Conflict::class, 'no-id', fn () => $c->ack(one($c, $q), 'result'));
    $c->publish($q, 'x', idempotencyKey: 'k');
    throws(Shunt\KeyReused::class, 'idempotency-key-reused', fn () => $c->publish($q, 'y', idempotencyKey: 'k'));
};

$tests['lease lost'] = function (Client $c, string $q): void {
    $c->publish($q, 'x');
    $first = one($c, $q, 0.05);
    $second = one($c, $q);
    same(2, $second->attempt);
    throws(Shunt\LeaseLost::class, 'lease-lost', fn () => $c->ack($first));
    $c->ack($second);
};

$tests['tls'] = function (Client $c, string $q): void {
    $c = client('TLS', '', caFile: env('CA'));
    $c->publish($q, str_repeat(binary(), 200));
    $c->publish($q, str_repeat(binary(), 200));
    same(2, count($c->pull($q, 2)));
    $other = str_replace('127.0.0.1', 'localhost', env('TLS'));
    foreach ([client('TLS', '', retryFor: 0), client($other, '', retryFor: 0, caFile: env('CA'))] as $bad) {
        same(false, throws(Shunt\Unreachable::class, null, fn () => $bad->pull($q))->sent);
    }
};

$tests['lost answers'] = function (Client $c, string $q): void {
    same(true, lossy('/lose?n=2')->publish($q, 'x', idempotencyKey: 'k')->replayed);
    $m = one($c, $q);
    $lossy = lossy('/lose?n=1');
    throws(Shunt\Unconfirmed::class, 'unconfirmed', fn () => $lossy->ack($m));
    $lossy = lossy('/lose?n=1');
    same(true, throws(Shunt\Unreachable::class, null, fn () => $lossy->publish($q, 'y'))->sent);
    $m = one($c, $q);
    same('y', $m->payload);
    same(Shunt\Unconfirmed::class, lossy('/lose?n=1')->ackBatch([$m])[0]::class);
};

$tests['refusals'] = function (Client $c, string $q): void {
    $begun = microtime(true);
    lossy('/refuse?n=1&status=429&type=rate-limited&after=1')->publish($q, 'x');
    holds(microtime(true) - $begun >= 1, 'it waits as it was told');
    $c->ack(one($c, $q));
    lossy('/refuse?n=2&status=502')->publish($q, 'x', idempotencyKey: 'k');
    $c->ack(one($c, $q));
    $lossy = lossy('/refuse?n=1&status=502');
    throws(Shunt\ServerFailed::class, '', fn () => $lossy->publish($q, 'x'));
    $lossy = lossy('/refuse?n=1&status=503&type=busy&after=1', retryFor: 0);
    same(1.0, throws(Shunt\Unavailable::class, 'busy', fn () => $lossy->pull($q))->retryAfter);
    same([], $c->pull($q));
};

$tests['restart'] = function (Client $c, string $q): void {
    $c->publish($q, '0', idempotencyKey: '0');
    $worker = spawn('worker', $q . '-work');
    $kept = client();
    $kept->pull("$q-none");
    control('/kill');
    $hasty = client('URL', '', retryFor: 0);
    same(false, throws(Shunt\Unreachable::class, null, fn () => $hasty->publish($q, 'n'))->sent);
    $publisher = spawn('publisher', $q);
    control('/start');
    $kept->publish("$q-none", 'x'); // it sees that its connection has ended, so it needs no key
    same(0, ended($publisher));
    foreach (['0', '1', '2'] as $one) {
        same(true, $c->publish($q, $one, idempotencyKey: $one)->replayed);
    }
    same(['0', '1', '2'], array_map(fn ($m) => $m->payload, $c->pull($q, 10)));
    $c->publish("$q-work", 'x', id: 'x', retain: 60);
    same('done', $c->wait("$q-work", 'x')->result);
    proc_terminate($worker[0]);
    same(0, ended($worker));
};

$tests['long handler'] = function (Client $c, string $q): void {
    $c->publish($q, 'x', id: 'x', retain: 60);
    $c->publish($q, 'stop');
    $other = client();
    $c->work($q, function (Message $m, callable $extend) use ($other, $q, $c): ?string {
        if ($m->payload === 'stop') {
            $c->stop();

            return null;
        }
        for ($end = microtime(true) + 2.2; microtime(true) < $end; usleep(50000)) {
            $extend();
            same([], array_filter($other->pull($q), fn ($m) => $m->payload !== 'stop' || $other->release($m)));
        }

        return "r$m->attempt";
    }, lease: 1, wait: 5);
    $out = $c->wait($q, 'x');
    same(['acked', 'r1'], [$out->kind, $out->result]);
};

$tests['lost lease'] = function (Client $c, string $q): void {
    $c->publish($q, 'x');
    $told = [];
    $c->work($q, function (Message $m, callable $extend) use ($q, $c): void {
        usleep(1100000);
        $c->stop();
        client()->ack(one(client(), $q));
        $extend();
    }, 1, 1, function (Throwable $why, ?Message $m) use (&$told): void {
        $told[] = $why::class;
    });
    same([Shunt\LeaseLost::class, Shunt\LeaseLost::class], $told); // the handler's, and that of the verdict
};

$tests['verdicts'] = function (Client $c, string $q): void {
    foreach (['a' => new RuntimeException("why \u{2603} \xff"), 'b' => 5, 'c' => new Shunt\Reject('no'),
        'd' => new Shunt\Retry('later', 60), 'e' => new Shunt\Snooze(60)] as $id => $does) {
        $c->publish($q, 'x', id: $id, retain: 60);
        $c->work($q, function () use ($c, $does) {
            $c->stop();

            return $does instanceof Throwable ? throw $does : $does;
        }, onError: static function (): void {
        });
    }
    same('RuntimeException: why ', substr($c->status($q, 'a')->failure, 0, 22));
    same('TypeError: ', substr($c->status($q, 'b')->failure, 0, 11));
    same(['rejected', 'no'], [$c->wait($q, 'c')->kind, $c->wait($q, 'c')->failure]);
    same('later', $c->status($q, 'd')->failure);
    same(['delay', 0], [$c->status($q, 'e')->state, $c->status($q, 'e')->attempt]);
};

$tests['signals'] = function (Client $c, string $q): void {
    if (!function_exists('pcntl_signal')) {
        echo '(no pcntl) ';

        return;
    }
    foreach (['URL', 'TLS'] as $url) { // while it waits
        $worker = spawn('worker', $q, $url);
        $c->publish($q, 'x', id: $url, retain: 60);
        same("begun\n", fgets($worker[1]));
        same('done', $c->wait($q, $url)->result); // its signals' handlers are in place
        $begun = microtime(true);
        proc_terminate($worker[0]);
        same(0, ended($worker));
        holds(microtime(true) - $begun < 5, 'it ends soon');
    }
    $worker = spawn('worker', $q); // while it handles
    $c->publish($q, '1', id: '1', retain: 60);
    same("begun\n", fgets($worker[1]));
    $c->publish($q, '2');
    proc_terminate($worker[0]);
    same(0, ended($worker));
    same('done', $c->status($q, '1')->outcome->result);
    $m = one($c, $q, wait: 0);
    same(['2', 1], [$m->payload, $m->attempt]);
};

/** A signal that comes before the answer of a pull, which has a message: it was not begun, and goes back. */
$tests['gives back'] = function (Client $c, string $q): void {
    if (!function_exists('pcntl_signal')) {
        echo '(no pcntl) ';

        return;
    }
    foreach (['LOSSY', 'TLS'] as $url) {
        $worker = spawn('worker', $q, $url);
        control('/term?pid=' . proc_get_status($worker[0])['pid']);
        $c->publish($q, 'x');
        same('', stream_get_contents($worker[1]));
        same(0, ended($worker));
        $m = one($c, $q, wait: 0);
        same(1, $m->attempt);
        $c->ack($m);
    }
};

function worker(string $queue, string $url = 'URL'): void
{
    $c = client($url, '', caFile: env('CA'));
    $c->pull($queue); // the connection is there
    echo "ready\n";
    $c->work($queue, function (): string {
        echo "begun\n";
        for ($end = microtime(true) + 0.5; microtime(true) < $end; usleep(10000)) { // for the signal
        }

        return 'done';
    }, onError: static function (): void {
    });
}

function publisher(string $queue): void
{
    echo "ready\n";
    foreach (['1', '2'] as $one) {
        client()->publish($queue, $one, idempotencyKey: $one);
    }
}

if (isset($argv[1])) {
    if (function_exists('pcntl_alarm')) {
        pcntl_alarm(50); // it ends also where the test was killed
    }
    $argv[1](...array_slice($argv, 2));
    exit;
}
$failed = 0;
$spawned = [];
foreach ($tests as $name => $test) {
    $begun = microtime(true);
    try {
        $test(client(), 'php-' . str_replace(' ', '-', $name));
        printf("%s ok %.2f s\n", $name, microtime(true) - $begun);
    } catch (Throwable $why) {
        $failed++;
        echo "$name FAILED: $why\n";
    }
    array_map(static fn ($p) => proc_terminate($p, 9), $spawned); // those of a test that has failed
    $spawned = [];
}
exit($failed === 0 ? 0 : 1);

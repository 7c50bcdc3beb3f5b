package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// replies are errors as servers write them, with what they mean.
var replies = []struct {
	code  string
	text  string // without the code
	class Class
	drops bool
}{
	{"MOVED", "3999 127.0.0.1:6381", Fatal, false},
	{"ASK", "3999 127.0.0.1:6381", NotExecuted, false},
	{"TRYAGAIN", "Multiple keys request during rehashing of slot", NotExecuted, false},
	{"CLUSTERDOWN", "Hash slot not served", NotExecuted, false},
	{"OOM", "command not allowed when used memory > 'maxmemory'.", NotExecuted, false},
	{"NOSCRIPT", "No matching script. Please use EVAL.", NotExecuted, false},
	{"BUSY", "Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", NotExecuted, false},
	{"NOREPLICAS", "Not enough good replicas to write.", NotExecuted, false},
	{
		"MISCONF",
		"Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		NotExecuted,
		false,
	},
	{"LOADING", "Redis is loading the dataset in memory", NotExecuted, true},
	{"READONLY", "You can't write against a read only replica.", NotExecuted, true},
	{"MASTERDOWN", "Link with MASTER is down and replica-serve-stale-data is set to 'no'.", NotExecuted, true},
	{"UNBLOCKED", "client unblocked via CLIENT UNBLOCK", NotExecuted, true},
	{"WRONGTYPE", "Operation against a key holding the wrong kind of value", Fatal, false},
	{"NOPERM", "this user has no permissions to run the 'lpush' command", Fatal, false},
	{"NOAUTH", "Authentication required.", Fatal, true},
	{"WRONGPASS", "invalid username-password pair or user is disabled.", Fatal, true},
}

// Redis 7 refuses a command inside a script without a code of its own.
func TestForbiddenInScript(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"ERR The user executing the script can't run this command or subcommand script: abc, on @user_script:5.",
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
	} {
		if err := redis.Error(text); Code(err) != "NOPERM" || Classify(err) != Fatal {
			t.Errorf("%s is %s, %v", text, Code(err), Classify(err))
		}
	}
}

func TestClassifyReplies(t *testing.T) {
	t.Parallel()
	if len(replies) != len(refusals)+len(fatals) {
		t.Errorf("%d codes are tested, there are %d", len(replies), len(refusals)+len(fatals))
	}
	const sha = "5332031c6b470dc5a0dd9b4bf2030dea6d65de91"
	for _, r := range replies {
		plain := r.code + " " + r.text
		for name, text := range map[string]string{
			"plain":   plain,
			"Redis 6": "ERR Error running script (call to f_" + sha + "): @user_script:5: -" + plain,
			// A command's own error reply, as redis.call raises it there.
			"Redis 6, by call":  "ERR Error running script (call to f_" + sha + "): @user_script:5: " + plain,
			"Redis 6, by pcall": "@user_script: 8: -" + plain,
			"Redis 5": "ERR Error running script (call to f_" + sha + "): @user_script:5: @user_script: 5: " +
				"-" + plain,
			"Redis 7": plain + " script: " + sha + ", on @user_script:1.",
		} {
			err := error(redis.Error(text))
			if got := Code(err); got != r.code {
				t.Errorf("%s, %s: code %q", r.code, name, got)
			}
			if got := Classify(err); got != r.class {
				t.Errorf("%s, %s: class %d, want %d", r.code, name, got, r.class)
			}
			if got := Classify(fmt.Errorf("take: %w", err)); got != r.class {
				t.Errorf("%s, %s, wrapped: class %d, want %d", r.code, name, got, r.class)
			}
			if got := drops(err); got != r.drops {
				t.Errorf("%s, %s: drops %v", r.code, name, got)
			}
		}
	}
}

func TestClassifyOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want Class
		code string
	}{
		{nil, Done, ""},
		{redis.Error("ERR wrong number of arguments for 'lpush' command"), Failed, "ERR"},
		{redis.Error("ERR Error running script (call to f_0): @user_script:3: attempt to perform arithmetic on a " +
			"nil value"), Failed, "ERR"},
		{redis.Error("ERR Error compiling script (new function): user_script:1: '=' expected"), Failed, "ERR"},
		{redis.Error("ERR Error running script (call to f_0): @user_script:1: my own BUSY day"), Failed, "ERR"},
		{redis.Error("BUSYGROUP Consumer Group name already exists"), Failed, "BUSYGROUP"},
		{redis.Error("BUSYKEY Target key name already exists."), Failed, "BUSYKEY"},
		{redis.Error("EXECABORT Transaction discarded because of previous errors."), Failed, "EXECABORT"},
		{redis.Error("OOMPH"), Failed, "OOMPH"},
		{redis.Error("OOM"), NotExecuted, "OOM"},
		{io.EOF, Unknown, ""},
		{io.ErrUnexpectedEOF, Unknown, ""},
		{os.ErrDeadlineExceeded, Unknown, ""},
		{context.Canceled, Unknown, ""},
		{errors.New("OOM is only the text of it"), Unknown, ""},
		{&Error{NotExecuted, io.EOF}, NotExecuted, ""},
		{&Error{Unknown, io.EOF}, Unknown, ""},
		{fmt.Errorf("wrapped: %w", &Error{NotExecuted, io.EOF}), NotExecuted, ""},
		// What was never sent is not executed, whatever the reason.
		{&Error{NotExecuted, redis.Error("NOAUTH Authentication required.")}, NotExecuted, "NOAUTH"},
	} {
		if got := Classify(c.err); got != c.want {
			t.Errorf("%v: class %d, want %d", c.err, got, c.want)
		}
		if got := Code(c.err); got != c.code {
			t.Errorf("%v: code %q, want %q", c.err, got, c.code)
		}
	}
	e := &Error{Unknown, fmt.Errorf("read: %w", io.EOF)}
	if e.Error() != "read: EOF" || !errors.Is(e, io.EOF) {
		t.Errorf("%v", e)
	}
}

// What the server at hand says, plain and inside a script.
func TestClassifyRealReplies(t *testing.T) {
	t.Parallel()
	s := redistest.Start(
		t,
		"maxmemory 1",
		"maxmemory-policy noeviction",
		"user nobody on nopass ~* +@all -lpush -config",
	)
	c := s.Pool(t).Get()
	defer c.Close()
	if _, err := c.Do("EVAL", "redis.call('ZREM', KEYS[1], '') redis.call('ZADD', KEYS[1], 1, 'm')", 1,
		"z"); err != nil {
		t.Fatal(err)
	}
	check := func(want Class, code, cmd string, args ...any) {
		t.Helper()
		_, err := c.Do(cmd, args...)
		if Classify(err) != want || Code(err) != code {
			t.Errorf("%s %v: %v: class %d, code %q", cmd, args, err, Classify(err), Code(err))
		}
	}
	check(NotExecuted, "OOM", "LPUSH", "l", "1")
	check(NotExecuted, "OOM", "EVAL", "return redis.call('LPUSH', KEYS[1], '1')", 1, "l")
	check(Fatal, "WRONGTYPE", "LRANGE", "z", 0, -1)
	check(Fatal, "WRONGTYPE", "EVAL", "return redis.call('LRANGE', KEYS[1], 0, -1)", 1, "z")
	check(NotExecuted, "NOSCRIPT", "EVALSHA", "5332031c6b470dc5a0dd9b4bf2030dea6d65de91", 0)
	check(Failed, "ERR", "EVAL", "return 1 + nil", 0)
	check(Failed, "ERR", "NOSUCHCOMMAND")
	check(Fatal, "WRONGPASS", "AUTH", "who", "wrong")
	check(Done, "", "AUTH", "nobody", "")
	check(Fatal, "NOPERM", "LPUSH", "l", "1")
	s.Do("REPLICAOF", "127.0.0.1", "1")
	check(NotExecuted, "READONLY", "LREM", "l", 1, "1")
	check(NotExecuted, "READONLY", "EVAL", "return redis.call('LREM', KEYS[1], 1, '1')", 1, "l")
	s.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
	check(NotExecuted, "MASTERDOWN", "LRANGE", "l", 0, -1)
}

// It is asked of every message's reply.
func TestCodeOfNoError(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Code(nil) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shuntmq/shunt"
)

// right is a set of commands that shunt asks for one purpose, as docs/access.md has it.
type right struct {
	commands string // with a key after each, where it has one; separated by commas
	without  string // what does not work
	needed   bool
	used     string // only where a key of this state exists
}

const tried = "{shunt.doctor}." // of keys that nobody has

// The forms are such that Redis accepts them by their number of arguments.
var rights = []right{
	{needed: true, commands: "EVAL s 1 K,EVALSHA s 1 K,LPUSH K v,RPUSH K v,RPOPLPUSH K K,BRPOPLPUSH K K 1,LREM K 1 v," +
		"LRANGE K 0 0,LTRIM K 0 0,LLEN K,LINDEX K 0,EXISTS K,ZADD K 1 v,ZREM K v,ZSCORE K v,ZCARD K,ZCOUNT K 0 0," +
		"ZRANGE K 0 0,ZREVRANGE K 0 0,ZRANGEBYSCORE K 0 0,ZREMRANGEBYRANK K 0 0,SCARD K,TIME"},
	{commands: "SUBSCRIBE D,UNSUBSCRIBE D,HSET K f v,HGET K f,HMGET K f,DEL K",
		without: "delayed messages and retries may be 5 s late"},
	{commands: "PUBLISH D v", without: "what this user delays may be 5 s late"},
	{commands: "HSET K f v,HGET K f,HDEL K f,HLEN K,HKEYS K,HSTRLEN K f,PEXPIRE K 1",
		without: "what this user does is in no Counts: set NoCounts"},
	{commands: "HMGET K f", without: "Counts fails, and rates are not known"},
	{commands: "INFO", without: "a receiver whose workers are busy does not notice that Redis was restarted"},
	{commands: "CLIENT ID,CLIENT UNBLOCK 1", without: "the shutdown of an idle receiver takes up to 1 s"},
	{commands: "SADD shunt.channels v", without: "channels of this user are not listed"},
	{commands: "SMEMBERS shunt.channels", without: "Channels, Overview and Health of all channels fail"},
	{commands: "XADD shunt.audit * f v,XREVRANGE shunt.audit + -", without: "Audit and AuditLog fail"},
	{used: "ids", commands: "GET K,SET K v,HSET K f v,HSETNX K f v,HGET K f,HMGET K f,HDEL K f,HLEN K,HEXISTS K f," +
		"HINCRBY K f 1,HGETALL K,HSCAN K 0,SADD K v,SREM K v,SISMEMBER K v,SSCAN K 0,LPOS K v,SUBSCRIBE E,SUBSCRIBE R",
		without: "messages with an ID, Expire, Then, EnqueueOnce and recurring messages fail"},
	{used: "leased", commands: "BLMOVE K K RIGHT RIGHT 1",
		without: "channels of a waiting Pull are asked 10 times a second"},
	{commands: "PSUBSCRIBE P,SSCAN shunt.channels 0",
		without: "Upkeep looks through all channels every 5 s, or misses those that no hint names"},
}

// forms are the commands of a right.
func (r *right) forms() (all [][]string) {
	replace := map[string]string{"K": tried + "try", "D": tried + "delay", "E": tried + "done", "R": tried + "recur",
		"P": "{*}.delay", "s": "return 1"}
	for form := range strings.SplitSeq(r.commands, ",") {
		words := strings.Split(form, " ")
		if words[0] == "EVAL" || words[0] == "EVALSHA" {
			words = []string{words[0], "return 1", "1", tried + "try"}
		}
		for i, w := range words {
			if to, is := replace[w]; is && i > 0 {
				words[i] = to
			}
		}
		all = append(all, words)
	}
	return all
}

// prober asks Redis which of some commands it would refuse, and executes none. known is false where it cannot tell.
type prober func(e *examination, forms [][]string) (refused []bool, known bool)

// rights finds what is not allowed of what is used.
func (e *examination) rights() {
	if e.over("rights were not looked at") {
		return
	}
	var forms [][]string
	for i := range rights {
		forms = append(forms, rights[i].forms()...)
	}
	probers := []prober{byDryRun, byScript, byQueueing}
	if e.o.User != "" {
		probers = probers[:1]
	}
	for _, probe := range probers {
		if refused, known := probe(e, forms); known {
			e.judgeRights(refused)
			return
		}
	}
	e.limit("rights: Redis tells them neither by ACL DRYRUN, nor to a script, nor in MULTI")
}

func (e *examination) judgeRights(refused []bool) {
	for i := range rights {
		r := &rights[i]
		forms := r.forms()
		var missing []string
		for j, form := range forms {
			name := strings.ToLower(form[0])
			if name == "client" {
				name += "|" + strings.ToLower(form[1])
			}
			if refused[j] && !slices.Contains(missing, "+"+name) {
				missing = append(missing, "+"+name)
			}
		}
		refused = refused[len(forms):]
		if len(missing) == 0 || r.used != "" && !e.uses(r.used) {
			continue
		}
		user := e.o.User
		if user == "" {
			user = "USER"
		}
		f := Finding{Key: strings.TrimPrefix(missing[0], "+"), Number: float64(len(missing)), Why: r.without,
			Do: fmt.Sprintf("ACL SETUSER %s %s: docs/access.md has the keys and channels, too", user,
				strings.Join(missing, " "))}
		kind, severity := RightsLacking, shunt.Notice
		if r.needed {
			kind, severity = RightsNeeded, shunt.Critical
		} else if r.used != "" {
			severity = shunt.Warning
		}
		e.found(severity, kind, f, "this user may not: %s", strings.Join(missing, " "))
	}
}

// uses says whether any channel has a key of a state.
func (e *examination) uses(state string) bool {
	for _, c := range e.seen {
		if _, is := c.types[state]; is {
			return true
		}
	}
	return false
}

// byDryRun needs the right to ACL, and Redis 7.
func byDryRun(e *examination, forms [][]string) ([]bool, bool) {
	user := e.o.User
	if user == "" {
		who := e.one("ACL", "WHOAMI")
		if user = who.text(); who.err != nil {
			return nil, false
		}
	}
	cmds := make([]command, len(forms))
	for i, form := range forms {
		cmds[i] = append(command{"ACL", "DRYRUN", user}, words(form)...)
	}
	all, err := e.ask(cmds...)
	if err != nil || all[0].err != nil {
		return nil, false
	}
	refused := make([]bool, len(forms))
	for i, r := range all { // a refusal is a text, and no error
		refused[i] = r.err == nil && r.text() != "OK"
	}
	return refused, true
}

// byScript needs no more than EVAL, and Redis 7.
func byScript(e *examination, forms [][]string) ([]bool, bool) {
	cmds := make([]command, len(forms))
	for i, form := range forms {
		const ask = "local ok, may = pcall(redis.acl_check_cmd, unpack(ARGV)); return ok and (may and 1 or 0) or 1"
		cmds[i] = append(command{"EVAL", "if not redis.acl_check_cmd then return 2 end; " + ask, 0}, words(form)...)
	}
	all, err := e.ask(cmds...)
	if err != nil || all[0].err != nil || all[0].int() == 2 {
		return nil, false
	}
	refused := make([]bool, len(forms))
	for i, r := range all {
		refused[i] = r.err == nil && r.int() == 0
	}
	return refused, true
}

// byQueueing has Redis queue the commands, which it refuses where there is no right, and discards them.
func byQueueing(e *examination, forms [][]string) ([]bool, bool) {
	refused := make([]bool, len(forms))
	for i, form := range forms { // one connection each: commands of subscriptions are not queued
		if strings.HasSuffix(form[0], "SUBSCRIBE") {
			continue
		}
		all, err := e.pipeline([]command{{"MULTI"}, append(command{form[0]}, words(form[1:])...), {"DISCARD"}})
		if err != nil || all[0].err != nil {
			return nil, false
		}
		refused[i] = all[1].err != nil && strings.HasPrefix(all[1].err.Error(), "NOPERM")
	}
	return refused, true
}

func words(of []string) []any {
	all := make([]any, len(of))
	for i, w := range of {
		all[i] = w
	}
	return all
}

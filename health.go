package shunt

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/link"
)

// Severity says how much a Finding matters.
type Severity string

const (
	Critical Severity = "critical" // work does not get done, or may be lost: now
	Warning  Severity = "warning"  // look at it today
	Notice   Severity = "notice"   // good to know
)

// Finding is one thing that is wrong.
type Finding struct {
	Severity Severity    `json:"severity"`
	Kind     FindingKind `json:"kind"`
	Channel  string      `json:"channel,omitempty"` // empty where it is about Redis
	// Number is how much: messages, a part of one, or seconds, as Text says.
	Number float64 `json:"number"`
	Text   string  `json:"text"` // what is wrong
	Do     string  `json:"do"`   // what mends it
}

// FindingKind names what is wrong, for programs: it stays the same, while texts may change.
type FindingKind string

// What may be wrong with a channel, and then with Redis.
const (
	FindingUnreadable   FindingKind = "unreadable"
	FindingNoCounts     FindingKind = "no-counts"
	FindingNobodyTakes  FindingKind = "nobody-takes"
	FindingGrows        FindingKind = "backlog-grows"
	FindingBacklog      FindingKind = "backlog"
	FindingNothingEnds  FindingKind = "nothing-ends"
	FindingOverdue      FindingKind = "overdue"
	FindingLeaseOverdue FindingKind = "lease-overdue"
	FindingSuspects     FindingKind = "suspects"
	FindingFailing      FindingKind = "failing"
	FindingDying        FindingKind = "dying"
	FindingDeadFull     FindingKind = "dead-full"
	FindingLate         FindingKind = "late-verdicts"

	FindingEviction    FindingKind = "eviction"
	FindingMemory      FindingKind = "memory"
	FindingPersistence FindingKind = "persistence"
	FindingNoAOF       FindingKind = "no-aof"
	FindingReplica     FindingKind = "replica"
)

// The bounds beyond which something is wrong.
const (
	waitsLong   = time.Minute
	overdueLong = 10 * time.Second
	drainsLong  = time.Hour
	growsLong   = 5 * time.Minute
	growsBy     = 0.1 // of what waits, and 10 messages or more
	mostFail    = 0.5 // of those that were handled
	fewHandled  = 10  // say nothing of a part
)

// Health says what is wrong with some channels, or without any with all of them, and with Redis: the worst first. None
// is good. It asks as much as Overview, and once for INFO; what INFO does not tell is not judged.
func (q *Queue) Health(ctx context.Context, channels ...string) ([]Finding, error) {
	all, err := q.Overview(ctx, channels...)
	if err != nil {
		return nil, err
	}
	return q.HealthOf(ctx, all)
}

// HealthOf is Health of channels that were looked at: it asks for INFO alone.
func (q *Queue) HealthOf(ctx context.Context, all []Overview) ([]Finding, error) {
	replies, _, err := asker{q: q, each: true}.Ask(ctx, "", func(c *link.Call) { c.Add("INFO", "default") })
	if err != nil {
		return nil, err
	}
	var fs findings
	for i := range all {
		fs.channel(&all[i], q.conf.MaxDead)
	}
	if info, is := replies[0].Any().([]byte); is {
		fs.server(parseInfo(string(info)))
	}
	rank := []Severity{Critical, Warning, Notice}
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Compare(slices.Index(rank, a.Severity), slices.Index(rank, b.Severity))
	})
	return fs, nil
}

type findings []Finding

func (fs *findings) add(s Severity, kind FindingKind, channel string, number float64, text, do string) {
	*fs = append(*fs, Finding{Severity: s, Kind: kind, Channel: channel, Number: number, Text: text, Do: do})
}

// channel judges a channel.
func (fs *findings) channel(o *Overview, maxDead int) {
	found := func(s Severity, kind FindingKind, number float64, do, text string, args ...any) {
		fs.add(s, kind, o.Channel, number, fmt.Sprintf(text, args...), do)
	}
	if o.Error != "" {
		found(Critical, FindingUnreadable, 0, "see the error", "%s", o.Error)
		return
	}
	if o.CountsError != "" {
		found(Notice, FindingNoCounts, 0, "see the error", "nobody knows what happened lately: %s", o.CountsError)
	}
	c, waiting := &o.Lately, o.Prepare+o.Suspect
	nobody := o.Receivers == 0 && o.Leases == 0
	waits := amount(waiting, "message waits", "messages wait")
	// Of bare payloads nobody knows the age: they are old where some waited a while ago, and none has left since.
	stay := o.waited && o.leftJustNow == 0
	old := waiting > 0 && (o.OldestAge > waitsLong || o.OldestAge == 0 && stay)
	switch {
	case old && nobody && o.leftJustNow == 0:
		found(Critical, FindingNobodyTakes, float64(waiting), "start a receiver of the channel, or pull from it",
			"%s, the next one for %v, and nobody takes any", waits, ageText(o.OldestAge))
	case waiting > 0 && o.OldestAge == 0 && nobody && o.since.IsZero():
		found(Notice, FindingNobodyTakes, float64(waiting), "start a receiver of the channel, or pull from it",
			"%s, nobody knows how long, and nobody takes any just now; nothing is counted there", waits)
	case old && o.TrendOver >= growsLong && float64(o.Trend) >= max(10, growsBy*float64(waiting)):
		found(Warning, FindingGrows, float64(o.Trend), "run more workers, or make handlers faster",
			"%s, %d more than %v ago", waits, o.Trend, o.TrendOver.Round(time.Minute))
	case old && !nobody && !o.since.IsZero() && c.left() == 0:
		found(Notice, FindingNothingEnds, float64(waiting), "see what the workers do, and for how long: Stats",
			"%s, and none has ended in the last 10 minutes", waits)
	case old && o.DrainTime() > drainsLong:
		found(Notice, FindingBacklog, o.DrainTime().Seconds(), "run more workers if that is too long",
			"%s: as lately, it takes %v until none does", waits, o.DrainTime().Round(time.Minute))
	}
	overdue := func(kind FindingKind, in time.Duration, what string) {
		late, severity, do := -in, Critical, "start a receiver, pull, or run a process with Upkeep"
		if late <= overdueLong {
			return
		}
		if !nobody {
			severity, do = Warning, "if that grows: see the Events of the receivers, and the load of Redis"
		}
		found(severity, kind, late.Seconds(), do, what, late.Round(time.Second))
	}
	overdue(FindingOverdue, o.NextDueIn, "a delayed message is due since %v, and was not promoted")
	overdue(FindingLeaseOverdue, o.LeaseEndsIn, "a lease is over since %v, and was not ended")
	if o.Suspect > 0 {
		found(Warning, FindingSuspects, float64(o.Suspect),
			"look why processes die: an exit, a crash, or too much memory",
			"%s in the hands of dying processes twice or more", amount(o.Suspect, "message was", "messages were"))
	}
	if tried := c.Acked + c.Retried + c.Dead; tried >= fewHandled {
		if part := float64(c.Retried+c.Dead) / float64(tried); part >= mostFail {
			found(Warning, FindingFailing, part, "look at the failures of the messages that are delayed or dead",
				"%.0f %% of the last %d handlings have failed", 100*part, tried)
		}
	}
	if c.Dead > 0 {
		found(Warning, FindingDying, float64(c.Dead),
			"look at the failures of the dead letters; then retry or delete them",
			"%s in the last 10 minutes", amount(int(c.Dead), "message died", "messages died"))
	}
	if maxDead > 0 && o.Dead >= maxDead {
		found(Warning, FindingDeadFull, float64(o.Dead), "retry or delete dead letters, or raise MaxDead",
			"%s kept, and the oldest ones are dropped", amount(o.Dead, "dead letter is", "dead letters are"))
	}
	if c.Late > 0 {
		found(Notice, FindingLate, float64(c.Late), "look for long pauses of processes; a longer Lease may help",
			"%s too late in the last 10 minutes, or without a reply",
			amount(int(c.Late), "verdict came", "verdicts came"))
	}
}

// amount is a number with its noun and verb.
func amount(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}

// ageText is an age as a Finding says it.
func ageText(age time.Duration) string {
	if age == 0 {
		return "nobody knows how long"
	}
	return age.Round(time.Second).String()
}

// parseInfo reads the reply to INFO.
func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, is := strings.Cut(strings.TrimSpace(line), ":"); is {
			info[key] = value
		}
	}
	return info
}

// server judges Redis by its INFO. What is not there is not judged.
func (fs *findings) server(info map[string]string) {
	found := func(s Severity, kind FindingKind, number float64, do, text string, args ...any) {
		fs.add(s, kind, "", number, fmt.Sprintf(text, args...), do)
	}
	number := func(key string) float64 { n, _ := strconv.ParseFloat(info[key], 64); return n }
	if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" && number("maxmemory") > 0 {
		severity, lost := Critical, "messages would be lost without a word"
		if strings.HasPrefix(policy, "volatile-") { // no message has a time to live
			severity, lost = Warning, "what EnqueueOnce remembers would be lost, and counts"
		}
		found(severity, FindingEviction, 0, "CONFIG SET maxmemory-policy noeviction, then CONFIG REWRITE",
			"Redis drops keys when it is full (%s): %s", policy, lost)
	}
	if most := number("maxmemory"); most > 0 && number("used_memory") > 0.9*most {
		part := number("used_memory") / most
		found(Warning, FindingMemory, part, "see which channels are large (Overview), or give Redis more memory",
			"Redis uses %.0f %% of maxmemory; a full one refuses every enqueue", 100*part)
	}
	if info["rdb_last_bgsave_status"] == "err" || info["aof_last_write_status"] == "err" ||
		info["aof_last_bgrewrite_status"] == "err" {
		found(Critical, FindingPersistence, 0, "see the log of Redis: most often the disk is full",
			"Redis could not write to its disk lately")
	}
	if info["aof_enabled"] == "0" && number("connected_slaves") == 0 {
		found(Notice, FindingNoAOF, 0, "CONFIG SET appendonly yes, then CONFIG REWRITE",
			"Redis writes no append-only file and has no replica: when it crashes, what came since the last snapshot "+
				"is lost")
	}
	if info["role"] == "slave" {
		found(Critical, FindingReplica, 0, "connect to the master", "this Redis is a replica, which takes no message")
	}
}

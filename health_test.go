package shunt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// An overview has what lies in each channel, in the order asked for, and a channel that cannot be read harms no other.
func TestOverview(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b := newBench(t, s.URL())
		bad, none := b.name+".bad", b.name+".none"
		b.must(b.one(1))
		b.must(b.one(2, In(time.Hour)))
		b.must(b.one(3, In(2*time.Hour)))
		b.must(b.one(4))
		b.pull(1, PullOptions{Lease: time.Minute})
		s.Do("LPUSH", b.keys().Suspect, "x")
		s.Do("ZADD", b.keys().Dead, 1, "y", 2, "z")
		s.Do("SET", store.KeysOf(bad).Delay, "foreign")
		b.counter.flush(ctx)
		all, err := b.Overview(ctx, none, bad, b.name)
		b.must(err)
		if o := all[0]; o.Channel != none || o.Error != "" || o.Prepare != 0 || o.OldestAge != 0 || o.NextDueIn != 0 {
			t.Errorf("of nothing: %+v", o)
		}
		if o := all[1]; o.Channel != bad || !strings.Contains(o.Error, store.KeysOf(bad).Delay) {
			t.Errorf("of what is not shunt's: %+v", o)
		}
		o := all[2]
		if o.Prepare != 1 || o.Suspect != 1 || o.Delay != 2 || o.Dead != 2 || o.Leases != 1 || o.Lately.Enqueued != 4 ||
			o.NextDueIn < 59*time.Minute || o.NextDueIn > time.Hour || o.LeaseEndsIn < 50*time.Second ||
			o.OldestAge <= 0 || o.OldestAge > time.Minute || o.Receivers != 0 || o.Workers != 0 {
			t.Errorf("%+v", o)
		}
		// It was killed, and nobody swept.
		s.Do("ZADD", b.keys().Receivers, 1, store.NewIncarnation(5, time.Second).Name)
		if all, err = b.Overview(ctx, b.name); err != nil || all[0].Receivers != 0 {
			t.Errorf("with a dead receiver: %+v, %v", all, err)
		}
		shutdown := b.receive(3, func(context.Context, int) error { return nil })
		all, err = b.Overview(ctx, b.name)
		b.must(err)
		if o := all[0]; o.Receivers != 1 || o.Workers != 3 {
			t.Errorf("with a receiver: %+v", o)
		}
		b.must(shutdown(ctx))
		if all, err = b.Overview(ctx); err != nil || !slices.ContainsFunc(all, func(o Overview) bool {
			return o.Channel == b.name
		}) {
			t.Errorf("of all: %v, %v", all, err)
		}
		if all, err := b.Overview(ctx, ""); err != nil || all[0].Error == "" {
			t.Error("a channel without a name")
		}
	})
}

// An overview of many channels is one pipeline.
func TestOverviewIsOnePipeline(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("%s.%d", b.name, i))
	}
	b.must(b.one(1))
	began := time.Now()
	all, err := b.Overview(context.Background(), names...)
	b.must(err)
	t.Logf("%v", time.Since(began))
	if len(all) != len(names) || all[999].Channel != names[999] {
		t.Errorf("%d channels", len(all))
	}
}

// kindsOf are those of the findings, with their severities.
func kindsOf(fs []Finding) (ks []string) {
	for _, f := range fs {
		ks = append(ks, string(f.Severity)+" "+string(f.Kind))
		if f.Text == "" || f.Do == "" {
			ks = append(ks, "without a text")
		}
	}
	slices.Sort(ks)
	return ks
}

// Each fault of a channel is found, and nothing is found in one that is well.
func TestFindings(t *testing.T) {
	t.Parallel()
	from := time.Now()
	counts := func(enqueued, acked, retried, dead, late int64) Counts {
		return Counts{From: from, To: from.Add(11 * time.Minute), Enqueued: enqueued, Acked: acked, Retried: retried,
			Dead: dead, Late: late}
	}
	for name, c := range map[string]struct {
		o    Overview
		want []string
	}{
		"empty": {Overview{}, nil},
		"well": {Overview{Prepare: 10, OldestAge: time.Second, Receivers: 1,
			Lately: counts(1000, 1000, 1, 0, 0)}, nil},
		"error": {Overview{Error: "oh"}, []string{"critical unreadable"}},
		"alone": {Overview{Prepare: 1, OldestAge: time.Hour}, []string{"critical nobody-takes"}},
		"bare":  {Overview{Prepare: 1, since: from, waited: true}, []string{"critical nobody-takes"}},
		"bare, and others come": {Overview{Prepare: 1, since: from, waited: true, Lately: counts(9, 0, 0, 0, 0)},
			[]string{"critical nobody-takes"}},
		"bare, just now":   {Overview{Prepare: 1, since: from}, nil},
		"bare, uncounted":  {Overview{Prepare: 1}, []string{"notice nobody-takes"}},
		"waits, uncounted": {Overview{Prepare: 9, OldestAge: time.Hour, Receivers: 1}, nil},
		"just now": {Overview{Prepare: 1, OldestAge: time.Hour, leftJustNow: 1,
			Lately: counts(0, 1, 0, 0, 0)}, nil},
		"pulled": {Overview{Prepare: 1, Leases: 1, OldestAge: time.Hour, since: from},
			[]string{"notice nothing-ends"}},
		"grows": {Overview{Prepare: 100, Trend: 11, TrendOver: 9 * time.Minute, Receivers: 1, OldestAge: time.Hour,
			Lately: counts(100, 90, 0, 0, 0)}, []string{"warning backlog-grows"}},
		"a little more": {Overview{Prepare: 1000, Trend: 11, TrendOver: 9 * time.Minute, Receivers: 1,
			OldestAge: time.Hour, Lately: counts(100, 90, 0, 0, 0)}, nil},
		"drains": {Overview{Prepare: 5000, Trend: -90, TrendOver: 9 * time.Minute, Receivers: 1, OldestAge: time.Hour,
			Lately: counts(0, 90, 0, 0, 0)}, []string{"notice backlog"}},
		"no counts": {Overview{CountsError: "oh"}, []string{"notice no-counts"}},
		"behind":    {Overview{Delay: 1, Receivers: 1, NextDueIn: -time.Minute}, []string{"warning overdue"}},
		"delayed":   {Overview{Delay: 1, NextDueIn: -time.Minute}, []string{"critical overdue"}},
		"leased":    {Overview{Leases: 1, LeaseEndsIn: -time.Minute}, []string{"warning lease-overdue"}},
		"suspect":   {Overview{Suspect: 1, Receivers: 1, Lately: counts(1, 1, 0, 0, 0)}, []string{"warning suspects"}},
		"failing":   {Overview{Receivers: 1, Lately: counts(10, 5, 5, 0, 0)}, []string{"warning failing"}},
		"few":       {Overview{Receivers: 1, Lately: counts(10, 0, 9, 0, 0)}, nil},
		"dying":     {Overview{Receivers: 1, Lately: counts(10, 0, 0, 2, 0)}, []string{"warning dying"}},
		"full":      {Overview{Dead: 100}, []string{"warning dead-full"}},
		"late":      {Overview{Lately: counts(1, 1, 0, 0, 1)}, []string{"notice late-verdicts"}},
	} {
		var fs findings
		c.o.Channel = "c"
		if c.o.Lately.To.IsZero() {
			c.o.Lately = counts(0, 0, 0, 0, 0)
		}
		fs.channel(&c.o, 100)
		if got := kindsOf(fs); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, fs, c.want)
		}
	}
}

// Each fault of Redis is found by its INFO.
func TestFindingsOfRedis(t *testing.T) {
	t.Parallel()
	for info, want := range map[string][]string{
		"": nil,
		"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n": nil,
		"used_memory:1\nmaxmemory:9\nmaxmemory_policy:allkeys-lru":    {"critical eviction"},
		"used_memory:91\nmaxmemory:99\nmaxmemory_policy:noeviction":   {"warning memory"},
		"rdb_last_bgsave_status:err":                                  {"critical persistence"},
		"aof_last_write_status:err":                                   {"critical persistence"},
		"aof_enabled:0\nconnected_slaves:0":                           {"notice no-aof"},
		"aof_enabled:0\nconnected_slaves:1":                           nil,
		"maxmemory:9\nmaxmemory_policy:volatile-lru":                  {"warning eviction"},
		"role:slave": {"critical replica"},
	} {
		var fs findings
		fs.server(parseInfo(info))
		if got := kindsOf(fs); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", info, fs, want)
		}
	}
}

// Health finds what is wrong in a live Redis, the worst first.
func TestHealth(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b := newBench(t, s.URL())
		o := newBench(t, s.URL())
		o.name = b.name
		b.must(b.one(1, In(time.Hour)))
		fs, err := b.Health(ctx, b.name)
		b.must(err)
		if fs = slices.DeleteFunc(fs, func(f Finding) bool { return f.Channel == "" }); len(fs) > 0 {
			t.Errorf("of a healthy channel: %v", fs)
		}
		fs, err = newBench(t, s.URL()).HealthOf(ctx, []Overview{{Channel: "c", Suspect: 2}}) // before anything else
		b.must(err)
		if got := kindsOf(fs); !slices.Contains(got, "warning suspects") {
			t.Errorf("of an Overview at hand: %v", fs)
		}
		o.enqueue(0, 10)
		o.receive(1, func(context.Context, int) error { return Reject(errors.New("never")) })
		o.wait(EventRejected, 10, 5*time.Second)
		o.must(o.Close())
		raw := s.Do("ZRANGE", b.keys().Delay, 0, 0).([]any)[0]
		s.Do("ZADD", b.keys().Delay, 1000, raw)
		fs, err = b.Health(ctx, b.name)
		b.must(err)
		fs = slices.DeleteFunc(fs, func(f Finding) bool { return f.Channel == "" })
		if got := kindsOf(fs); !slices.Equal(got, []string{"critical overdue", "warning dying", "warning failing"}) ||
			fs[0].Severity != Critical {
			t.Errorf("%v", fs)
		}
	})
}

// What waited a while ago is told from what has just come, and a delayed message is as old as its due time.
func TestOverviewAges(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	k, now := b.keys(), time.Now()
	e := element.Element{Serial: element.NewSerialAt(now.Add(-24 * time.Hour)), Payload: []byte("1")}
	e.Detach()
	e.SetDue(now.Add(-time.Second))
	s.Do("LPUSH", k.Prepare, e.Encode())
	all, err := b.Overview(t.Context(), b.name)
	b.must(err)
	if o := all[0]; o.OldestAge < time.Second || o.OldestAge > time.Minute || o.waited {
		t.Errorf("%+v", o)
	}
	minute := now.Unix()/60 - 4
	record := []byte{byte(meter.Waiting), 7}
	chunk := append([]byte{byte(minute % 20), byte(len(record))}, record...)
	s.Do("HSET", k.Counts, fmt.Sprint("m", minute/20), chunk)
	if all, err = b.Overview(t.Context(), b.name); err != nil || !all[0].waited {
		t.Errorf("%+v, %v", all, err)
	}
}

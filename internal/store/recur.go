package store

import (
	"context"
	"fmt"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// The scripts of package recur.
var (
	RecurSet  = script("recur_set")
	RecurFire = script("ids", "recur_fire")
)

// The field of {C}.recur that changes with every write but a tick's.
const recurMark = ""

// millis is the reply of TIME in ms.
func millis(v any) (int64, error) {
	t, err := redis.Int64s(v, nil)
	if err != nil || len(t) < 2 {
		return 0, fmt.Errorf("the reply of TIME is %v: %w", v, err)
	}
	return t[0]*1000 + t[1]/1000, nil
}

// RecurRecord gives the record of a recurring message, "" where there is none, and the server's time in ms.
func RecurRecord(ctx context.Context, a Asker, k *Keys, name string) (now int64, record string, err error) {
	vs, err := askAll(ctx, a, k.Name, func(c *link.Call) {
		c.Add("TIME")
		c.Add("HGET", k.Recur, name)
	})
	if err != nil {
		return 0, "", err
	}
	record, _ = redis.String(vs[1], nil)
	now, err = millis(vs[0])
	return now, record, err
}

// RecurMark gives what changes with every write to a channel's timetable but a tick's, and the server's time in ms.
func RecurMark(ctx context.Context, a Asker, k *Keys) (now int64, mark string, err error) {
	return RecurRecord(ctx, a, k, recurMark)
}

// RecurRecords gives the records of some recurring messages, "" where there is none.
func RecurRecords(ctx context.Context, a Asker, k *Keys, names []string) ([]string, error) {
	vs, err := askAll(ctx, a, k.Name, func(c *link.Call) {
		for _, name := range names {
			c.Add("HGET", k.Recur, name)
		}
	})
	records := make([]string, len(vs))
	for i, v := range vs {
		records[i], _ = redis.String(v, nil)
	}
	return records, err
}

// RecurAll gives all records of a channel by name, RecurMark's mark, and the server's time in ms.
func RecurAll(ctx context.Context, a Asker, k *Keys) (now int64, mark string, records map[string]string, err error) {
	vs, err := askAll(ctx, a, k.Name, func(c *link.Call) {
		c.Add("TIME")
		c.Add("HGETALL", k.Recur)
	})
	if err != nil {
		return 0, "", nil, err
	}
	if now, err = millis(vs[0]); err == nil {
		records, err = redis.StringMap(vs[1], nil)
	}
	mark = records[recurMark]
	delete(records, recurMark)
	return now, mark, records, err
}

// RunRecurSet writes a record, or with "" removes it, if its head is still the one that was read; "" means that there
// was none. mark is new. A repeat finds another head: false then means that it may have been written.
func RunRecurSet(ctx context.Context, a Asker, k *Keys, name, head, record, mark string) (written bool, err error) {
	v, err := askOne(ctx, a, k.Name, func(c *link.Call) { c.AddScript(RecurSet, 1, k.Recur, name, head, record, mark) })
	n, err := redis.Int(v, err)
	return n == 1, err
}

// Firing is what ticks of a recurring message enqueue, and the head that its record has then.
type Firing struct {
	Name        string
	Old, Head   string // as read, and to be written
	From, Until int64  // ms of the server's clock between which it is time; 0: no bound
	ID          string // of the messages, or ""
	Expires     int64  // when they do, ms of the server's clock, or 0
	Elements    [][]byte
}

// FiringResult is what a Firing came to.
type FiringResult struct {
	Now  int64  // the server's time in ms
	N    int    // enqueued; fewer than there are where the id is taken; OtherHead or NotTheTime: nothing was done
	Head string // the head that is there in place of the one that was read
	Err  error
}

// Results of a Firing besides how many were enqueued.
const (
	OtherHead  = -1
	NotTheTime = -2
)

// RunRecurFire enqueues what some firings ask for, each at most once: a repeat finds the head that the first has
// written. twice: they were sent again.
func RunRecurFire(
	ctx context.Context,
	a Asker,
	k *Keys,
	firings ...Firing,
) (results []FiringResult, twice bool, err error) {
	replies, twice, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		for _, f := range firings {
			c.AddScript(
				RecurFire,
				4,
				k.Recur,
				k.Prepare,
				k.IDs,
				k.Running,
				f.Name,
				f.Old,
				f.Head,
				f.From,
				f.Until,
				f.ID,
				f.Expires,
			)
			c.AddElements(f.Elements...)
		}
	})
	if err != nil {
		return nil, twice, err
	}
	results = make([]FiringResult, len(replies))
	for i, rep := range replies {
		r := &results[i]
		vs, err := redis.Values(rep.Any(), rep.Err)
		if err == nil {
			_, err = redis.Scan(vs, &r.Now, &r.N, &r.Head)
		}
		r.Err = err
	}
	return results, twice, nil
}

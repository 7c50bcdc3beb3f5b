package store

import (
	"context"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// The scripts of package recur.
var (
	RecurSet  = script("recur_set")
	RecurFire = script("ids", "recur_fire")
)

// A record of {C}.recur is text of package recur's: a head, which is its first line and changes with every write, and a
// body. The field '' is no record but the mark, which changes with every write of a body.

// RecurTable is every record of a channel.
type RecurTable struct {
	Now     time.Time // by the server's clock
	Mark    string
	Records map[string]string // by name
}

// ReadRecurTable reads every record of a channel.
func ReadRecurTable(ctx context.Context, a Asker, k *Keys) (t RecurTable, err error) {
	replies, _, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		c.Add("TIME")
		c.Add("HGETALL", k.Recur)
	})
	if err != nil {
		return t, err
	}
	if t.Records, err = redis.StringMap(replies[1].Any(), nil); err != nil {
		return t, err
	}
	t.Now, t.Mark = ServerTime(replies[0].Any()), t.Records[""]
	delete(t.Records, "")
	return t, nil
}

// ReadRecurMark reads the mark, empty where the channel has no record, and the server's time.
func ReadRecurMark(ctx context.Context, a Asker, k *Keys) (now time.Time, mark string, err error) {
	return ReadRecur(ctx, a, k, "")
}

// ReadRecur reads one record, empty where there is none of that name, and the server's time.
func ReadRecur(ctx context.Context, a Asker, k *Keys, name string) (now time.Time, record string, err error) {
	replies, _, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		c.Add("TIME")
		c.Add("HGET", k.Recur, name)
	})
	if err != nil {
		return now, "", err
	}
	record, _ = redis.String(replies[1].Any(), nil)
	return ServerTime(replies[0].Any()), record, nil
}

// ReadRecurs reads some records, each empty where there is none of that name.
func ReadRecurs(ctx context.Context, a Asker, k *Keys, names []string) ([]string, error) {
	replies, _, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		for _, name := range names {
			c.Add("HGET", k.Recur, name)
		}
	})
	if err != nil {
		return nil, err
	}
	records := make([]string, len(names))
	for i, rep := range replies {
		records[i], _ = redis.String(rep.Any(), nil)
	}
	return records, nil
}

// WriteRecur writes a record, or removes it where record is empty, and gives the channel another mark. It writes only
// while the head is the one that was read, empty for no record; else written is false. A repeat finds the head that the
// first one wrote, and writes nothing. So after an Ask that sent twice, false may mean that it was written.
func WriteRecur(ctx context.Context, a Asker, k *Keys, name, head, record string) (written bool, err error) {
	mark := element.NewSerial().String()
	replies, _, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		c.AddScript(RecurSet, 1, k.Recur, name, head, record, mark)
	})
	if err != nil {
		return false, err
	}
	n, err := redis.Int(replies[0].Any(), nil)
	return n == 1, err
}

// RecurFiring enqueues messages of one record, and writes its next head in the same step.
type RecurFiring struct {
	Name        string
	Head        string    // as read: nothing happens unless it is still there
	Next        string    // the head to write
	From, Until time.Time // by the server's clock, nothing happens before and after; zero: no bound
	ID          string    // of the messages, or empty
	Expires     time.Time // when they expire; zero: never
	Elements    [][]byte  // may be none
}

// RecurFiringReply is the result of a RecurFiring. Unless it was executed, HeadChanged or NotTheTime says why.
type RecurFiringReply struct {
	Now         time.Time // by the server's clock
	Enqueued    int       // of the elements; the others were refused because their id is taken
	HeadChanged bool
	Head        string // where it changed: the one that is there, empty for no record
	NotTheTime  bool   // Now is not between From and Until
}

// FireRecur sends firings in one pipeline. A repeat of an executed firing changes nothing, and its reply has
// HeadChanged with its own Next as Head. twice: the firings were sent twice, and each reply is that of the second
// sending. With an error each of them may have been executed.
func FireRecur(ctx context.Context, a Asker, k *Keys, firings ...RecurFiring) (replies []RecurFiringReply, twice bool,
	err error) {
	raws, twice, err := a.Ask(ctx, k.Name, func(c *link.Call) {
		for _, f := range firings {
			c.AddScript(RecurFire, 4, k.Recur, k.Prepare, k.IDs, k.Running,
				f.Name, f.Head, f.Next, ms(f.From), ms(f.Until), f.ID, ms(f.Expires))
			c.AddElements(f.Elements...)
		}
	})
	if err != nil {
		return nil, twice, err
	}
	replies = make([]RecurFiringReply, len(raws))
	for i, raw := range raws {
		if replies[i], err = recurFiringReply(raw); err != nil {
			return nil, twice, err
		}
	}
	return replies, twice, nil
}

func recurFiringReply(rep link.Reply) (r RecurFiringReply, err error) {
	vs, err := redis.Values(rep.Any(), rep.Err)
	if err != nil {
		return r, err
	}
	var now int64
	var n int
	if _, err = redis.Scan(vs, &now, &n, &r.Head); err != nil {
		return r, fmt.Errorf("shunt: recur fire answered %v: %w", vs, err)
	}
	r.Now, r.Enqueued, r.HeadChanged, r.NotTheTime = time.UnixMilli(now), max(n, 0), n == -1, n == -2
	return r, nil
}

package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

func TestWhen(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	for name, c := range map[string]struct {
		due  Due
		mode Mode
		ms   int64
	}{
		"at once":   {Due{}, Now, 0},
		"in":        {Due{In: 1500 * time.Microsecond}, In, 2},
		"in long":   {Due{In: 1 << 62}, In, MaxWait.Milliseconds()},
		"at":        {Due{At: now.Add(time.Microsecond)}, At, now.UnixMilli() + 1},
		"at past":   {Due{At: time.Unix(-1e9, 0)}, At, 1},
		"at far":    {Due{At: now.AddDate(190, 0, 0)}, At, now.Add(MaxWait).UnixMilli()},
		"at a tick": {Due{At: now}, At, now.UnixMilli()},
	} {
		if mode, ms := c.due.When(now); mode != c.mode || ms != c.ms {
			t.Errorf("%s: %s %d, want %s %d", name, mode, ms, c.mode, c.ms)
		}
	}
}

// Messages of Enter and of Enqueue have the same records and receipts; a refused one gets the record that has its id.
func TestEnterAndEnqueue(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		send := func(enter bool, forget []Receipt, es ...*element.Element) (refused []Refusal, stale bool) {
			f.Helper()
			raws := make([][]byte, len(es))
			for i, e := range es {
				raws[i] = e.Encode()
			}
			rep := f.run(func(c *link.Call) {
				if enter {
					AddEnter(c, f.k, forget, es, raws)
				} else {
					AddEnqueue(c, f.k, Now, 0, forget, es, raws)
				}
			})
			var err error
			if enter {
				refused, stale, err = EnterReply(rep, len(es))
			} else {
				_, refused, err = EnqueueReply(rep, len(es))
			}
			f.must(err)
			return refused, stale
		}
		for i, enter := range []bool{true, false} {
			ids := []string{string(rune('a' + 2*i)), string(rune('b' + 2*i))}
			first, second := named(ids[0]), named(ids[1])
			if refused, _ := send(enter, nil, first); refused[0] != nil {
				f.Fatalf("refused: %q", refused)
			}
			if !Enqueued(ctx, f, f.k, []*element.Element{first}) {
				f.Fatal("the receipt does not say that it was enqueued")
			}
			again := named(ids[0])
			refused, stale := send(enter, []Receipt{ReceiptOf(first)}, again, second)
			if len(refused) != 2 || refused[0] == nil || refused[1] != nil || stale {
				f.Fatalf("refused: %q, stale %v", refused, stale)
			}
			if r, ok := element.ParseRecord(refused[0]); !ok || r.Serial != first.Serial || r.State != 'p' {
				f.Fatalf("refused for %q", refused[0])
			}
			if Enqueued(ctx, f, f.k, []*element.Element{first}) || // its receipt is needed no more
				Enqueued(ctx, f, f.k, []*element.Element{again, second}) {
				f.Fatal("the receipts say that all were enqueued")
			}
			f.run(func(c *link.Call) { AddDropReceipts(c, f.k, ReceiptOf(again), RefusalOf(again)) })
			if n := f.length("EXISTS", f.k.Receipts); n != 0 {
				f.Fatal("receipts are left")
			}
		}
		f.lengths(4, 0, 0, 0)
	})
}

// What expires does so as long after its enqueue as it says, by its element and by its record: one alone, and among
// others that do or do not.
func TestEnterExpiring(t *testing.T) {
	each(t, func(f *fixture) {
		lives := []int64{0, 1, 86_400_000, 100 * 365 * 86_400_000, 255}
		for _, from := range []int{0, 1, 2, 3, 4} { // from 4 it is one alone
			var es []*element.Element
			var raws [][]byte
			for i, ms := range lives[from:] {
				e := named(fmt.Sprint(from, ".", i), func(x *element.Extra) { x.Expires = ms })
				es, raws = append(es, e), append(raws, e.Encode())
			}
			before := f.now().UnixMilli()
			refused, stale, err := EnterReply(f.run(func(c *link.Call) { AddEnter(c, f.k, nil, es, raws) }), len(es))
			f.must(err)
			after := f.now().UnixMilli()
			for i, e := range es {
				r, _ := element.ParseRecord(f.status(e.ID()).Record)
				raw, _ := redis.Bytes(f.s.Do("RPOP", f.k.Prepare), nil)
				got, err := element.Decode(raw)
				f.must(err)
				ms := lives[from+i]
				if refused[i] != nil || stale || r.Expires != got.Extra.Expires ||
					string(got.Payload) != string(e.Payload) || ms == 0 && r.Expires != 0 ||
					ms > 0 && (r.Expires < before+ms || r.Expires > after+ms) {
					f.Errorf("%s: record %+v, element %+v, between %d and %d", e.ID(), r, got.Extra, before, after)
				}
			}
		}
	})
}

// A repeat of Enqueue adds nothing, and one of Enter is an error that nobody waits for.
func TestEnqueueTwice(t *testing.T) {
	each(t, func(f *fixture) {
		e := named("a", func(x *element.Extra) { x.Expires = time.Hour.Milliseconds() })
		f.enqueue(In, 60_000, e)
		f.enqueue(In, 60_000, e)
		f.lengths(0, 1, 0, 0)
		es, raws := []*element.Element{e}, [][]byte{e.Encode()}
		if _, _, err := EnterReply(f.run(func(c *link.Call) { AddEnter(c, f.k, nil, es, raws) }), 1); err == nil {
			f.Fatal("Enter, sent again, says that it enqueued")
		}
		// An id that may be free by now is for Enqueue to judge.
		now := f.now().UnixMilli()
		for record, want := range map[string]bool{
			fmt.Sprintf("p 0 0 %d \n", now+60_000): false, fmt.Sprintf("p 0 0 %d \n", now-1): true,
			fmt.Sprintf("u 1 %d 0 \n", now+60_000): false, fmt.Sprintf("u 1 %d 0 \n", now-1): true, "x": true,
		} {
			f.s.Do("HSET", f.k.IDs, "c", string(e.Serial[:])+record)
			for _, es := range [][]*element.Element{{named("c")}, {named("d"), named("c"), named("e")}} {
				raws := make([][]byte, len(es))
				for i, e := range es {
					raws[i] = e.Encode()
				}
				rep := f.run(func(c *link.Call) { AddEnter(c, f.k, nil, es, raws) })
				refused, stale, err := EnterReply(rep, len(es))
				if f.must(err); stale != want || refused[len(es)/2] == nil {
					f.Errorf("%q: stale %v, refused %q", record, stale, refused)
				}
				f.s.Do("HDEL", f.k.IDs, "d", "e")
			}
		}
		short := named("b", func(x *element.Extra) { x.Expires = 1 })
		_, _, err := EnqueueReply(f.run(func(c *link.Call) {
			AddEnqueue(c, f.k, In, 2, nil, []*element.Element{short}, [][]byte{short.Encode()})
		}), 1)
		if link.Code(err) != ExpiresCode {
			f.Fatalf("it expires before it is due, and the error is %v", err)
		}
	})
}

// What is sent again and cannot be added is looked at anew by the next sending, as if this one had not been.
func TestEnqueueTwiceInVain(t *testing.T) {
	each(t, func(f *fixture) {
		f.enqueue(Now, 0, named("b"))
		es := []*element.Element{named("a"), named("b")}
		raws := [][]byte{es[0].Encode(), es[1].Encode()}
		send := func() (refused []Refusal, err error) {
			rep := f.run(func(c *link.Call) { AddEnqueue(c, f.k, In, 60_000, nil, es, raws) })
			_, refused, err = EnqueueReply(rep, len(es))
			return refused, err
		}
		if refused, err := send(); err != nil || refused[0] != nil || refused[1] == nil {
			f.Fatalf("%q, %v", refused, err)
		}
		f.s.Do("HDEL", f.k.IDs, "b")
		f.s.Do("RENAME", f.k.Delay, f.k.Dead)
		f.s.Do("SET", f.k.Delay, "foreign")
		if _, err := send(); link.Code(err) != "WRONGTYPE" {
			f.Error(err)
		}
		noted := f.s.Do("SISMEMBER", f.k.Receipts, []byte(RefusalOf(es[1])))
		if noted != int64(1) || f.s.Do("EXISTS", f.k.Running) != int64(0) || f.state("b") != 0 {
			f.Errorf("b is noted: %v", noted)
		}
		f.s.Do("RENAME", f.k.Dead, f.k.Delay)
		if refused, err := send(); err != nil || refused[0] != nil || refused[1] != nil || f.state("b") != 'd' {
			f.Errorf("%q, %v", refused, err)
		}
		f.lengths(1, 2, 0, 0)
	})
}

// Elements without an id go to delay once, and are over where their time has come since.
func TestLater(t *testing.T) {
	each(t, func(f *fixture) {
		raw := named("").Encode()
		add := func(mode Mode, ms int64) (time.Time, bool) {
			due, over, err := LaterReply(f.run(func(c *link.Call) { AddLater(c, f.k, mode, ms, raw) }))
			f.must(err)
			return due, over
		}
		due, over := add(In, 60_000)
		if over || time.Until(due).Abs() > 2*time.Minute {
			f.Fatalf("due %v, over %v", due, over)
		}
		if again, over := add(Again, due.UnixMilli()); over || !again.Equal(due) {
			f.Fatalf("again: due %v, over %v", again, over)
		}
		if _, over := add(Again, 1); !over {
			f.Fatal("what was due is added again")
		}
		f.lengths(0, 1, 0, 0)
		f.run(func(c *link.Call) { AddChannel(c, f.k.Name) })
		all, err := Channels(context.Background(), f)
		if f.must(err); !slices.Contains(all, f.k.Name) {
			f.Fatalf("the channels are %q", all)
		}
	})
}

func TestEnqueueReplyErrors(t *testing.T) {
	t.Parallel()
	if _, _, err := EnqueueReply(link.Reply{Value: []any{}}, 1); err == nil {
		t.Error("an empty reply is no error")
	}
	if _, _, err := EnterReply(link.Reply{Value: []any{int64(1)}}, 2); err == nil {
		t.Error("a reply for one of two is no error")
	}
}

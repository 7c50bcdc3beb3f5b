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
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// buries puts n dead letters into the bench's channel, of which each is made by of. Several died in each ms.
func (b *bench) buries(s redistest.Backend, n, inMS int, of func(i int, e *element.Element)) {
	b.t.Helper()
	k := store.KeysOf(b.name)
	for i := range n {
		e := element.Element{Serial: element.NewSerial(), Payload: fmt.Append(nil, i), Attempts: 1}
		if of != nil {
			of(i, &e)
		}
		s.Do("ZADD", k.Dead, 1000+i/inMS, e.Encode())
	}
}

// waits are the numbers that wait, the next one first.
func (b *bench) waits() (is []int) {
	b.t.Helper()
	es, err := b.List(context.Background(), b.name, StatePrepare, 0, 0)
	b.must(err)
	for _, e := range es {
		var i int
		b.must(json.Unmarshal(e.Payload, &i))
		is = append(is, i)
	}
	return is
}

// Each field of a Filter leaves out what it does not fit.
func TestFilter(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		for name, c := range map[string]struct {
			Filter
			want []int
		}{
			"all":      {Filter{}, []int{0, 1, 2, 3}},
			"failure":  {Filter{Failure: "time"}, []int{1, 3}},
			"type":     {Filter{Type: "Welcome"}, []int{2}},
			"id":       {Filter{IDPrefix: "order-"}, []int{3}},
			"headers":  {Filter{Headers: map[string]string{"k": "v"}}, []int{0}},
			"header":   {Filter{Headers: map[string]string{"k": ""}}, nil},
			"attempts": {Filter{MinAttempts: 2}, []int{1}},
			"since":    {Filter{Since: time.UnixMilli(1002)}, []int{2, 3}},
			"until":    {Filter{Until: time.UnixMilli(1001)}, []int{0, 1}},
			"match":    {Filter{Match: func(e Entry) bool { return string(e.Payload) == "2" }}, []int{2}},
			"several":  {Filter{Failure: "time", Since: time.UnixMilli(1002)}, []int{3}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, s.URL())
				b.buries(s, 4, 1, func(i int, e *element.Element) {
					switch i {
					case 0:
						_ = e.SetHeader("k", "v")
					case 1:
						e.Attempts = 2
						e.SetFailure("no time")
					case 2:
						e.SetType("Welcome")
					case 3:
						e.Extra = &element.Extra{ID: "order-3"}
						e.SetFailure("time is over")
					}
				})
				n, err := b.RetryAllDead(t.Context(), b.name, c.Filter)
				if err != nil || n.Changed != len(c.want) || n.Next != "" {
					t.Errorf("%+v, %v", n, err)
				}
				if (name == "since" || name == "until") && n.Looked != len(c.want) { // their times are in order
					t.Errorf("%d were looked at, of %d that are in time", n.Looked, len(c.want))
				}
				if got := b.waits(); !slices.Equal(got, c.want) {
					t.Errorf("%v wait, want %v", got, c.want)
				}
			})
		}
	})
}

// A bulk call that ends early goes on where it was: all that fit are met once, although many died in one ms and others
// stay there.
func TestBulkGoesOn(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		for _, inMS := range []int{1, 7, 1000} {
			t.Run(fmt.Sprint(inMS), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, s.URL())
				const all = 1000
				b.buries(s, all, inMS, nil)
				f := Filter{Limit: 90, Match: func(e Entry) bool { return strings.HasSuffix(string(e.Payload), "3") }}
				sum, calls := BulkResult{}, 0
				for ; ; calls++ {
					n, err := b.RetryAllDead(t.Context(), b.name, f)
					b.must(err)
					sum.Changed, sum.Looked = sum.Changed+n.Changed, sum.Looked+n.Looked
					if f.From = n.Next; n.Next == "" {
						break
					}
				}
				if sum.Changed != all/10 || calls != 1 || sum.Looked != all {
					t.Errorf("%+v after %d calls", sum, calls)
				}
				got := b.waits()
				slices.Sort(got)
				if len(slices.Compact(got)) != all/10 {
					t.Errorf("%d wait", len(got))
				}
				n, err := b.DeleteAllDead(t.Context(), b.name, Filter{})
				if err != nil || n.Changed != all-all/10 || n.Looked != n.Changed {
					t.Errorf("%+v, %v", n, err)
				}
			})
		}
	})
}

// A bulk call passes over no message where another operator deletes some that it has looked at, all of one ms.
func TestBulkBesideAnotherOperator(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		const all = 300
		b.buries(s, all, all, nil)
		var seen []Entry
		n, err := b.RetryAllDead(t.Context(), b.name, Filter{Match: func(e Entry) bool {
			if seen = append(seen, e); len(seen)%100 == 0 {
				if n, err := b.DeleteDead(t.Context(), b.name, seen[len(seen)-70:]...); n != 70 || err != nil {
					t.Error(n, err)
				}
			}
			return false
		}})
		if err != nil || len(seen) != all || n != (BulkResult{Looked: all}) {
			t.Errorf("%d of %d were looked at: %+v, %v", len(seen), all, n, err)
		}
	})
}

// A bulk call that fails says how far it came.
func TestBulkFails(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	b.buries(s, 300, 1, nil)
	p.On(redistest.ByScript(store.Revive)(b.name), 2, redistest.ReplyError("ERR no"))
	n, err := b.RetryAllDead(t.Context(), b.name, Filter{})
	if err == nil || n.Changed != 100 || n.Next == "" {
		t.Fatalf("%+v, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.RetryAllDead(ctx, b.name, Filter{From: n.Next}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	n, err = b.RetryAllDead(t.Context(), b.name, Filter{From: n.Next})
	if err != nil || n.Changed != 200 {
		t.Errorf("%+v, %v", n, err)
	}
	for _, f := range []Filter{{Limit: -1}, {MinAttempts: -1}, {From: "x"}, {From: "1"}, {From: "1_-1_"}} {
		if _, err := b.RetryAllDead(t.Context(), b.name, f); err == nil {
			t.Errorf("%+v has no error", f)
		}
	}
}

// Those whose ID is another's stay dead, a whole page of one ms too, and hold up no other.
func TestRetryAllDeadBesideTakenIDs(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	const taken = 150
	b.buries(s, taken+50, 1000, func(i int, e *element.Element) {
		if i < taken {
			e.Extra = &element.Extra{ID: fmt.Sprint("id", i)}
		}
	})
	for i := range taken {
		b.must(b.one(i, ID(fmt.Sprint("id", i)), In(time.Hour)))
	}
	n, err := b.RetryAllDead(t.Context(), b.name, Filter{})
	if err != nil || n.Changed != 50 || n.Refused != taken || n.Looked != taken+50 {
		t.Errorf("%+v, %v", n, err)
	}
}

// PromoteAll runs all retries now, and leaves what was enqueued for later.
func TestPromoteAll(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return time.Hour } })
		seen := newTally()
		stop := b.receive(1, func(_ context.Context, i int) error {
			if seen.add(i) == 1 {
				return errOops
			}
			return nil
		})
		b.enqueue(0, 2)
		b.must(b.one(2, ID("a")))
		b.must(b.one(3, In(time.Hour)))
		b.wait(EventRetried, 3, 5*time.Second)
		n, err := b.PromoteAll(t.Context(), b.name, Filter{MinAttempts: 1})
		if err != nil || n.Changed != 3 {
			t.Errorf("%+v, %v", n, err)
		}
		b.wait(EventAcked, 3, 5*time.Second)
		b.must(stop(context.Background()))
		b.noID("a")
		b.must(b.one(4, ID("b"), In(time.Hour)))
		n, err = b.PromoteAll(t.Context(), b.name, Filter{})
		if err != nil || n.Changed != 2 || b.status("b").State != StatePrepare {
			t.Errorf("%+v, %v; %+v", n, err, b.status("b"))
		}
	})
}

// CancelAll ends what fits in each state, with and without an ID, and twins one at a time; the rest stays as it was.
func TestCancelAll(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		for _, state := range []State{StatePrepare, StateSuspect, StateDelay} {
			t.Run(string(state), func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				b := newBench(t, s.URL())
				k := b.keys()
				const n = 400
				for i := range n {
					opts := []Option{Header("third", fmt.Sprint(i%3 == 0))}
					if state == StateDelay {
						opts = append(opts, In(time.Hour))
					}
					if i%2 == 0 {
						opts = append(opts, ID(fmt.Sprint("order-", i)))
					}
					b.must(b.one(i, opts...))
				}
				if state == StateSuspect {
					s.Do("RENAME", k.Prepare, k.Suspect)
				}
				f := Filter{Headers: map[string]string{"third": "true"}, Limit: 100}
				first, err := b.CancelAll(ctx, b.name, state, f)
				if err != nil || first.Changed != 100 || first.Next == "" {
					t.Fatalf("%+v, %v", first, err)
				}
				f.Limit, f.From = 0, first.Next
				rest, err := b.CancelAll(ctx, b.name, state, f)
				if err != nil || rest.Changed != 34 || rest.Refused != 0 || rest.Next != "" ||
					first.Looked+rest.Looked < n {
					t.Errorf("%+v and %+v, %v", first, rest, err)
				}
				es, err := b.List(ctx, b.name, state, 0, 0)
				b.must(err)
				for _, e := range es {
					if e.Headers["third"] == "true" {
						t.Errorf("%s is there still", e.Payload)
					}
				}
				if want := n - 134; len(es) != want {
					t.Errorf("%d are left, want %d", len(es), want)
				}
				_, err = b.Status(ctx, ByID(b.name, "order-6"))
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("what was cancelled is %v", err)
				}
			})
		}
	})
}

// What receivers take and producers add while CancelAll goes through a list makes it miss none that stays.
func TestCancelAllUnderWay(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := t.Context()
		b := newBench(t, s.URL())
		k := b.keys()
		const n = 1000
		for i := range n {
			s.Do("LPUSH", k.Prepare, fmt.Sprint(i))
		}
		looked := 0
		f := Filter{Match: func(e Entry) bool {
			if looked++; looked%3 == 0 { // another receiver and another producer are as fast
				s.Do("RPOP", k.Prepare)
				s.Do("LPUSH", k.Prepare, fmt.Sprint("new ", looked))
			}
			return len(e.Payload) > 0 && e.Payload[len(e.Payload)-1] == '7'
		}}
		res, err := b.CancelAll(ctx, b.name, StatePrepare, f)
		b.must(err)
		es, err := b.List(ctx, b.name, StatePrepare, 0, 0)
		b.must(err)
		for _, e := range es {
			if p := string(e.Payload); strings.HasSuffix(p, "7") && !strings.HasPrefix(p, "new") {
				t.Errorf("%s is there still: %+v", p, res)
			}
		}
		if len(es) < n/2 {
			t.Errorf("only %d are left", len(es))
		}
	})
}

// What does not wait is refused, and so is what is no place.
func TestCancelAllRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	for want, call := range map[string]func() (BulkResult, error){
		"does not wait": func() (BulkResult, error) { return b.CancelAll(t.Context(), b.name, StateDead, Filter{}) },
		"want 0 or more": func() (BulkResult, error) {
			return b.CancelAll(t.Context(), b.name, StateDelay, Filter{Limit: -1})
		},
		"no BulkResult.Next": func() (BulkResult, error) {
			return b.CancelAll(t.Context(), b.name, StateDelay, Filter{From: "1_x_"})
		},
		"channel": func() (BulkResult, error) { return b.CancelAll(t.Context(), "", StateDelay, Filter{}) },
	} {
		if _, err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Where the reply to a removal of bare payloads is lost, what was not done is told, and none is passed over.
func TestCancelAllLostReply(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p)
	b.enqueue(0, 2000)
	lost := p.On(redistest.Command("LREM", b.keys().Prepare), 150, redistest.CutAfter)
	short := func(e Entry) bool { return len(e.Payload) <= 3 }
	all, err := o.CancelAll(t.Context(), b.name, StatePrepare, Filter{Match: short})
	if err != nil || all.Next != "" || all.Changed+all.Refused != 1000 || lost.Struck() != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	es, err := b.List(t.Context(), b.name, StatePrepare, 0, 0)
	b.must(err)
	if left := len(slices.DeleteFunc(es, func(e Entry) bool { return !short(e) })); left > 0 {
		t.Errorf("%d that fit lie there still", left)
	}
}

// What comes meanwhile costs no message its turn, and does not keep CancelAll busy for ever.
func TestCancelAllWhileEnqueued(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	const n = 1000
	b.enqueue(0, n)
	i := n
	each := func(e Entry) bool {
		i++
		s.Do("LPUSH", b.keys().Prepare, fmt.Sprint("0", i))
		return e.Payload[0] != '0' || string(e.Payload) == "0"
	}
	all, err := b.CancelAll(t.Context(), b.name, StatePrepare, Filter{Match: each})
	b.must(err)
	if all.Changed < n && all.Next == "" || all.Looked > 3*n+mostLooked {
		t.Errorf("%+v", all)
	}
}

// A time fits no message that has none.
func TestFilterWithoutTime(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	s.Do("LPUSH", b.keys().Prepare, "just came")
	for _, f := range []Filter{{Until: time.Now().Add(-time.Hour)}, {Since: time.Now().Add(-time.Hour)}} {
		if all, err := b.CancelAll(t.Context(), b.name, StatePrepare, f); err != nil || all.Changed != 0 {
			t.Errorf("%+v, %v", all, err)
		}
	}
}

package shunt

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// pages are all pages of a state, one after another; between is called before each but the first.
func (b *bench) pages(o BrowseOptions, between func()) (all []Entry) {
	b.t.Helper()
	for n := 0; ; n++ {
		page, err := b.Browse(context.Background(), o)
		b.must(err)
		all = append(all, page.Entries...)
		if o.From = page.Next; page.Next == "" || n > 10_000 {
			return all
		}
		if between != nil {
			between()
		}
	}
}

// Pages show what List shows, in both orders, whatever their size.
func TestBrowse(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		b := newBench(t, s.URL())
		const n = 57
		for i := range n {
			b.must(b.one(i))
			b.must(b.one(i, In(time.Duration(1+i/10)*time.Hour), ID(fmt.Sprint("id", i))))
			s.Do("ZADD", b.keys().Dead, 1000+i/5, fmt.Sprint("dead", i))
			s.Do("LPUSH", b.keys().Suspect, fmt.Sprint("suspect", i))
		}
		_, err := b.Cancel(context.Background(), ByID(b.name, "id3"))
		b.must(err)
		for _, state := range States {
			want, err := b.List(context.Background(), b.name, state, 0, 0)
			b.must(err)
			for _, limit := range []int{1, 7, 100} {
				for _, latest := range []bool{false, true} {
					got := b.pages(
						BrowseOptions{Channel: b.name, State: state, Limit: limit, Latest: latest, Payload: -1},
						nil,
					)
					if len(got) != len(want) {
						t.Errorf(
							"%s by %d, latest %v: %d messages, want %d",
							state,
							limit,
							latest,
							len(got),
							len(want),
						)
						continue
					}
					for i, e := range got {
						w := want[i]
						if latest {
							w = want[len(want)-1-i]
						}
						if e.Ref() != w.Ref() || string(e.Payload) != string(w.Payload) ||
							e.PayloadSize != len(w.Payload) {
							t.Errorf("%s by %d, latest %v: %+v, want %+v", state, limit, latest, e, w)
							break
						}
					}
				}
			}
		}
	})
}

// What is in hand is shown a page at a time: a page is that part of the whole, wherever workers and leases begin.
func TestPagesInHand(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		b := newBench(t, s.URL())
		for i := range 26 {
			b.must(b.one(i))
		}
		for _, n := range []int{3, 1, 2, 20} {
			b.pull(n, PullOptions{Max: n, Lease: time.Hour})
		}
		for i, each := range [][]int{{2, 0, 1}, {0}, {3, 1}} {
			r := store.NewIncarnation(len(each), time.Hour)
			s.Do("ZADD", b.keys().Receivers, time.Now().Add(time.Hour).UnixMilli(), r.Name)
			for worker, n := range each {
				for j := range n {
					s.Do("LPUSH", b.keys().Doing(r, worker), fmt.Sprint("held", i, worker, j))
				}
			}
		}
		texts := func(es []Entry) (all []string) {
			for _, e := range es {
				all = append(all, fmt.Sprint(string(e.Payload), e.Receiver, e.Worker, e.LeaseEndsAt))
			}
			return all
		}
		for state, n := range map[State]int{StateDoing: 7, StateLeased: 26} {
			whole, err := b.List(context.Background(), b.name, state, 0, 0)
			if err != nil || len(whole) != n {
				t.Fatalf("%s: %d, want %d; %v", state, len(whole), n, err)
			}
			for offset := range n + 2 {
				for limit := range n + 2 {
					part := whole[min(offset, n):]
					if limit > 0 {
						part = part[:min(limit, len(part))]
					}
					es, err := b.List(context.Background(), b.name, state, offset, limit)
					if b.must(err); !slices.Equal(texts(es), texts(part)) {
						t.Errorf("%s: %d after %d: %q, want %q", state, limit, offset, texts(es), texts(part))
					}
				}
			}
			for limit := 1; limit < n+2; limit++ {
				es := b.pages(BrowseOptions{Channel: b.name, State: state, Limit: limit, Payload: -1}, nil)
				if !slices.Equal(texts(es), texts(whole)) {
					t.Errorf("%s: pages of %d: %q, want %q", state, limit, texts(es), texts(whole))
				}
			}
		}
	})
}

// What is cancelled while somebody has it is shown as long as that goes on.
func TestCancelledInHand(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	b.must(b.one(1, ID("a")))
	b.pull(1, PullOptions{Lease: time.Hour})
	_, err := b.Cancel(context.Background(), ByID(b.name, "a"))
	b.must(err)
	page, err := b.Browse(context.Background(), BrowseOptions{Channel: b.name, State: StateLeased})
	if b.must(err); len(page.Entries) != 1 || page.Entries[0].ID != "a" {
		t.Errorf("%+v is leased, want a", page.Entries)
	}
}

// However many large messages are in hand, a page ends where enough was shown, or read.
func TestLargePagesInHand(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	const n, size = 200, 100 << 10
	for range n {
		b.must(b.Enqueue(context.Background(), Raw(b.name, make([]byte, size))))
	}
	for left := n; left > 0; {
		ms, err := b.Pull(context.Background(), PullOptions{Channels: []string{b.name}, Max: left, Lease: time.Hour})
		b.must(err)
		left -= len(ms)
	}
	for payload, least := range map[int]int{-1: mostShown/size + 1, 0: mostRead / size} {
		most := least
		if payload == 0 { // a step ends with a lease
			most += 16
		}
		o := BrowseOptions{Channel: b.name, State: StateLeased, Payload: payload, Limit: n}
		page, err := b.Browse(context.Background(), o)
		if b.must(err); page.Looked < least || page.Looked > most || len(page.Entries) != page.Looked ||
			page.Next != strconv.Itoa(page.Looked) {
			t.Errorf("%d of %d looked at, next %q: want %d to %d", len(page.Entries), page.Looked, page.Next, least,
				most)
		}
		seen := make(map[string]bool)
		for _, e := range b.pages(o, nil) {
			if seen[e.Serial] = true; e.PayloadSize != size || payload == 0 && len(e.Payload) > 0 {
				t.Fatalf("%d bytes, of which %d are shown", e.PayloadSize, len(e.Payload))
			}
		}
		if len(seen) != n {
			t.Errorf("%d were shown, want %d", len(seen), n)
		}
	}
}

// What stays is shown once, and what is shown can be acted on, while others are taken and enqueued between the pages.
func TestBrowseWhileItMoves(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, latest := range []bool{false, true} {
		for _, state := range []State{StatePrepare, StateDelay} {
			t.Run(fmt.Sprint(state, latest), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, s.URL())
				const n = 400
				next := 0
				enqueue := func() {
					if next++; state == StatePrepare {
						b.must(b.one(next))
					} else {
						b.must(b.one(next, In(time.Duration(next)*time.Hour)))
					}
				}
				for range n {
					enqueue()
				}
				seen, left := make(map[string]int), n/2
				from := ""
				for {
					page, err := b.Browse(context.Background(), BrowseOptions{Channel: b.name, State: state, Limit: 20,
						Latest: latest, Payload: -1, From: from})
					b.must(err)
					for _, e := range page.Entries {
						seen[string(e.Payload)]++
					}
					if from = page.Next; from == "" {
						break
					}
					for range rand.IntN(10) {
						enqueue()
					}
					for range min(left, rand.IntN(10)) {
						left--
						es, err := b.List(context.Background(), b.name, state, 0, 1)
						b.must(err)
						e := es[0]
						if state == StateDelay { // there whatever leaves moves no other
							es, err = b.List(context.Background(), b.name, state, 0, 0)
							b.must(err)
							e = es[rand.IntN(len(es))]
						}
						if state == StateDelay || !latest || seen[string(e.Payload)] == 0 { // what was shown last stays
							b.must(b.Delete(context.Background(), e.Ref()))
						}
					}
				}
				es, err := b.List(context.Background(), b.name, state, 0, 0)
				b.must(err)
				for _, e := range es {
					i, err := strconv.Atoi(string(e.Payload))
					b.must(err)
					if times := seen[string(e.Payload)]; times > 1 || times == 0 && i <= n {
						t.Errorf("%d was shown %d times", i, times)
					}
				}
			})
		}
	}
}

// Of many with one score each is shown once, although what was shown has left before the next page.
func TestBrowseEqualScores(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		for _, latest := range []bool{false, true} {
			b := newBench(t, s.URL())
			at := time.Now().Add(time.Hour)
			const n = 60
			for i := range n {
				b.must(b.one(i, At(at)))
				foreign := fmt.Sprint("foreign, with one beginning for all of them: ", i)
				s.Do("ZADD", b.keys().Delay, at.UnixMilli(), foreign)
			}
			s.Do("ZADD", b.keys().Delay, "+inf", "last", -1e300, "first", 1.5, "between", 1.25, "before", 1, "")
			var last []Entry
			seen := 0
			o := BrowseOptions{Channel: b.name, State: StateDelay, Limit: 7, Payload: -1, Latest: latest}
			for {
				for _, e := range last[:len(last)/2] {
					b.must(b.Delete(context.Background(), e.Ref()))
				}
				page, err := b.Browse(context.Background(), o)
				b.must(err)
				seen, last = seen+len(page.Entries), page.Entries
				if o.From = page.Next; page.Next == "" {
					break
				}
			}
			// Of foreign ones that begin alike some may be missed where others of them have left.
			if seen > 2*n+5 || seen < 2*n+5-n/2 {
				t.Errorf("latest %v: %d were shown of %d", latest, seen, 2*n+5)
			}
		}
	})
}

// A page that lies where everything was taken meanwhile goes back, and misses nothing.
func TestBrowseGoesBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, latest := range []bool{false, true} {
		b := newBench(t, redistest.Shared(t).URL())
		b.enqueue(0, 1000)
		o := BrowseOptions{Channel: b.name, State: StatePrepare, Limit: 100, Payload: -1, Latest: latest}
		page, err := b.Browse(ctx, o)
		b.must(err)
		if latest {
			b.enqueue(1000, 2000)
		} else {
			for range 8 {
				b.pull(100, PullOptions{Max: 100, Lease: time.Minute})
			}
		}
		o.From = page.Next
		seen := make(map[string]bool)
		for _, e := range append(page.Entries, b.pages(o, nil)...) {
			seen[string(e.Payload)] = true
		}
		es, err := b.List(ctx, b.name, StatePrepare, 0, 0)
		b.must(err)
		for _, e := range es {
			i, err := strconv.Atoi(string(e.Payload))
			if b.must(err); i < 1000 && !seen[string(e.Payload)] {
				t.Fatalf("latest %v: %d was missed", latest, i)
			}
		}
	}
}

// Of large payloads a part is shown, and the message is found by what was shown of it.
func TestBrowseCuts(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b := newBench(t, s.URL())
		large := strings.Repeat("x", 100_000)
		b.must(b.Enqueue(ctx, Raw(b.name, []byte(large)), ID("a"), Header("k", "v")))
		s.Do("LPUSH", b.keys().Prepare, "bare"+large)
		s.Do("LPUSH", b.keys().Prepare, "\xC1\x00bare"+large)
		for _, cut := range []int{0, 10} {
			es := b.pages(BrowseOptions{Channel: b.name, State: StatePrepare, Payload: cut}, nil)
			if len(es) != 3 {
				t.Fatalf("%d messages", len(es))
			}
			for i, want := range []string{large, "bare" + large, "bare" + large} {
				e := es[i]
				whole, err := b.Peek(ctx, e.Ref())
				if err != nil || string(whole.Payload) != want || string(e.Payload) != want[:cut] ||
					e.PayloadSize != len(want) {
					t.Errorf(
						"%d: %d of %d bytes are shown as %q; found are %d: %v",
						i,
						len(e.Payload),
						e.PayloadSize,
						e.Payload,
						len(whole.Payload),
						err,
					)
				}
			}
			if es[0].ID != "a" || es[0].Headers["k"] != "v" {
				t.Errorf("%+v", es[0])
			}
		}
	})
}

// Bad input gets an error that names it.
func TestBrowseRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	for name, o := range map[string]BrowseOptions{
		"Limit":   {Channel: b.name, State: StateDead, Limit: 1001},
		"state":   {Channel: b.name, State: "nowhere"},
		"From":    {Channel: b.name, State: StatePrepare, From: "x"},
		"From ":   {Channel: b.name, State: StateDead, From: "x+y"},
		"From  ":  {Channel: b.name, State: StateDone, From: "-1"},
		"channel": {State: StateDead},
	} {
		if _, err := b.Browse(context.Background(), o); err == nil ||
			!strings.Contains(err.Error(), strings.TrimSpace(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Bare payloads of more than 256 KB are paged through, too, and a part of one never stands for another message.
func TestBrowseLargeBare(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := t.Context()
		b := newBench(t, s.URL())
		k, large := b.keys(), strings.Repeat("x", 300<<10)
		for i := range 6 {
			s.Do("LPUSH", k.Prepare, fmt.Sprint("hello", i, large))
		}
		s.Do("LPUSH", k.Prepare, "hello")
		for _, payload := range []int{5, -1} {
			o := BrowseOptions{Channel: b.name, State: StatePrepare, Payload: payload}
			shown := 0
			for range 10 {
				page, err := b.Browse(ctx, o)
				b.must(err)
				shown += len(page.Entries)
				if r := page.Entries[0].Ref(); payload == 5 && page.Entries[0].PayloadSize > 5 &&
					(r.Serial != "" || b.Delete(ctx, r) == nil) {
					t.Errorf("a part is called %v", r)
				}
				if o.From = page.Next; page.Next == "" {
					break
				}
			}
			if shown != 7 {
				t.Errorf("%d were shown", shown)
			}
		}
		old := func(e Entry) bool { return len(e.Payload) > 5 && e.Payload[5] < '3' }
		all, err := b.CancelAll(ctx, b.name, StatePrepare, Filter{Match: old})
		if err != nil || all.Changed != 3 || s.Do("LLEN", k.Prepare).(int64) != 4 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// Within a page, too, each message that stays is shown, although others are taken meanwhile.
func TestBrowseWithinPage(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	k := b.keys()
	const n = 3000
	for i := range n {
		s.Do("LPUSH", k.Prepare, fmt.Sprint(i))
	}
	p := redistest.NewProxy(t, s.Addr())
	o := b.through(p)
	p.On(redistest.ByScript(store.Browse)(b.name), 0, redistest.Call(func() { s.Do("RPOP", k.Prepare) }))
	page, err := o.Browse(t.Context(), BrowseOptions{Channel: b.name, State: StatePrepare, Limit: 1000, Payload: -1})
	b.must(err)
	seen := make(map[string]bool)
	for _, e := range page.Entries {
		seen[string(e.Payload)] = true
	}
	last, _ := strconv.Atoi(string(page.Entries[len(page.Entries)-1].Payload))
	taken := n - int(s.Do("LLEN", k.Prepare).(int64))
	for i := taken; i < last; i++ {
		if !seen[strconv.Itoa(i)] {
			t.Errorf("%d was not shown", i)
		}
	}
	if taken < 20 {
		t.Errorf("only %d were taken", taken)
	}
}

// Thousands of one score with one beginning, which only foreign programs make, are shown and cancelled like others.
func TestBrowseAlike(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		for _, latest := range []bool{false, true} {
			b := newBench(t, s.URL())
			for i := range 1500 {
				foreign := fmt.Sprintf(`{"type":"newsletter.send","tenant":"a","n":%d}`, i)
				s.Do("ZADD", b.keys().Delay, 4102444800000, foreign)
			}
			o := BrowseOptions{Channel: b.name, State: StateDelay, Limit: 500, Latest: latest, Payload: -1}
			seen, pages := make(map[string]bool), 0
			for ; pages < 20; pages++ {
				page, err := b.Browse(t.Context(), o)
				b.must(err)
				for _, e := range page.Entries {
					seen[string(e.Payload)] = true
				}
				if o.From = page.Next; page.Next == "" {
					break
				}
			}
			if len(seen) != 1500 || pages != 2 {
				t.Errorf("latest %v: %d were shown on %d pages", latest, len(seen), pages+1)
			}
			seventh := Filter{Match: func(e Entry) bool { return strings.HasSuffix(string(e.Payload), "7}") }}
			if all, err := b.CancelAll(t.Context(), b.name, StateDelay, seventh); err != nil || all.Changed != 150 {
				t.Errorf("%+v, %v", all, err)
			}
		}
	})
}

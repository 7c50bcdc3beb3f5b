package custody

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// taken is a message in a list, with what set makes of it.
func taken(set func(e *element.Element)) *Held {
	e := element.Element{Serial: element.NewSerial(), Payload: []byte("payload")}
	if set != nil {
		set(&e)
	}
	k := store.KeysOf("c")
	return &Held{Held: store.Held{Element: &e, Raw: e.Encode()}, Keys: k, List: k.Prepare}
}

func extra(x element.Extra) func(*element.Element) {
	return func(e *element.Element) { e.Extra = &x }
}

// record is that of a message's id, as scripts write it.
func record(h *Held, state byte, expires int64) []byte {
	return append(append([]byte{}, h.Serial[:]...), fmt.Sprintf("%c 0 1 %d \n", state, expires)...)
}

// What is cancelled, has expired or is late is not handled; the record knows best, as long as the id is the message's.
func TestAdmit(t *testing.T) {
	const now = 1000
	other := taken(extra(element.Extra{ID: "a"}))
	for name, c := range map[string]struct {
		x      element.Extra
		counts int16 // attempts
		known  func(h *Held) Known
		owns   bool
		want   store.Fate
		why    error
	}{
		"plain": {element.Extra{ID: "a"}, 0, nil, true, store.Acked, nil},
		"cancelled": {element.Extra{ID: "a"}, 0, func(*Held) Known { return Known{Cancelled: true} }, true,
			store.Cancelled, nil},
		"expired": {element.Extra{Expires: now}, 0, nil, true, store.Expired, nil},
		"to dead": {element.Extra{Expires: now, ToDead: true}, 0, nil, true, store.Rejected, ErrExpired},
		"not yet": {element.Extra{Expires: now + 1}, 0, nil, true, store.Acked, nil},
		"taken":   {element.Extra{Expires: now}, 1, nil, true, store.Acked, nil},
		"in time": {element.Extra{Expires: now - 2}, 0, func(*Held) Known { return Known{Taken: now - 3} }, true,
			store.Acked, nil},
		"in time, with its id": {element.Extra{ID: "a"}, 0, func(h *Held) Known {
			return Known{Taken: now - 3, Read: true, Record: record(h, 'p', now-2)}
		}, true, store.Acked, nil},
		"in time, and another has the id": {element.Extra{ID: "a", Expires: now - 2}, 0, func(*Held) Known {
			return Known{Taken: now - 3, Read: true, Record: record(other, 'p', now+9)}
		}, false, store.Expired, nil},
		"record is later": {element.Extra{ID: "a", Expires: now}, 0,
			func(h *Held) Known { return Known{Read: true, Record: record(h, 'p', 0)} }, true, store.Acked, nil},
		"record is earlier": {element.Extra{ID: "a"}, 0,
			func(h *Held) Known { return Known{Read: true, Record: record(h, 'p', now)} }, true, store.Expired, nil},
		"another has the id": {element.Extra{ID: "a", Expires: now}, 0,
			func(h *Held) Known { return Known{Read: true, Record: record(other, 'p', now+9)} }, false, store.Expired,
			nil},
		"the id is kept taken": {element.Extra{ID: "a"}, 0,
			func(h *Held) Known { return Known{Read: true, Record: record(h, 'u', now+9)} }, false, store.Acked, nil},
		"no record": {element.Extra{ID: "a"}, 0, func(*Held) Known { return Known{Read: true} }, false, store.Acked,
			nil},
		"late":        {element.Extra{Deadline: now}, 0, nil, true, store.Rejected, ErrDeadline},
		"not late":    {element.Extra{Deadline: now + 1}, 0, nil, true, store.Acked, nil},
		"both, first": {element.Extra{Deadline: now, Expires: now}, 0, nil, true, store.Expired, nil},
	} {
		h := taken(extra(c.x))
		h.Attempts = c.counts
		var k Known
		if c.known != nil {
			k = c.known(h)
		}
		k.Now = now
		k.Taken = cmp.Or(k.Taken, now)
		h.OwnsID = h.Owns(k)
		v := h.Admit(k, 1000)
		switch {
		case h.OwnsID != c.owns:
			t.Errorf("%s: it owns its id: %v", name, h.OwnsID)
		case c.want == store.Acked && v != nil, c.want != store.Acked && (v == nil || v.Fate != c.want ||
			v.Err != c.why):
			t.Errorf("%s: %+v", name, v)
		case c.why != nil && (v.Failure != c.why.Error() || !strings.Contains(string(v.Next), v.Failure)):
			t.Errorf("%s: it goes to dead with %q", name, v.Next)
		}
	}
}

// A failure is judged by its cause, its error and the attempts; what is written counts the attempt, or not.
func TestDecide(t *testing.T) {
	oops := errors.New("oops")
	for name, c := range map[string]struct {
		attempts int16
		cause    error
		err      error
		want     store.Fate
		wait     time.Duration
		then     int // attempts of the element that follows
		failure  string
	}{
		"error":           {0, nil, oops, store.Retried, 7 * time.Second, 1, "oops"},
		"last attempt":    {2, nil, oops, store.Rejected, 0, 3, "oops"},
		"reject":          {0, nil, fmt.Errorf("so: %w", Reject(oops)), store.Rejected, 0, 1, "so: oops"},
		"retry after":     {0, nil, RetryAfter(time.Minute, oops), store.Retried, time.Minute, 1, "oops"},
		"retry too often": {2, nil, RetryAfter(time.Minute, oops), store.Rejected, 0, 3, "oops"},
		"far":             {0, nil, RetryAfter(1<<62, oops), store.Retried, store.MaxWait, 1, "oops"},
		"snooze":          {1, nil, Snooze(time.Minute), store.Retried, time.Minute, 1, ""},
		"snooze at last":  {2, nil, Snooze(time.Minute), store.Retried, time.Minute, 2, ""},
		"undecodable":     {0, nil, Undecodable(oops), store.Rejected, 0, 1, "oops"},
		"timeout":         {0, ErrTimeout, io.EOF, store.Retried, 7 * time.Second, 1, ErrTimeout.Error() + ": EOF"},
		"timeout named":   {0, ErrTimeout, ErrTimeout, store.Retried, 7 * time.Second, 1, ErrTimeout.Error()},
		"deadline":        {0, ErrDeadline, io.EOF, store.Rejected, 0, 1, ErrDeadline.Error() + ": EOF"},
		"shutdown":        {0, ErrShutdown, oops, store.Released, 0, 0, ""},
		"lease lost":      {2, ErrLeaseLost, oops, store.Released, 0, 0, ""},
		"cancelled":       {0, ErrCancelled, oops, store.Cancelled, 0, 0, ""},
	} {
		h := taken(func(e *element.Element) { e.Attempts = c.attempts; e.Recoveries = 2 })
		p := Policy{MaxAttempts: func() int { return 3 }, MaxSize: 1000,
			Backoff: func(int) time.Duration { return 7 * time.Second }}
		v := h.Decide(p, c.cause, c.err)
		if v.Fate != c.want || v.Wait != c.wait || v.Failure != c.failure || v.Undecodable != (name == "undecodable") {
			t.Errorf("%s: %+v", name, v)
		}
		if c.then == 0 {
			if v.Next != nil {
				t.Errorf("%s: an element follows", name)
			}
			continue
		}
		next, err := element.Decode(v.Next)
		if err != nil || int(next.Attempts) != c.then || next.Recoveries != 0 || next.Serial != h.Serial ||
			next.Failure() != c.failure {
			t.Errorf("%s: %+v follows, %v", name, next, err)
		}
	}
}

// An element of a newer version goes to dead whole, behind a header of its own; no failure makes an element too large.
func TestDecideWrites(t *testing.T) {
	h := taken(nil)
	h.Newer = true
	p := Policy{MaxAttempts: func() int { return 0 }, MaxSize: 200}
	v := h.Decide(p, nil, Undecodable(element.ErrNewerVersion))
	next, err := element.Decode(v.Next)
	if err != nil || string(next.Payload) != string(h.Raw) || next.Failure() != element.ErrNewerVersion.Error() {
		t.Errorf("%+v, %v", next, err)
	}
	h.Newer = false
	if v := h.Decide(p, nil, Reject(errors.New(strings.Repeat("x", 1000)))); len(v.Next) > 200 || v.Failure == "" {
		t.Errorf("an element of %d bytes follows", len(v.Next))
	}
}

// Each verdict's reply becomes the Event that it stands for.
func TestReport(t *testing.T) {
	oops := errors.New("oops")
	retried := &Verdict{Verdict: store.Verdict{Fate: store.Retried, Wait: time.Hour}, Err: oops}
	failed := &Verdict{Verdict: Release.Verdict, Err: oops}
	for name, c := range map[string]struct {
		v              *Verdict
		rep            any
		unknown        bool
		want           event.Kind // empty: none
		err            error
		trimmed, after int
	}{
		"acked":              {Ack, int64(1), false, event.Acked, nil, 0, 0},
		"acked late":         {Ack, int64(0), false, event.LateVerdict, ErrLeaseLost, 0, 0},
		"acked perhaps":      {Ack, int64(0), true, event.UnconfirmedVerdict, nil, 0, 0},
		"retried":            {retried, int64(12345), false, event.Retried, oops, 0, 0},
		"retried, cancelled": {retried, int64(-1), false, event.Cancelled, oops, 0, 0},
		"retried late":       {retried, int64(0), false, event.LateVerdict, oops, 0, 0},
		"snoozed": {&Verdict{Verdict: store.Verdict{Fate: store.Retried, Snoozed: true}}, int64(1), false,
			event.Snoozed, nil,
			0, 0},
		"rejected": {&Verdict{Verdict: store.Verdict{Fate: store.Rejected}, Err: oops}, []any{int64(1), int64(4)},
			false,
			event.Rejected, oops, 4, 0},
		"undecodable": {&Verdict{Verdict: store.Verdict{Fate: store.Rejected}, Undecodable: true, Err: oops},
			[]any{int64(1), int64(0)}, false, event.Undecodable, oops, 0, 0},
		"released":         {Release, int64(1), false, event.Released, nil, 0, 0},
		"released already": {Release, int64(0), false, "", nil, 0, 0},
		"failed, released": {failed, int64(1), false, event.Released, oops, 0, 0},
		"failed, late":     {failed, int64(0), false, event.LateVerdict, oops, 0, 0},
		"followed": {Keep(nil, []store.Followup{{Keys: store.KeysOf("d")}, {Keys: store.KeysOf("e")}}),
			[]any{int64(1), int64(1), int64(0)}, false, event.Acked, nil, 0, 2},
		"with a result": {Keep([]byte("r"), nil), int64(1), false, event.Acked, nil, 0, 0},
	} {
		h := taken(extra(element.Extra{ID: "a"}))
		l, v := h.Left(c.v, link.Reply{Value: c.rep})
		beside := h.Beside(c.v, l)
		var e event.Event
		if told := h.Report(&e, v, l.Found, c.unknown); told != (c.want != "") {
			t.Errorf("%s: reported %v", name, told)
			continue
		}
		if e.Kind != c.want || e.Err != c.err || c.want != "" && (e.Channel != "c" || e.Serial != h.Serial ||
			e.ID != "a") {
			t.Errorf("%s: %+v", name, e)
		}
		var sums meter.Sums
		h.Count(&sums, v, l.Found, time.Time{}, 0)
		if late := sums[meter.Late] == 1; !c.unknown && late != (c.want == event.LateVerdict) {
			t.Errorf("%s: counted as late: %v", name, late)
		}
		if Ends(e.Kind) != (c.want != "" && c.want != event.Released) {
			t.Errorf("%s: %q ends its handling: %v", name, e.Kind, Ends(e.Kind))
		}
		if (e.Due != 0) != (c.want == event.Retried || c.want == event.Snoozed) {
			t.Errorf("%s: due %v", name, e.Due.Time())
		}
		switch {
		case c.trimmed > 0 && (len(beside) != 1 || beside[0].Kind != event.Trimmed || beside[0].N != c.trimmed),
			c.after > 0 && (len(beside) != 2 || beside[0].Kind != event.Enqueued || beside[1].Kind != event.Duplicate),
			c.trimmed+c.after == 0 && len(beside) > 0:
			t.Errorf("%s: beside it %+v", name, beside)
		}
	}
}

// The command of each verdict names the message's own list, and reads back as the store has it.
func TestLeave(t *testing.T) {
	for _, v := range []*Verdict{Ack, Release, {Verdict: store.Verdict{Fate: store.Retried, Next: []byte("n")}},
		{Verdict: store.Verdict{Fate: store.Rejected, Next: []byte("n")}}} {
		c := link.NewCall()
		h := taken(nil)
		if h.Leave(c, v, &store.Bounds{}); c.Len() != 1 {
			t.Errorf("%v: %d commands", v.Fate, c.Len())
		}
	}
	if v := Keep(nil, nil); v != Ack {
		t.Error("nothing to keep is more than an ack")
	}
	if _, err := store.LeaveReply(&Ack.Verdict, link.Reply{Err: redis.Error("ERR")}); err == nil {
		t.Error("an error is an answer")
	}
}
